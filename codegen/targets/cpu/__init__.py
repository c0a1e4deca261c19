"""The CPU target: Kernel IR to SPMD vector code in LLVM IR text, to one relocatable object."""
