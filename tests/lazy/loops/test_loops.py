"""Loops: carries, lanes, bounds, errors."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass(frozen=True)
class State:
    time: Any
    place: Any


def test_scalar_while(device: str) -> None:
    assert lg.while_loop(lambda v: v < 10, lambda v: v * 2, 1).item() == 16
    assert lg.while_loop(lambda v: v < 10, lambda v: v * 2, 20.0).item() == 20


def test_each_lane_stops_by_itself(device: str) -> None:
    x = lg.asarray([0, 1, 2, 3])
    assert lg.while_loop(lambda v: v < 3, lambda v: v + 2, x).tolist() == [4, 3, 4, 3]


@pytest.mark.parametrize(
    "tree",
    [lambda a, b: (a, b), lambda a, b: [a, {"x": b}], lambda a, b: {"b": b, "a": a}, Pair, State,
     lambda a, b: (a, None, (), State(b, []))],
)  # fmt: skip
def test_trees(device: str, tree: Any) -> None:
    def read(s: Any) -> tuple[Any, Any]:
        found = []

        def walk(t: Any) -> None:
            if isinstance(t, dict):
                for key in sorted(t):
                    walk(t[key])
            elif dataclasses.is_dataclass(t):
                for f in dataclasses.fields(t):
                    walk(getattr(t, f.name))
            elif isinstance(t, tuple | list):
                for item in t:
                    walk(item)
            elif t is not None:
                found.append(t)

        walk(s)
        return found[0], found[1]

    result = lg.while_loop(
        lambda s: read(s)[0] < 5, lambda s: tree(read(s)[0] + 1, read(s)[1] * 2), tree(0, lg.ones(2))
    )
    assert type(result) is type(tree(0, 0))
    assert read(result)[0].item() == 5
    assert read(result)[1].tolist() == [32, 32]


def test_python_numbers_join_the_dtype_of_the_body(device: str) -> None:
    x = lg.ones(2, dtype=lg.float32)
    total, count = lg.fori_loop(0, 3, lambda _, c: (c[0] * 0.5 + x, c[1] + 1), (0.0, 0))
    assert total.dtype is lg.float32
    assert total.shape == (2,)
    assert count.dtype is lg.int64
    check(total, np.full(2, 1.75, np.float32))
    assert lg.fori_loop(0, 3, lambda _, v: v + 0.5, 0).dtype is lg.float64
    swapped = lg.fori_loop(0, 3, lambda _, c: (c[1], c[0] + x[0]), (0.0, 1.0))
    assert [s.dtype for s in swapped] == [lg.float32, lg.float32]


def test_index_is_weak_between_python_bounds(device: str) -> None:
    x = lg.ones(3, dtype=lg.float32)
    assert lg.fori_loop(0, 4, lambda i, v: v + i, x).dtype is lg.float32
    seen = []
    n = lg.asarray(np.array(3, np.int32))
    lg.fori_loop(0, n, lambda i, v: seen.append(i.dtype) or v, x)
    assert seen[0] is lg.int32


BOUNDS = [
    ("int8", -100, 100), ("int8", 127, 127), ("uint8", 250, 255), ("int16", -3, 2), ("int32", 2**31 - 3, 2**31 - 1),
    ("int32", -(2**31), -(2**31) + 2), ("uint32", 2**32 - 2, 2**32 - 1), ("int64", -(2**62), -(2**62) + 3),
    ("int64", 2**63 - 3, 2**63 - 1), ("uint64", 2**64 - 4, 2**64 - 1), ("int64", 5, 2), ("uint8", 5, 2),
    ("int64", 2**63 - 1, -(2**63)),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "low", "high"), BOUNDS)
@pytest.mark.parametrize("lower_is_python", [True, False])
def test_bounds_of_every_integer_dtype(device: str, dtype: str, low: int, high: int, lower_is_python: bool) -> None:
    lower: Any = low if lower_is_python else lg.asarray(np.array(low, dtype))
    upper = lg.asarray(np.array(high, dtype))
    trips, last = lg.fori_loop(lower, upper, lambda i, c: (c[0] + 1, i), (0, lg.asarray(np.array(0, dtype))))
    assert trips.item() == max(high - low, 0)
    assert last.dtype.name == dtype
    assert last.item() == (high - 1 if high > low else 0)


def test_python_bound_outside_the_other_s_dtype(device: str) -> None:
    upper = lg.asarray(np.array(3, np.uint8))
    assert lg.fori_loop(-2, upper, lambda i, c: c + i, 0).item() == -2 - 1 + 0 + 1 + 2


def test_array_bounds(device: str) -> None:
    start, stop = lg.asarray([0, 3, 2, 5]), lg.asarray([3, 4, 2, 1])
    assert lg.fori_loop(start, stop, lambda i, v: v + i, 0).tolist() == [3, 3, 0, 0]
    assert lg.fori_loop(1, stop, lambda i, v: v + i, lg.zeros(4)).tolist() == [3, 6, 1, 0]
    assert lg.fori_loop(0, lg.zeros((0,), dtype=lg.int32), lambda _, v: v + 1.0, 0.0).shape == (0,)


@pytest.mark.parametrize("bound", [2.5, np.nan, lg.asarray([1.5]), lg.asarray(np.nan), "3"])
def test_float_bounds_are_refused(bound: Any) -> None:
    with pytest.raises(lg.DTypeError, match=r"integer bounds|numbers"):
        lg.fori_loop(0, bound, lambda _, v: v, 0)


def test_float_bound_converted(device: str) -> None:
    a = lg.asarray([10.0, np.nan, -4.0])
    n = lg.floor(lg.sqrt(a)).astype(lg.int64)
    assert lg.fori_loop(0, n, lambda _, v: v + 1, 0).tolist() == [3, 0, 0]


def test_accumulators_are_shared_between_lanes(device: str) -> None:
    n = lg.asarray([0, 1, 3])
    hist, own = lg.fori_loop(0, n, lambda i, c: (c[0].at[i].add(1.0), c[1] + 1), (lg.zeros(5), 0))
    assert hist.tolist() == [2, 1, 1, 0, 0]
    assert own.tolist() == [0, 1, 3]
    hist = lg.fori_loop(0, n, lambda i, h: h.at[i].add(1.0), lg.zeros(3))  # as many bins as lanes
    assert hist.tolist() == [2, 1, 1]


def test_scalars_are_stretched_to_the_lanes(device: str) -> None:
    n, x = lg.asarray([0, 1, 3]), lg.asarray([1.0, 10.0, 100.0])
    assert lg.fori_loop(0, n, lambda _, v: v + x, lg.asarray(0.0)).tolist() == [0, 10, 300]
    assert lg.fori_loop(0, n, lambda _, v: v + 1, lg.asarray(0.0)).tolist() == [0, 1, 3]
    grown, trips = lg.while_loop(lambda c: c[0] < 50, lambda c: (c[0] * 2, c[1] + 1), (x, lg.asarray(0)))
    assert grown.tolist() == [64, 80, 100]
    assert trips.tolist() == [6, 3, 0]


def test_each_lane_may_write_its_own_row(device: str) -> None:
    n = lg.asarray([0, 1, 3])
    lane = lg.arange(3)
    rows = lg.fori_loop(0, n, lambda i, r: r.at[lane, i].set(i + 1.0), lg.zeros((3, 4)))
    assert rows.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 3, 0]]


def test_unchanged_carries_are_the_same_for_all_lanes(device: str) -> None:
    n = lg.asarray([0, 1, 3])
    table = lg.asarray([1.0, 10.0, 100.0, 1000.0])
    total, same = lg.fori_loop(0, n, lambda i, c: (c[0] + c[1][i], c[1]), (0.0, table))
    assert total.tolist() == [0, 1, 111]
    assert same.shape == (4,)


def test_carries_of_other_shapes_are_refused() -> None:
    n = lg.asarray([0, 1, 3])
    with pytest.raises(lg.ShapeError, match=r"carry\['v'\] with a shape that starts with the lanes \(3,\)"):
        lg.fori_loop(0, n, lambda _, c: {"v": c["v"] * 2}, {"v": lg.ones(7)})


def test_max_steps(device: str) -> None:
    assert lg.while_loop(lambda v: v < 5, lambda v: v + 1, 0, max_steps=5).item() == 5
    result = lg.while_loop(lambda v: v < 6, lambda v: v + 1, 0, max_steps=5, name="climb")
    with pytest.raises(lg.LoopLimitError, match="max_steps=5"):
        result.item()
    assert lg.while_loop(lambda v: v < 5, lambda v: v + 1, 0).item() == 5
    with pytest.raises(ValueError, match="max_steps"):
        lg.while_loop(lambda v: v < 5, lambda v: v + 1, 0, max_steps=-1)


def test_loops_that_cannot_end() -> None:
    for cond in (lambda _: True, lambda _: lg.asarray(True), lambda _: lg.ones(2).all(), lambda _: lg.ones(2) > 0):
        with pytest.raises(lg.EndlessLoopError, match=r"become False(.|\n)*test_loops.py"):
            lg.while_loop(cond, lambda v: v + 1, lg.zeros(2))
    with pytest.raises(lg.EndlessLoopError, match="nothing the body changes"):
        lg.while_loop(lambda c: c[0] < 3, lambda c: (c[0], c[1] + 1), (lg.asarray(0), 0))


def test_loops_that_never_begin(device: str) -> None:
    assert lg.while_loop(lambda _: False, lambda c: c, ()) == ()
    assert lg.while_loop(lambda _: lg.asarray(False), lambda v: v + 1, lg.asarray(3)).item() == 3


def test_mismatches_name_the_leaf_and_the_line() -> None:
    cases: list[tuple[Any, Any, str]] = [
        ((lg.asarray(1), lg.asarray(2)), lambda c: (c[0], c[1] * 0.5), r"carry\[1\] of type int64\[\], got float64"),
        ({"x": lg.ones(3)}, lambda c: {"x": c["x"][:2]}, r"carry\['x'\] of type float64\[3\], got float64\[2\]"),
        (State(lg.ones(2), lg.ones(2)), lambda c: State(c.time.sum(), c.place), r"carry.time"),
    ]
    for init, body, text in cases:
        with pytest.raises((lg.DTypeError, lg.ShapeError), match=rf"while_loop body: expected {text}") as caught:
            lg.while_loop(lambda _: lg.any(lg.ones(1) < 0), body, init)
        assert "test_loops.py" in str(caught.value)
    with pytest.raises(lg.StructureError, match="structure"):
        lg.fori_loop(0, 3, lambda _, c: (c, c), 0.0)


def test_conditions_that_are_no_bool() -> None:
    with pytest.raises(lg.DTypeError, match="bool"):
        lg.while_loop(lambda v: v, lambda v: v - 1, 3)
    with pytest.raises(lg.DTypeError, match="one bool"):
        lg.while_loop(lambda v: (v > 0, v > 1), lambda v: v - 1, 3)
    with pytest.raises(lg.DTypeError, match="results"):
        lg.fori_loop(0, 3, lambda *_: "text", 0.0)


def test_exceptions_pass_and_leave_the_library_usable(device: str) -> None:
    def broken(v: Any) -> Any:
        raise KeyError("mine")

    for attempt in (
        lambda: lg.while_loop(broken, lambda v: v, 0.0),
        lambda: lg.while_loop(lambda v: v < 3, broken, 0.0),
        lambda: lg.fori_loop(0, 3, lambda _, v: lg.cond(v > 0, broken, lambda w: w, v), 0.0),
    ):
        with pytest.raises(KeyError, match="mine"):
            attempt()
    assert lg.fori_loop(0, 3, lambda _, v: v + 1, 0.0).item() == 3


def test_nested_loops_with_outer_bounds(device: str) -> None:
    def row(i: Any, total: Any) -> Any:
        return lg.fori_loop(0, i, lambda j, t: t + j, total)

    assert lg.fori_loop(0, 5, row, 0).item() == sum(j for i in range(5) for j in range(i))
    n = lg.asarray([1, 2, 5])
    assert lg.fori_loop(0, n, row, 0).tolist() == [0, 0, 10]


def test_scan(device: str) -> None:
    xs = np.arange(1.0, 6.0)
    last, rows = lg.scan(lambda c, x: (c + x, {"sum": c + x, "x": x}), 0.0, lg.asarray(xs))
    assert last.item() == 15
    check(rows["sum"], np.cumsum(xs))
    last, rows = lg.scan(lambda c, x: (c + x, c), 0.0, lg.asarray(xs), reverse=True)
    check(rows, np.cumsum(xs[::-1])[::-1] - xs)
    last, rows = lg.scan(lambda c, _: (c * 2, c), 1, None, length=4)
    assert (last.item(), rows.tolist()) == (16, [1, 2, 4, 8])
    last, rows = lg.scan(lambda c, x: (c, x[0] * x[1]), None, (lg.asarray(xs), lg.asarray(xs)))
    check(rows, xs * xs)
    for length in (0, -1):
        last, rows = lg.scan(lambda c, _: (c + 1, c), 5, None, length=length)
        assert (last.item(), rows.shape) == (5, (0,))


def test_scan_refuses() -> None:
    with pytest.raises(lg.ShapeError, match="one length"):
        lg.scan(lambda c, x: (c, x), 0.0, (lg.ones(3), lg.ones(4)))
    with pytest.raises(lg.ShapeError, match="none"):
        lg.scan(lambda c, x: (c, x), 0.0)
    with pytest.raises(lg.DTypeError, match=r"whole number as length, got 2\.5"):
        lg.scan(lambda c, _: (c, c), 0.0, None, length=2.5)  # type: ignore[arg-type]
    with pytest.raises(lg.DTypeError, match="pair"):
        lg.scan(lambda c, _: c, 0.0, lg.ones(3))
    with pytest.raises(lg.StructureError):
        lg.scan(lambda c, x: ((c, c), x), 0.0, lg.ones(3))


def test_captured_tensors(device: str) -> None:
    scale, table = lg.asarray(3.0), lg.arange(4.0)
    assert lg.fori_loop(0, 4, lambda i, v: v + table[i] * scale, 0.0).item() == 18


def test_a_scan_in_a_branch_of_lanes_hands_on_what_it_leaves_alone(device: str) -> None:
    """An array that isn't the lanes' own may pass through the scan and the branch, since neither changes it."""
    shared, x = lg.arange(3.0), lg.asarray([0.5, 1.0, 2.0, 3.0])

    def product(v: Any, c: Any) -> Any:
        return lg.scan(lambda s, y: ((s[0] * y, s[1]), y), (v, c), lg.asarray([2.0, 3.0]))[0]

    v, c = lg.cond(x < 1.5, product, lambda v, c: (v, c), x, shared)
    np.testing.assert_array_equal(np.asarray(v), [3.0, 6.0, 2.0, 3.0])
    np.testing.assert_array_equal(np.asarray(c), [0.0, 1.0, 2.0])


@pytest.mark.parametrize("choose", ["cond", "checkpoint"])
def test_lanes_that_are_done_add_nothing_behind_a_branch_that_all_lanes_share(device: str, choose: str) -> None:
    bucket, trips, x = lg.asarray([0, 1, 2, 1]), lg.asarray([2, 0, 3, 1]), lg.asarray([0.5, 1.0, 2.0, 4.0])
    yes = lg.asarray(True)

    def counts(x: Any) -> Any:
        def once(c: Any) -> Any:
            return c.at[bucket].add(x)

        first = lg.checkpoint(once) if choose == "checkpoint" else lambda c: lg.cond(yes, once, lambda c: c, c)
        return lg.fori_loop(0, trips, lambda _, c: first(c).at[bucket].add(x), lg.zeros((3,)))

    with lg.default_device(device):
        value, tangent = lg.jvp(counts, (x,), (x,))
    np.testing.assert_array_equal(np.asarray(value), [2.0, 8.0, 12.0])
    np.testing.assert_array_equal(np.asarray(tangent), [2.0, 8.0, 12.0])


def test_the_line_that_promoted_a_carry() -> None:
    start, wide = lg.asarray(np.ones(3, np.float32)), lg.ones(3)

    def body(_: Any, v: Any) -> Any:
        v = v * 2
        v = v * wide  # this one
        return lg.sin(v) + 1

    message = r"float32\[3\], got float64\[3\];(.|\n)*it became float64\n.*\n.*# this one"
    with pytest.raises(lg.DTypeError, match=message):
        lg.fori_loop(0, 3, body, start)
    with pytest.raises(lg.DTypeError, match=r"it became float64\n(.|\n)*# half"):
        lg.while_loop(
            lambda c: c < 3,
            lambda c: c + 0.5,  # half
            lg.asarray(0),
        )
    with pytest.raises(lg.ShapeError, match=r"it became float32\[6\]\n(.|\n)*# twice"):
        lg.scan(
            lambda c, _: (lg.concat([c, c]), c),  # twice
            start,
            length=3,
        )
