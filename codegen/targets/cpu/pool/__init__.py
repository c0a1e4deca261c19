"""The thread pool, its heaps and signals, as one LLVM module that all Programs share."""
