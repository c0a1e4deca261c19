"""Random loop programs and an oracle from outside the library; `tests/programs/random_loops.py` runs them.

One seed is one `Program` (description.py), drawn by draw.py. From it come the text of a loopgrad function
(source.py) and a run on plain Python numbers, lane by lane (execute.py), on a tape of its own (tape.py) or on
PyTorch's scalars (torch_scalars.py). check.py compares them in many ways, minimise.py makes a failing program small.
"""
