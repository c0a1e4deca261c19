"""Random scripts that NumPy and loopgrad run from the same text, NumPy being the oracle."""
