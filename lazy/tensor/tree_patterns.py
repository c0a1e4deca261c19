"""The trees of the last call, as a pattern to hold those of the next one against: in a third of flattening's time,
where they are tuples, lists, dicts with strings as keys, and None.

    ({"x": a, "y": b},), {"k": c}      a dict of x and y; a dict of k      leaves a, b, c, as optree orders them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import NoneType
from typing import Any, Final

import numpy as np

from loopgrad.lazy.tensor.core import PYTHON_SCALARS, TensorCore
from loopgrad.lazy.tensor.tree_code import LEAF, Container, leaves_code, tree_code
from loopgrad.lazy.tensor.trees import Tree, unflatten

OFTEN: Final = 16  # calls before a pattern gets code of its own


class _Other(Exception):
    """Something else is in the tree."""


class TreePattern:
    """Of the arguments of a call, whose trees have the structure `structure`."""

    __slots__ = ("_named", "_own", "_placed", "_times", "structure")

    def __init__(self, placed: Container, named: Container, structure: Any) -> None:
        self._placed = placed
        self._named = named
        self._own: Callable[[Any, Any], list[Any] | None] | None = None
        self._times = 0
        self.structure = structure

    def leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The leaves of trees of the same containers; None where there are others. (A leaf may be anything.)"""
        if self._own is not None:
            return self._own(args, kwargs)
        self._times += 1
        if self._times == OFTEN:
            self._own = leaves_code(self._placed, self._named)
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


def builder(tree: Tree, structure: Any) -> Callable[[Sequence[Any]], Any]:
    """What makes trees like this one, with that structure, from their leaves."""
    with suppress(_Other):
        part = _part(tree)
        if part is not LEAF and (made := tree_code(part)) is not None:
            return made
    return partial(unflatten, structure)


def _part(tree: Tree) -> Container | None:
    kind = type(tree)
    if isinstance(tree, TensorCore) or kind is np.ndarray or kind in PYTHON_SCALARS:
        return LEAF
    if tree is None:
        return Container(kind, (), ())
    keys: tuple[str, ...] = ()
    children: Sequence[Any] = tree
    if kind is dict and {str}.issuperset(map(type, tree)):
        keys = tuple(tree)
        children = [tree[key] for key in sorted(keys)]
    elif kind is not tuple and kind is not list:
        raise _Other
    return Container(kind, keys, tuple(map(_part, children)))


def _take(part: Container, tree: Any, leaves: list[Any]) -> bool:
    kind, keys, children = part
    if kind is not type(tree):
        return False
    if kind is NoneType:
        return True
    if len(tree) != len(children):
        return False
    if keys:
        try:
            tree = [tree[key] for key in sorted(keys)]
        except KeyError:
            return False
    for child, below in zip(tree, children, strict=True):
        if below is LEAF:
            leaves.append(child)
        elif not _take(below, child, leaves):
            return False
    return True
