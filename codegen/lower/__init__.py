"""Lowering: a value of a Graph at an index becomes scalar operations of a Kernel."""
