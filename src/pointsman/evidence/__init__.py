"""Files of measured results, from whomever: what they must say, and what follows from them."""
