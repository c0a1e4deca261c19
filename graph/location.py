"""Which line of the user's program is responsible: `user_location`, and `at` to override it.

A frame counts as the user's when its module belongs neither to this package nor to the libraries that
call back into it (tree mapping, context managers, NumPy's and SciPy's functions).
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final

from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.nodes import Location

_INTERNAL: Final = frozenset({__name__.partition(".")[0], "numpy", "optree", "scipy", "contextlib", "functools"})
_CACHE_LIMIT: Final = 4096  # code objects remembered before the caches are dropped

_internal: dict[str, bool] = {}  # by file


class _Lines(dict[int, Location | None]):
    """The locations of a code object by instruction; None for the ones that nobody asked for, and for all of code of
    ours. Holds the code, by whose identity it is found."""

    def __init__(self, code: CodeType | None, internal: bool) -> None:
        super().__init__()
        self.code = code
        self.internal = internal

    def __missing__(self, instruction: int) -> None:
        return None


class _Codes(dict[int, _Lines]):
    """The lines of code objects by their identities; no lines for who wasn't met."""

    def __missing__(self, code: int) -> _Lines:
        return _NONE


_NONE: Final = _Lines(None, True)
LOCATIONS: Final = _Codes()
"""Decoding a line table costs as much as a node, and hashing a code object reads all of it."""


@contextmanager
def at(loc: Location | None) -> Iterator[None]:
    """Give every node emitted inside the block this location (transforms keep the user's line)."""
    previous = AMBIENT.loc
    if loc is not None:
        AMBIENT.belong(AMBIENT.scope, loc)
    try:
        yield
    finally:
        AMBIENT.belong(AMBIENT.scope, previous)


def user_location(above: int = 0) -> Location | None:
    """The innermost frame outside the package. `above`: so many frames, from the caller's on, are known to be inside,
    and needn't be looked at, which costs."""
    named = AMBIENT.loc
    if named is not None:
        return named
    frame: FrameType | None = sys._getframe(1 + above)
    while frame is not None:
        lines = LOCATIONS[id(frame.f_code)]
        if lines is _NONE:
            lines = _remembered(frame)
        if not lines.internal:
            return lines[frame.f_lasti] or _decoded(frame, lines)
        frame = frame.f_back
    return None


def is_of_user(frame: FrameType) -> bool:
    """Whether a frame runs the user's code."""
    lines = LOCATIONS[id(frame.f_code)]
    return not (_remembered(frame) if lines is _NONE else lines).internal


def _remembered(frame: FrameType) -> _Lines:
    """What is remembered of a frame's code from now on."""
    code = frame.f_code
    if len(LOCATIONS) >= _CACHE_LIMIT:
        LOCATIONS.clear()
    known = _internal.get(code.co_filename)
    lines = LOCATIONS[id(code)] = _Lines(code, _is_internal(frame) if known is None else known)
    return lines


def _decoded(frame: FrameType, lines: _Lines) -> Location:
    code = frame.f_code
    location = lines[frame.f_lasti] = Location(code.co_filename, frame.f_lineno, code.co_name)
    return location


def _is_internal(frame: FrameType) -> bool:
    name, file = str(frame.f_globals.get("__name__")), frame.f_code.co_filename
    internal = name.partition(".")[0] in _INTERNAL
    if file != "<string>":  # what code that was generated is called, in whichever module
        _internal[file] = internal
    return internal


def describe(loc: Location | None) -> str:
    """`file:line` with the source line under it where the file can be read; empty without a location."""
    if loc is None:
        return ""
    source = linecache.getline(loc.file, loc.line).strip()
    return f"  at {loc} in {loc.function}" + (f"\n    {source}" if source else "")


def located(text: str, loc: Location | None) -> str:
    """A message, and below it the line that it is about, where that is known."""
    return "\n".join(part for part in (text, describe(loc)) if part)
