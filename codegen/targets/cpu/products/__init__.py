"""Products of matrices of floats, on the threads of the pool."""
