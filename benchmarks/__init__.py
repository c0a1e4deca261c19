"""Workloads, what they are compared with, and the harness that times them: `python -m benchmarks`."""
