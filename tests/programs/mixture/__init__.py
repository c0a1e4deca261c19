"""Programs that mix linear algebra, transforms, sorts, tables and complex numbers with loops, lanes, batches and rules.

`libraries.py` is what NumPy, JAX and loopgrad spell differently, `operations.py` what a statement computes,
`drawing.py` makes programs, `running.py` runs them, `checking.py` compares derivatives with differences or JAX's.
"""
