"""Kernels as scalar programs of one invocation, emitted through an Assembler."""
