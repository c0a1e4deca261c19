"""`lg.random`: random numbers, by NumPy's names, and streams of them for loops.

`random.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from loopgrad.lazy.numpy.not_offered import RANDOM_ABSENT
from loopgrad.public_names import namespace

__all__, __getattr__, __dir__ = namespace(globals(), RANDOM_ABSENT)
