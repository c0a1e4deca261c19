"""`lg.optim`: optimisers over trees of parameters, line searches and least squares.

State is a tree of tensors and an update is made of array functions, so a step compiles, is captured and replayed.
"""
