"""Products against NumPy."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.nodes import Value
from tests.lazy.oracle import both, check, tensors

RNG = np.random.default_rng(0)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(
    ("a", "b"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)),
     ((5, 1, 2, 3), (6, 3, 4)), ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((5, 2, 3), (3,))],
)  # fmt: skip
def test_matmul(device: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    both("matmul", rand(*a), rand(*b))


def test_matmul_dtypes(device: str) -> None:
    both("matmul", np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2))
    both("matmul", rand(2, 3).astype(np.float32), rand(3, 2).astype(np.float32), rtol=1e-5)
    both("matmul", np.eye(2, dtype=bool), np.ones((2, 2), bool))
    x, y = tensors(rand(2, 2), rand(2))
    check(x @ y, x.numpy() @ y.numpy())
    check(x.numpy() @ y, x.numpy() @ y.numpy())


def test_matmul_refuses() -> None:
    for left, right, inner in (((2, 3), (2, 3), 3), ((4,), (3, 3), 4), ((2, 3), (2,), 3)):
        said = f"expected {inner} rows on the right, got {left} @ {right}"  # as they were given
        with pytest.raises(lg.ShapeError, match=re.escape(said)):
            lg.ones(left) @ lg.ones(right)
    with pytest.raises(lg.ShapeError, match="dimension"):
        lg.matmul(lg.asarray(1.0), lg.ones(2))


def test_products(device: str) -> None:
    both("dot", rand(3), rand(3))
    both("dot", rand(2, 3), rand(4, 3, 2))
    both("inner", rand(2, 3), rand(4, 3))
    both("outer", rand(2), rand(3))
    both("vecdot", rand(4, 3), rand(4, 3))
    both("cross", rand(4, 3), rand(4, 3))
    both("tensordot", rand(2, 3, 4), rand(3, 4, 5), axes=2)
    both("tensordot", rand(2, 3, 4), rand(4, 2, 5), axes=([0, 2], [1, 0]))
    both("trace", rand(3, 4), offset=1)
    check(lg.vector_norm(lg.asarray([[3.0, 4.0]]), axis=1), [5.0])


@pytest.mark.parametrize("k", [-2, -1, 0, 1, 2])
def test_diagonals(device: str, k: int) -> None:
    both("diag", rand(3), k=k)
    both("diag", rand(3, 4), k=k)
    x = np.arange(24.0).reshape(2, 3, 4)
    check(lg.linalg.diagonal(lg.asarray(x), offset=k), np.diagonal(x, k, 1, 2))
    check(lg.linalg.trace(lg.asarray(x), offset=k), np.trace(x, k, 1, 2))


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_diagonals_lie_over_the_first_two_axes_as_in_numpy(device: str, k: int) -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    both("diagonal", x, offset=k)
    both("trace", x, offset=k)
    both("diagonal", x, offset=k, axis1=2, axis2=0)
    check(lg.asarray(x).diagonal(k), x.diagonal(k))
    check(lg.asarray(x).trace(k), x.trace(k))


@pytest.mark.parametrize(
    ("text", "shapes"),
    [("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("i,i->", [(3,), (3,)]), ("ij->ji", [(2, 3)]),
     ("ij->", [(2, 3)]), ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
     ("i,j->ij", [(2,), (3,)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("ijk,k->ij", [(2, 3, 4), (4,)]),
     ("ab,ab->ab", [(2, 3), (2, 3)]), ("ij,kj->", [(2, 3), (4, 3)]), ("iij,j->i", [(2, 2, 3), (3,)]),
     ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]), ("...ij,jk", [(6, 5, 2, 3), (3, 4)]), ("...", [(2, 3)]),
     ("i...->...i", [(2, 3, 4)]), ("...i,...i->...", [(5, 1, 3), (4, 3)]), ("...i,...i", [(1, 3), (6, 4, 3)]),
     ("i...j,j->i...", [(2, 5, 6, 3), (3,)]), ("...ii->...i", [(4, 3, 3)]), ("...,...->...", [(1, 3), (1, 3)]),
     ("...i->...", [(3,)]), ("a...b,c...b,...->ca", [(2, 3), (4, 3), ()]), ("...,i->i...", [(), (3,)])],
)  # fmt: skip
def test_einsum(device: str, text: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [rand(*s) for s in shapes]
    check(lg.einsum(text, *tensors(*arrays)), np.einsum(text, *arrays))


def work_of(node_outputs: list[Value]) -> int:
    """Multiplications in the products that a graph has."""
    seen: set[Value] = set()
    pending, work = list(node_outputs), 0
    while pending:
        value = pending.pop()
        if value in seen or value.node is None:
            continue
        seen.add(value)
        if value.node.op == "matmul":
            work += prod(value.shape) * value.node.operands[0].shape[-1]
        pending.extend(value.node.operands)
    return work


@pytest.mark.parametrize(
    ("text", "shapes", "most"),
    [
        ("ij,jk,kl,l->i", [(40, 40), (40, 40), (40, 40), (40,)], 3 * 1600),
        ("i,ij,jk,kl->l", [(40,), (40, 40), (40, 40), (40, 40)], 3 * 1600),
        ("ij,jk,kl->il", [(2, 50), (50, 50), (50, 3)], 2 * 2500 + 300),
        ("ab,bc,cd,de,ef,fg->g", [(9, 9)] * 6, 5 * 729),
    ],
)
def test_einsum_contracts_what_leaves_the_least_to_do(text: str, shapes: list[tuple[int, ...]], most: int) -> None:
    arrays = [np.random.default_rng(k).normal(size=shape) for k, shape in enumerate(shapes)]
    traced = lg.einsum(text, *tensors(*arrays))
    assert 0 < work_of([traced._value]) <= most
    check(traced, np.einsum(text, *arrays))


@pytest.mark.parametrize(("text", "shapes"), [("bik,bjk->jbik", [(2, 3, 4), (2, 5, 4)]), ("ji,i->ij", [(3, 2), (2,)])])
def test_einsum_of_which_nothing_is_summed_is_a_product_of_elements(text: str, shapes: list[tuple[int, ...]]) -> None:
    for draw in (rand, lambda *s: rand(*s) + 1j * rand(*s)):
        arrays = [draw(*shape) for shape in shapes]
        traced = lg.einsum(text, *tensors(*arrays))
        assert work_of([traced._value]) == 0
        check(traced, np.einsum(text, *arrays))


@pytest.mark.parametrize("text", ["bi,bj,ijk->bk", "ij,ij,ij->", "i,j,k->kji", "ii,ij,jj->i", "...i,ij,j...->..."])
def test_gradients_of_einsums_of_three(text: str) -> None:
    shapes = {"bi,bj,ijk->bk": [(2, 3), (2, 4), (3, 4, 5)], "...i,ij,j...->...": [(3,), (3, 3), (3,)]}.get(text)
    shapes = shapes or [(3,) * len(labels) for labels in text.partition("->")[0].split(",")]
    arrays = [np.random.default_rng(k).normal(size=shape) for k, shape in enumerate(shapes)]
    slopes = lg.grad(lambda *xs: lg.sum(lg.sin(lg.einsum(text, *xs))), argnums=(0, 1, 2))(*tensors(*arrays))
    for k, slope in enumerate(slopes):
        direction = np.random.default_rng(10 + k).normal(size=arrays[k].shape)
        moved = [[a + s * 1e-6 * direction if i == k else a for i, a in enumerate(arrays)] for s in (1, -1)]
        up, down = (np.sum(np.sin(np.einsum(text, *arrays))) for arrays in moved)
        np.testing.assert_allclose(np.sum(np.asarray(slope) * direction), (up - down) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("text", "count"),
    [("ij,jk->ik", 1), ("ij->k", 1), ("i->ii", 1), ("ij,i", 2), ("...i->i", 1), ("...ijk->...", 1), ("......", 1)],
)
def test_einsum_refuses(text: str, count: int) -> None:
    arrays = [lg.ones((2, 3)), lg.ones(4)][:count]
    with pytest.raises(lg.ShapeError):
        lg.einsum(text, *arrays)


def test_einsum_refuses_a_diagonal_of_unequal_extents() -> None:
    with pytest.raises(lg.ShapeError, match="one extent for 'i', got 2 and 3"):
        lg.einsum("ii->i", lg.zeros((2, 3)))


def test_cross_products_of_vectors_in_a_plane(device: str) -> None:
    """They are those of vectors in space whose third part is 0; NumPy 2.5 refuses them."""

    def in_space(v: np.ndarray) -> np.ndarray:
        return np.concatenate([v, np.zeros((*v.shape[:-1], 3 - v.shape[-1]))], -1)

    for x, y in ((rand(4, 2), rand(4, 3)), (rand(5, 1, 3), rand(4, 2)), (rand(2), rand(2)), (rand(0, 2), rand(0, 2))):
        expected = np.cross(in_space(x), in_space(y))
        check(lg.cross(*tensors(x, y)), expected if 3 in (x.shape[-1], y.shape[-1]) else expected[..., 2])


@pytest.mark.parametrize(
    ("a", "b", "axis"),
    [
        ((2, 3, 3), (3, 3), 1), ((2, 2, 3), (2, 3), 0), ((2, 3, 4), (3, 4), -2), ((3,), (2, 4, 3), -1),
        ((4, 1, 3), (4, 2, 3), 0),
    ],
)  # fmt: skip
def test_the_axis_of_an_inner_product_is_that_of_each_operand(device: str, a: Any, b: Any, axis: int) -> None:
    """As of NumPy's generalised ufuncs: counted in each, before the other axes broadcast."""
    both("vecdot", rand(*a), rand(*b), axis=axis)
    with pytest.raises(lg.AxisError, match="axis from -1 to 0"):
        lg.vecdot(lg.ones((3, 3)), lg.ones(3), axis=1)
