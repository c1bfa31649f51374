"""Fleets as people describe them, made into what the simulator runs."""
