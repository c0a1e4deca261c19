"""`lg.linalg`: matrices in the last two axes, batches before them, by the names of NumPy, SciPy and the standard."""
