"""Kernels as vector code: values of several lanes at a time, in LLVM IR text."""
