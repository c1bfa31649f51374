"""A run as a timeline: a trace file for Perfetto, and a chart of characters for a terminal."""
