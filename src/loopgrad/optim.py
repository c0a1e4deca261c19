"""`lg.optim`: optimisers by the names of Optax, searches for minima, least squares.

`optim.pyi` lists what is offered, and `public_names` imports it when it is first used.
"""

from __future__ import annotations

from typing import Any

from loopgrad.public_names import found, origins_of

ORIGINS = origins_of(__file__)
__all__ = sorted(ORIGINS)


def __getattr__(name: str) -> Any:
    value = globals()[name] = found(name, ORIGINS, "loopgrad.optim", {})
    return value


def __dir__() -> list[str]:
    return __all__
