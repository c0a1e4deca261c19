"""`lg.tree`, and what is a tree: fields of dataclasses and of attrs' classes, standard containers, None."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.array([1.0, 2.0, 3.0])
Pair = namedtuple("Pair", "a b")


@dataclass(frozen=True, slots=True)
class Layer:
    w: Any
    b: Any
    kind: str = field(default="linear", metadata={"static": True})

    def __post_init__(self) -> None:
        assert self.kind in ("linear", "relu")

    def __call__(self, x: Any) -> Any:
        y = self.w * x + self.b
        return lg.maximum(y, 0.0) if self.kind == "relu" else y


@dataclass
class Stack:
    layers: list[Layer]
    scale: Any


class Attrs:
    """As attrs makes classes, which needn't be installed: its list of fields with their names and metadata."""

    __attrs_attrs__ = (SimpleNamespace(name="w", metadata={}), SimpleNamespace(name="n", metadata={"static": True}))

    def __init__(self, w: Any, n: int) -> None:
        self.w, self.n = w, n


TREE = {"b": [1, (2.0, None)], "a": Pair("x", Stack([Layer(3, 4)], 5))}
LEAVES = ["x", 3, 4, 5, 1, 2.0]
PATHS = [
    ("a", "a"), ("a", "b", "layers", 0, "w"), ("a", "b", "layers", 0, "b"), ("a", "b", "scale"), ("b", 0), ("b", 1, 0),
]  # fmt: skip


def test_flattening_and_mapping() -> None:
    leaves, structure = lg.tree.flatten(TREE)
    assert leaves == lg.tree.leaves(TREE) == LEAVES
    assert lg.tree.unflatten(structure, leaves) == TREE
    assert structure == lg.tree.structure(TREE) != lg.tree.structure({**TREE, "b": [1, (2.0, 3)]})
    assert hash(structure) == hash(lg.tree.structure(TREE))
    assert structure.num_leaves == 6
    assert lg.tree.leaves_with_path(TREE) == list(zip(PATHS, LEAVES, strict=True))
    assert lg.tree.map(lambda x, y: (x, y), TREE, TREE)["b"] == [(1, 1), ((2.0, 2.0), None)]
    assert lg.tree.map(lambda _, y: y, {"a": 0}, {"a": [1, 2]}) == {"a": [1, 2]}  # a subtree where the first has a leaf
    assert lg.tree.map(lambda x: x, None) is None
    assert lg.tree.map_with_path(lambda p, x, y: (*p, x, y), [1, {"k": 2}], [3, {"k": 4}]) == [
        (0, 1, 3), {"k": (1, "k", 2, 4)},
    ]  # fmt: skip
    assert lg.tree.leaves(TREE, is_leaf=lambda x: isinstance(x, Pair | list)) == [TREE["a"], TREE["b"]]
    assert lg.tree.reduce(lambda a, b: a + b, [1, 2, {"c": 3}]) == 6
    with pytest.raises(TypeError):
        lg.tree.reduce(lambda a, _: a, None)
    assert [lg.tree.all(t) for t in ([True, 1], [True, 0], None)] == [True, False, True]
    assert lg.tree.broadcast((1, None), ({"x": 5, "y": 6}, None)) == ({"x": 1, "y": 1}, None)
    inner = lg.tree.structure(Pair(0, 0))
    assert lg.tree.transpose(lg.tree.structure([0, 0]), inner, [Pair(1, 2), Pair(3, 4)]) == Pair([1, 3], [2, 4])


def test_standard_containers_keep_their_kind() -> None:
    for tree in (OrderedDict(z=1, a=2), defaultdict(list, a=1), deque([1, 2], maxlen=3), (), [], {}, Pair(1, None)):
        leaves, structure = lg.tree.flatten(tree)
        again = lg.tree.unflatten(structure, leaves)
        assert type(again) is type(tree)
        assert again == tree
    assert lg.tree.leaves(OrderedDict(z=1, a=2)) == [1, 2]
    assert lg.tree.leaves({"z": 1, "a": 2}) == [2, 1]
    with pytest.raises(TypeError, match="already"):
        lg.register_pytree(OrderedDict)


