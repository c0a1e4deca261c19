"""Programs that write in place: through views, to arrays with two names, in nested loops, branches, batches and rules.

`drawing.py` makes programs, `running.py` runs them by NumPy or on loopgrad, `checking.py` compares values and
derivatives with those of NumPy's run at complex numbers.
"""
