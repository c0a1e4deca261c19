"""Derivatives of for, while and switch: one construct a file, what they share beside them."""
