"""One definition a metric, computed from result columns."""
