"""Iteration costs from a recorded run of a real engine."""
