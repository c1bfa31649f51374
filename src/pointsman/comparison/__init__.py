"""The same workload through several policies."""
