"""The named axes around the function of one example that `vmap` traces."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from loopgrad.graph import ops
from loopgrad.graph.errors import NamedAxisError, explained
from loopgrad.graph.nodes import Value


@dataclass(frozen=True, slots=True)
class NamedAxis:
    """An axis of `vmap` with a name; `level`: how many named ones are around it."""

    name: Hashable
    size: int
    level: int

    @property
    def attrs(self) -> Mapping[str, Any]:
        return {"name": repr(self.name), "size": self.size, "level": self.level}

    def gathered(self, x: Value) -> Value:
        """What every example has as x, in front of each other: it exists once."""
        return ops.axis_gather(x, self.attrs)

    def split(self, x: Value) -> Value:
        """Each example's row of what exists once."""
        return ops.axis_split(x, self.attrs)

    def shared(self, x: Value) -> Value:
        """What exists once as each example's own."""
        return ops.axis_share(x, self.attrs)


_around: Final[ContextVar[tuple[NamedAxis, ...]]] = ContextVar("named axes of vmap", default=())


@contextmanager
def naming(name: Hashable | None, size: int) -> Iterator[int | None]:
    """While the function of one of `size` examples is traced: gives the level of the axis, if it has a name."""
    if name is None:
        yield None
        return
    around = _around.get()
    token = _around.set((*around, NamedAxis(name, size, len(around))))
    try:
        yield len(around)
    finally:
        _around.reset(token)


def named_axes(what: str, names: Any) -> tuple[NamedAxis, ...]:
    """The axes of this name, or of these, of equal names the innermost one. NamedAxisError where there is none."""
    found = []
    for name in names if isinstance(names, tuple | list) else (names,):
        axis = next((a for a in reversed(_around.get()) if a.name == name), None)
        if axis is None:
            known = ", ".join(repr(a.name) for a in _around.get()) or "no named axis around"
            fix = f"call it in a function that lg.vmap(..., axis_name={name!r}) maps"
            raise NamedAxisError(explained(what, f"the named axis {name!r}", known, fix))
        found.append(axis)
    return tuple(found)
