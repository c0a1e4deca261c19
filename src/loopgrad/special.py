"""`lg.special`: special functions, by the names of SciPy.

`special.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from loopgrad.lazy.numpy.not_offered import SPECIAL_ABSENT
from loopgrad.public_names import namespace

__all__, __getattr__, __dir__ = namespace(globals(), SPECIAL_ABSENT)
