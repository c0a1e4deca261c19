"""Kernel IR to LLVM IR of one invocation, for the GPUs that LLVM has a backend for."""
