"""Programs that hold elements of tensors which weren't their arguments, and writes to those tensors.

`x[i] = v` and `x += v` point a tensor, and all that share its memory, at other values. A program that captured the old
one, or read its elements while it was traced, then computes what the function no longer means: it is marked, and
traced again at the next call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from loopgrad.graph.nodes import Value
from loopgrad.lazy.tensor.core import TensorCore, computed_as
from loopgrad.runtime.alive import Alive


class Reader(Protocol):
    """What depends on values; `stale` once one of them was written over."""

    stale: bool


_readers: Final[WeakKeyDictionary[Value, Alive[Reader]]] = WeakKeyDictionary()


def read_by(reader: Reader, values: Iterable[Value]) -> None:
    """Note what a program holds of tensors outside it."""
    for value in dict.fromkeys(values):
        _readers.setdefault(value, Alive()).add(reader)


def written(x: TensorCore) -> None:
    """Before a tensor is pointed at another value: mark the programs that hold the one it has."""
    if not len(_readers):
        return
    for value in (x._value, computed_as(x)):
        readers = _readers.get(value)
        for reader in readers.members() if readers is not None else ():
            reader.stale = True
