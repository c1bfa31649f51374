"""Lists of dicts in, dicts out: the two lessons' functions, on the columnar engine."""
