"""Functions of functions: derivatives, `vmap`, `checkpoint`, `compile`.

No rule of an operation: those are in `autodiff` and `graph.batching`.
"""
