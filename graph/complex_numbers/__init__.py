"""What computes with complex numbers, as operations on their real and imaginary parts.

A file a family; `table` says which primitive's name stands for which function. Values of complex dtypes come in and go
out. Derivatives are those of the parts, as everywhere.
"""
