"""A log of choices, made again."""
