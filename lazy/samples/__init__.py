"""What is given by samples, by the names of SciPy: integrals and interpolation of functions, filters of signals and
images. Written of array functions, products and loops as users could: derivatives, batches and all devices come along.

`lg.integrate`, `lg.interpolate`, `lg.ndimage` and `lg.signal` have them.
"""
