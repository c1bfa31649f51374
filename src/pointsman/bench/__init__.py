"""Experiments on real hardware, from the file that describes one to the evidence that it leaves."""
