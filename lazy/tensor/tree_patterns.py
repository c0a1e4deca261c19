"""The trees of the last call, as a pattern to hold those of the next one against: in a third of flattening's time,
where they are tuples, lists, dicts with strings as keys, and None.

    ({"x": a, "y": b},), {"k": c}      a dict of x and y; a dict of k      leaves a, b, c, as optree orders them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from types import NoneType
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.lazy.tensor.core import PYTHON_SCALARS, TensorCore
from loopgrad.lazy.tensor.trees import Tree

LEAF: Final = None


class _Container(NamedTuple):
    """A container of so many children. `taken`: gives those of a dict, in the order of keys. `parts`: for each child a
    part or LEAF; None where all are leaves."""

    kind: type[Any]
    size: int
    taken: Callable[[Any], Sequence[Any]] | None
    parts: tuple[_Container | None, ...] | None


class _Other(Exception):
    """Something else is in the tree."""


class TreePattern:
    """Of the arguments of a call, whose trees have the structure `structure`."""

    __slots__ = ("_named", "_placed", "structure")

    def __init__(self, placed: _Container, named: _Container, structure: Any) -> None:
        self._placed = placed
        self._named = named
        self.structure = structure

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The leaves of trees of the same containers; None where there are others. (A leaf may be anything.)"""
        found: list[Any] = []
        return found if _take(self._placed, args, found) and _take(self._named, kwargs, found) else None


def pattern_of(args: tuple[Any, ...], kwargs: dict[str, Any], structure: Any) -> TreePattern | None:
    """The pattern of trees that have this structure; None where there are other containers, or leaves that are no
    inputs."""
    with suppress(_Other):
        placed, named = _part(args), _part(kwargs)
        if placed is not LEAF and named is not LEAF:
            return TreePattern(placed, named, structure)
    return None


def _part(tree: Tree) -> _Container | None:
    kind = type(tree)
    if isinstance(tree, TensorCore) or kind is np.ndarray or kind in PYTHON_SCALARS:
        return LEAF
    if tree is None:
        return _Container(kind, 0, tuple, None)
    taken: Callable[[Any], Sequence[Any]] | None = None
    children: Sequence[Any] = tree
    if kind is dict and {str}.issuperset(map(type, tree)):
        keys = sorted(tree)
        children = [tree[key] for key in keys]
        taken = itemgetter(*keys) if len(keys) > 1 else lambda given: [given[key] for key in keys]
    elif kind is not tuple and kind is not list:
        raise _Other
    parts = tuple(map(_part, children))
    return _Container(kind, len(children), taken, None if parts.count(LEAF) == len(parts) else parts)


def _take(part: _Container, tree: Any, leaves: list[Any]) -> bool:
    kind, size, taken, parts = part
    if kind is not type(tree):
        return False
    if kind is NoneType:
        return True
    if len(tree) != size:
        return False
    if taken is not None:
        try:
            tree = taken(tree)
        except KeyError:
            return False
    if parts is None:
        leaves += tree
        return True
    for child, below in zip(tree, parts, strict=True):
        if below is LEAF:
            leaves.append(child)
        elif not _take(below, child, leaves):
            return False
    return True
