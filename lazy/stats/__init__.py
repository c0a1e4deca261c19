"""`lg.stats`: densities and distribution functions by the names of SciPy, each a composition of special functions.

Outside of a distribution's support the formula is computed for a point inside, so that derivatives are finite there.
"""
