"""NumPy's settings for errors of float operations. Ours neither raise nor warn, so "ignore" is all that can be set."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any, Final

from loopgrad.graph.errors import explained

PUBLIC: Final = "errstate seterr"
_KINDS: Final = ("all", "divide", "over", "under", "invalid")


def _check(op: str, given: dict[str, Any]) -> None:
    for kind, way in given.items():
        if kind not in _KINDS:
            raise TypeError(explained(op, f"settings among {', '.join(_KINDS)}", kind, "leave it out"))
        if way not in (None, "ignore"):
            fix = "float operations neither raise nor warn: test results with lg.isfinite"
            raise ValueError(explained(op, f"{kind}='ignore'", repr(way), fix))


class errstate(ContextDecorator):
    """`with lg.errstate(divide="ignore"):` as NumPy's scripts have it: changes nothing, since floats are silent anyway.

    Raises ValueError for another setting than "ignore".

    >>> with lg.errstate(divide="ignore", invalid="ignore"):
    ...     lg.asarray([1.0, 0.0]) / 0.0
    Tensor([inf, nan], dtype=float64)
    """

    def __init__(self, **settings: Any) -> None:
        _check("errstate", settings)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *raised: object) -> None:
        return None


def seterr(**settings: Any) -> dict[str, str]:
    """NumPy's function, of which "ignore" is all that can be set: what was set before, for the four kinds of errors.

    Raises ValueError for another setting, as nothing that floats do raises or warns.

    >>> lg.seterr(all="ignore")["divide"]
    'ignore'
    """
    _check("seterr", settings)
    return dict.fromkeys(_KINDS[1:], "ignore")
