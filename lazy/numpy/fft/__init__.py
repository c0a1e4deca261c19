"""`lg.fft`: discrete Fourier transforms, by the names and conventions of NumPy and the array API standard."""
