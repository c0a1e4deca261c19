"""`lg.random`: random numbers, by NumPy's names, and streams of them for loops.

`random.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from typing import Any

from loopgrad.lazy.numpy.not_offered import RANDOM_ABSENT
from loopgrad.public_names import found, origins_of

ORIGINS = origins_of(__file__)
__all__ = sorted(ORIGINS)


def __getattr__(name: str) -> Any:
    value = globals()[name] = found(name, ORIGINS, "loopgrad.random", RANDOM_ABSENT)
    return value


def __dir__() -> list[str]:
    return __all__