def test_stacks_of_trees(device: str) -> None:
    trees = [{"x": X * i, "n": (i,)} for i in range(3)]
    stacked = lg.tree.stack(trees)
    check(stacked["x"], np.stack([X * i for i in range(3)]))
    check(stacked["n"][0], [0, 1, 2])
    for tree, again in zip(trees, lg.tree.unstack(stacked), strict=True):
        assert lg.tree.allclose(tree, again)
    assert len(lg.tree.unstack(lg.tree.stack(trees, axis=-1)["x"], axis=-1)) == 3
    assert lg.tree.unstack({"x": np.zeros((0, 2))}) == []
    assert not lg.tree.allclose(trees[1], trees[2])
    assert not lg.tree.allclose([np.nan], [np.nan])
    assert lg.tree.allclose([np.nan], [np.nan], equal_nan=True)
    assert lg.compile(lg.tree.allclose)(trees[1], trees[1])


def test_static_fields_are_part_of_the_program(device: str) -> None:
    f = lg.compile(lambda layer, x: Layer(layer(x), layer.b, layer.kind))
    for kind, expected in (("linear", -2 * X + 1), ("relu", 0 * X), ("linear", -2 * X + 1)):
        got = f(Layer(lg.asarray(-2.0), lg.asarray(1.0), kind), X)
        assert got.kind == kind
        check(got.w, expected)
    assert f.versions == 2
    slopes = lg.grad(lambda stack: lg.sum(stack.layers[0](X)) * stack.scale)(Stack([Layer(2.0, 1.0)], 3.0))
    check(slopes.layers[0].w, 3 * X.sum())
    assert slopes.layers[0].kind == "linear"
    g = lg.compile(lambda model: Attrs(model.w * model.n, model.n))
    for n in (2, 3, 2.0):
        check(g(Attrs(X, n)).w, X * n)
    assert g.versions == 3
    with pytest.raises(lg.StaticArgumentError, match="the static fields of Attrs"):
        g(Attrs(X, object()))  # type: ignore[arg-type]
    totals = lg.fori_loop(0, 3, lambda _, m: Attrs(m.w * m.n, m.n), Attrs(lg.asarray(X), 2))
    check(totals.w, 8 * X)
    assert lg.compile(lambda x, s: x + s.n, static_argnums=1)(1.0, Attrs(None, 2)).item() == 3.0


BAD: list[tuple[type[Exception], Any]] = [
    (lg.StructureError, lambda: lg.tree.map(lambda *x: x, [1, 2], [1])),
    (lg.StructureError, lambda: lg.tree.map(lambda *x: x, {"a": 1}, {"b": 1})),
    (lg.StructureError, lambda: lg.tree.unflatten(lg.tree.structure([1, 2]), [1])),
    (lg.StructureError, lambda: lg.tree.broadcast([1], [1, 2])),
    (lg.StructureError, lambda: lg.tree.stack([])),
    (lg.StructureError, lambda: lg.tree.stack([[1], (1,)])),
    (lg.StructureError, lambda: lg.tree.unstack(None)),
    (lg.StructureError, lambda: lg.tree.allclose([1.0], [1.0, 1.0])),
    (lg.StructureError, lambda: lg.tree.transpose(lg.tree.structure([0, 0]), None, [(1, 2), (1,)])),
    (lg.StructureError, lambda: lg.tree.transpose(lg.tree.structure([]), None, [])),
    (lg.ShapeError, lambda: lg.tree.unstack([np.zeros(2), np.zeros(3)])),
    (lg.ShapeError, lambda: lg.tree.unstack([1.0])),
    (lg.ShapeError, lambda: lg.tree.stack([[1.0], [np.zeros(2)]])),
    (lg.ShapeError, lambda: lg.tree.allclose([1.0], [np.ones(2)])),
    (TypeError, lambda: lg.tree.map(3, [1])),
    (AttributeError, lambda: lg.tree.nothing),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_errors(case: int) -> None:
    error, call = BAD[case]
    with pytest.raises(error, match=r"expected|attribute"):
        call()
