"""A pattern takes the leaves that flattening gives, of trees of its own structure and of no others."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.tensor.tree_patterns import OFTEN, builder, pattern_of
from loopgrad.lazy.tensor.trees import Tree, flatten, unflatten

Pair = namedtuple("Pair", "a b")  # a class without annotations, as users write them

X, Y = lg.asarray(1.0), lg.asarray(2.0)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((X,), {}),
    ((X, Y), {}),
    ((X,), {"k": Y}),
    ((X,), {"k": None}),
    ((X,), {"k": [], "j": ()}),
    ((X,), {"j": [Y], "k": (Y, 2.0)}),
    ((X,), {"j": (Y,), "k": (Y, 2.0)}),
    (({"b": X, "a": Y},), {}),
    (({"a": X, "b": Y},), {}),
    (({"a": X},), {}),
    (({"a": X, "c": Y},), {}),
    (({"a": {"a": X, "b": [Y, 3]}, "b": None},), {"k": np.ones(2)}),
    (({"a": {"a": X, "b": [Y, 3]}, "b": X},), {"k": np.ones(2)}),
    (([X, [Y]],), {}),
    (([[X], Y],), {}),
    ((), {"k": {"x": X}}),
    ((), {}),
]
OTHERS = [((Pair(X, Y),), {}), ((OrderedDict(a=X),), {}), (({1: X},), {}), (("text", X), {}), (({"a": X, 2: Y},), {})]


@pytest.mark.parametrize("often", [0, OFTEN])
def test_patterns_take_what_flattening_gives(often: int) -> None:
    flat = [flatten(call) for call in CALLS]
    for one, (_, structure) in zip(CALLS, flat, strict=True):
        pattern = pattern_of(*one, structure)
        assert pattern is not None
        for _ in range(often):
            pattern.leaves(*one)
        for other, (leaves, second) in zip(CALLS, flat, strict=True):
            found = pattern.leaves(*other)
            if structure == second:
                assert found is not None
                assert all(a is b for a, b in zip(found, leaves, strict=True)), "in the same order"
            else:  # a leaf may be anything: a call looks at each
                assert found is None or any(isinstance(x, list | tuple | dict | None) for x in found)
        for args, kwargs in OTHERS:
            found = pattern.leaves(args, kwargs)
            assert found is None or any(isinstance(x, tuple | dict | str) for x in found)


@pytest.mark.parametrize("call", OTHERS, ids=str)
def test_other_trees_have_no_pattern(call: Any) -> None:
    assert pattern_of(*call, flatten(call)[1]) is None


def test_calls_with_trees_that_change() -> None:
    def double(*args: Any, **kwargs: Any) -> Any:
        leaves, _ = flatten((args, kwargs))
        return [2.0 * x for x in leaves if not isinstance(x, str)]

    compiled = lg.compile(double)
    for _ in range(3):
        for args, kwargs in (*CALLS, *OTHERS):
            for expected, got in zip(double(*args, **kwargs), compiled(*args, **kwargs), strict=True):
                np.testing.assert_array_equal(got, expected)


def test_builders_make_what_optree_makes() -> None:
    deep: Tree = X
    for _ in range(300):
        deep = [deep]
    for tree in (*CALLS, *OTHERS, {"b": (X,), "a": {"d": None, "c": [Y, ()]}}, [X] * 400, deep):
        leaves, structure = flatten(tree)
        given = [object() for _ in leaves]
        found = builder(tree, structure)(given)
        assert repr(found) == repr(unflatten(structure, given)), "with keys in their own order"
        assert flatten(found)[1] == structure
