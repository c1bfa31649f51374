"""Engines that serve a model: one file each behind one protocol."""
