"""Tests mirror the folders of the library; `tests/programs` runs whole programs on the chosen devices."""
