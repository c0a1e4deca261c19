"""One module per workload; `benchmarks.registry` lists them."""
