"""Experiments on real engines."""
