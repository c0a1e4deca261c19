"""`lg.linalg`: factorisations, systems of equations, norms and products of matrices, by the names of NumPy, SciPy and
the array API standard.

`linalg.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from loopgrad.lazy.numpy.not_offered import LINALG_ABSENT
from loopgrad.public_names import namespace

__all__, __getattr__, __dir__ = namespace(globals(), LINALG_ABSENT)
