"""Choices: pure functions of (request, view of the fleet) that say which candidate serves."""
