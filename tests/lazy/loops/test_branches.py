"""cond and switch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check


@pytest.mark.parametrize("value", [1.0, -1.0])
def test_scalar_predicate(device: str, value: float) -> None:
    x = lg.asarray(value)
    result = lg.cond(x > 0, lambda v, k: {"y": v * k}, lambda v, k: {"y": v - k}, x, 3.0)
    assert result["y"].item() == (value * 3 if value > 0 else value - 3)


def test_python_predicate_decides_now() -> None:
    calls = []
    result = lg.cond(True, lambda: calls.append("t") or 1, lambda: calls.append("f") or 2)
    assert (result, calls) == (1, ["t"])
    assert lg.cond(np.bool_(False), lambda: 1, lambda: 2) == 2


def test_per_lane_predicate(device: str) -> None:
    x = lg.asarray([-1.0, 0.0, 4.0])
    check(lg.cond(x > 0, lambda v: lg.sqrt(v), lambda v: v * 2, x), [-2.0, 0.0, 2.0])
    check(lg.cond(x > 0, lambda: 1, lambda: 2.5), [2.5, 2.5, 1.0])
    vectors = lg.ones((3, 2))
    check(lg.cond(x > 0, lambda v: v * 2, lambda v: v, vectors), [[1, 1], [1, 1], [2.0, 2.0]])
    check(lg.cond(x > 0, lambda v: v, lambda v: v[:, 0], vectors[:, :1])[:, 0], [1.0, 1.0, 1.0])


def test_accumulators_in_branches(device: str) -> None:
    pred, place = lg.asarray([True, False, True]), lg.asarray([1, 1, 4])
    total = lg.cond(pred, lambda t: t.at[place].add(1.0), lambda t: t, lg.zeros(5))
    assert total.tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize(("index", "expected"), [(-7, 10), (0, 10), (1, 20), (2, 30), (9, 30)])
def test_switch_clamps(device: str, index: int, expected: int) -> None:
    branches = [lambda v, k=k: v * k for k in (1, 2, 3)]
    assert lg.switch(lg.asarray(index), branches, 10).item() == expected
    assert lg.switch(index, branches, 10) == expected


def test_switch_per_lane(device: str) -> None:
    index = lg.asarray(np.array([0, 1, 2, 2], np.uint8))
    x = lg.arange(4.0)
    assert lg.switch(index, [lambda v: v, lambda v: -v, lambda v: v * v], x).tolist() == [0, -1, 4, 9]


def test_weak_results_give_way(device: str) -> None:
    x = lg.ones(2, dtype=lg.float32)
    assert lg.cond(x.sum() > 0, lambda: x[0], lambda: 0).dtype is lg.float32
    assert lg.cond(x.sum() > 0, lambda: 1, lambda: 0.5).dtype is lg.float64


def test_untaken_branch_leaves_no_nan(device: str) -> None:
    x = lg.asarray([0.0, 2.0])
    g = lg.grad(lambda v: lg.cond(v > 0, lambda w: 1 / w, lambda w: w * 0, v).sum())(x)
    check(g, [0.0, -0.25])


def test_mismatches_name_the_leaf() -> None:
    pred = lg.asarray(True)
    with pytest.raises(lg.ShapeError, match=r"result\[1\] of type float64\[2\], as true_fun returns, got float64\[3\]"):
        lg.cond(pred, lambda: (1, lg.ones(2)), lambda: (1, lg.ones(3)))
    with pytest.raises(lg.DTypeError, match=r"result\['a'\]"):
        lg.cond(pred, lambda: {"a": lg.ones(2)}, lambda: {"a": lg.ones(2, dtype=lg.float32)})
    with pytest.raises(lg.StructureError, match="structure"):
        lg.cond(pred, lambda: (1, 2), lambda: 1)
    with pytest.raises(lg.ShapeError, match="lanes"):
        lg.cond(lg.asarray([True, False]), lambda v: v, lambda v: v * 2, lg.ones(3))


def test_predicates_that_are_none() -> None:
    with pytest.raises(lg.DTypeError, match="bool"):
        lg.cond(lg.asarray(0.5), lambda: 1, lambda: 2)
    with pytest.raises(lg.DTypeError, match="integer"):
        lg.switch(lg.asarray(0.5), [lambda: 1])
    with pytest.raises(ValueError, match="at least one"):
        lg.switch(lg.asarray(0), [])


@pytest.mark.parametrize("known", [True, False])
def test_sides_that_are_no_functions(known: bool) -> None:
    which = 1 if known else lg.asarray(1)
    with pytest.raises(TypeError, match=r"cond false_fun: expected a function, got 2\.0"):
        lg.cond(which if known else which > 0, lambda: 1.0, 2.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"switch branches\[1\]: expected a function"):
        lg.switch(which, [lambda: 1.0, 2.0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="switch: expected a list or tuple of functions, got 3"):
        lg.switch(which, 3)  # type: ignore[arg-type]


def test_branches_in_loops(device: str) -> None:
    def body(i: Any, v: Any) -> Any:
        return lg.cond(i % 2 == 0, lambda w: w + i, lambda w: w * 2, v)

    assert lg.fori_loop(0, 5, body, 1.0).item() == ((1 * 2) + 2) * 2 + 4


def test_numbers_of_a_branch_that_is_known_are_tensors(device: str) -> None:
    """As those of one that data choose: weak, so that they give way."""
    for known in (lg.cond(True, lambda: 1.0, lambda: 2.0), lg.switch(1, [lambda: 2.0, lambda: 1.0])):
        assert isinstance(known, lg.Tensor)
        assert float(known) == 1.0
        assert (known * lg.ones(1, dtype=lg.float32)).dtype == lg.float32
