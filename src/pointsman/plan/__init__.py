"""Which shape a number of GPUs should take for a workload and its objectives."""
