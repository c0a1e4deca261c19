"""Programs that hold elements of tensors which weren't their arguments, and writes to those tensors.

`x[i] = v` and `x += v` point a tensor, and all that share its memory, at other values. A program that captured the old
one, or read its elements while it was traced, then computes what the function no longer means: it is marked, and
traced again at the next call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol
from weakref import WeakKeyDictionary, WeakSet

from loopgrad.graph.nodes import Value
from loopgrad.lazy.core import TensorCore, computed_as


class Reader(Protocol):
    """What depends on values; `stale` once one of them was written over."""

    stale: bool


_readers: Final[WeakKeyDictionary[Value, WeakSet[Reader]]] = WeakKeyDictionary()


def read_by(reader: Reader, values: Iterable[Value]) -> None:
    """Note what a program holds of tensors outside it."""
    for value in values:
        _readers.setdefault(value, WeakSet()).add(reader)


def written(x: TensorCore) -> None:
    """Before a tensor is pointed at another value: mark the programs that hold the one it has."""
    if not len(_readers):
        return
    for value in (x._value, computed_as(x)):
        for reader in tuple(_readers.get(value, ())):
            reader.stale = True
