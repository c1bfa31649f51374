"""What arrives: columns, and the readers, writers and generators of them."""
