"""Side-by-side measurements of loopgrad and its peers; `python -m benchmarks --help`."""
