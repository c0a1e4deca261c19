"""Loops and branches as region nodes: `while_loop`, `fori_loop`, `scan`, `cond`, `switch`.

No array function, no derivative.
"""
