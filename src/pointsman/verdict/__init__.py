"""Accept, tune or reject."""
