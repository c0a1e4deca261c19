"""NumPy's functions by family, under the names of NumPy and the array API standard.

No state: each function builds graph nodes.
"""
