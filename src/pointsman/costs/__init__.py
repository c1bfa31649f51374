"""Milliseconds of a request's stages."""
