"""Errors and percentiles: what every layer stands on."""
