"""Fourier transforms of many rows at once, as vector code of a module of its own."""
