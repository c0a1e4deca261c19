"""Kernels around a program's own: fills, copies, exact sums made floats, the update kernel."""
