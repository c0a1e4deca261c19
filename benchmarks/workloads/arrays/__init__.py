"""Ordinary array programs, one after the other in one process for each system: `--workload arrays`."""
