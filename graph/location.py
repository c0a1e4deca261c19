"""Which line of the user's program is responsible: `user_location`, and `at` to override it.

A frame counts as the user's when its file belongs neither to this package nor to the libraries that
call back into it (tree mapping, context managers, NumPy's and SciPy's functions).
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Final

from loopgrad.graph.nodes import Location

_FOLDERS: Final = ("lazy", "graph", "autodiff", "codegen", "runtime")
_ROOTS: Final = tuple(
    {str(Path(__file__).resolve().parents[1] / folder) + os.sep for folder in _FOLDERS}
    | {str(Path(__file__).parents[1]) + os.sep}
)
_GO_BETWEENS: Final = ("contextlib.py", "functools.py")
_LIBRARIES: Final = frozenset({"numpy", "optree", "scipy"})
_PACKAGES: Final = frozenset({"dist-packages", "site-packages"})
_CACHE_LIMIT: Final = 4096  # code objects remembered before the caches are dropped


class _Override(threading.local):
    loc: Location | None = None


_override = _Override()
_internal: dict[str, bool] = {}
# id(code) -> (code, {instruction offset: location}); decoding a line table costs as much as a node,
# and hashing a code object reads all of it
_locations: dict[int, tuple[CodeType, dict[int, Location]]] = {}


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


def user_location() -> Location | None:
    """The innermost frame outside the package."""
    override = _override.loc
    if override is not None:
        return override
    frame = sys._getframe(1)
    while True:
        code = frame.f_code
        internal = _internal.get(code.co_filename)
        if internal is None:
            internal = _internal[code.co_filename] = _is_internal(code.co_filename)
        if not internal:
            break
        if frame.f_back is None:
            return None
        frame = frame.f_back
    known = _locations.get(id(code))
    if known is None:
        if len(_locations) >= _CACHE_LIMIT:
            _locations.clear()
        known = _locations[id(code)] = (code, {})
    location = known[1].get(frame.f_lasti)
    if location is None:
        location = known[1][frame.f_lasti] = Location(code.co_filename, frame.f_lineno, code.co_name)
    return location


def _is_internal(filename: str) -> bool:
    path = Path(filename)
    parts = path.parts
    library = any(a in _PACKAGES and b in _LIBRARIES for a, b in pairwise(parts))
    return filename.startswith(_ROOTS) or path.name in _GO_BETWEENS or library


def describe(loc: Location | None) -> str:
    """`file:line` with the source line under it where the file can be read; empty without a location."""
    if loc is None:
        return ""
    source = linecache.getline(loc.file, loc.line).strip()
    return f"  at {loc} in {loc.function}" + (f"\n    {source}" if source else "")


def located(text: str, loc: Location | None) -> str:
    """A message, and below it the line that it is about, where that is known."""
    return "\n".join(part for part in (text, describe(loc)) if part)
