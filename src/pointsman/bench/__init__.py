"""Experiments on real engines: what they need, how they run, what they leave."""
