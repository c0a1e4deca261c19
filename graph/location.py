"""Which line of the user's program is responsible: `user_location`, and `at` to override it.

A frame counts as the user's when its module belongs neither to this package nor to the libraries that
call back into it (tree mapping, context managers, NumPy's and SciPy's functions).
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final

from loopgrad.graph.nodes import Location

_INTERNAL: Final = frozenset({__name__.partition(".")[0], "numpy", "optree", "scipy", "contextlib", "functools"})
_CACHE_LIMIT: Final = 4096  # code objects remembered before the caches are dropped


class _Override(threading.local):
    loc: Location | None = None


_override = _Override()
_internal: dict[str, bool] = {}  # by file
# id(code) -> (code, {instruction offset: location}), of code of ours (code, None); decoding a line table costs as much
# as a node, and hashing a code object reads all of it
_locations: dict[int, tuple[CodeType, dict[int, Location] | None]] = {}


@contextmanager
def at(loc: Location | None) -> Iterator[None]:
    """Give every node emitted inside the block this location (transforms keep the user's line)."""
    previous = _override.loc
    if loc is not None:
        _override.loc = loc
    try:
        yield
    finally:
        _override.loc = previous


def user_location(above: int = 0) -> Location | None:
    """The innermost frame outside the package. `above`: so many frames, from the caller's on, are known to be inside,
    and needn't be looked at, which costs."""
    override = _override.loc
    if override is not None:
        return override
    frame: FrameType | None = sys._getframe(1 + above)
    while frame is not None:
        known = _locations.get(id(frame.f_code))
        offsets = (_remembered(frame) if known is None else known)[1]
        if offsets is not None:
            return offsets.get(frame.f_lasti) or _decoded(frame, offsets)
        frame = frame.f_back
    return None


def _remembered(frame: FrameType) -> tuple[CodeType, dict[int, Location] | None]:
    """What is remembered of a frame's code from now on."""
    code = frame.f_code
    if len(_locations) >= _CACHE_LIMIT:
        _locations.clear()
    internal = _internal.get(code.co_filename)
    known = _locations[id(code)] = (code, None if (_is_internal(frame) if internal is None else internal) else {})
    return known


def _decoded(frame: FrameType, offsets: dict[int, Location]) -> Location:
    code = frame.f_code
    location = offsets[frame.f_lasti] = Location(code.co_filename, frame.f_lineno, code.co_name)
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
