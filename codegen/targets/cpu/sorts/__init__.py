"""Sorts by digits, of rows and of parts of long arrays."""
