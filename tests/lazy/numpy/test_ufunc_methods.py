"""`lg.add.reduce` and its like, and NumPy's ufuncs called with tensors, against NumPy's ufuncs called with arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

FLOATS = np.array([[0.5, 1.5, -2.0, 4.0], [2.5, -3.0, 0.25, 1.0], [1.0, 2.0, 3.0, 0.5]])
SHORT = np.array([[7, 2, 3], [5, 0, 6]], dtype=np.int8)
BOOLS = np.array([[True, False, True], [True, True, True]])
ARITHMETIC = ("add", "multiply", "subtract", "divide", "maximum", "minimum", "fmax", "hypot", "logaddexp")
OF_BOOLS = ("add", "multiply", "maximum", "logical_and", "logical_or", "logical_xor", "equal", "bitwise_xor")
CALLS: tuple[tuple[str, tuple[str, ...], Any], ...] = (
    *((call, ARITHMETIC, FLOATS) for call in (
        "f.reduce(x)", "f.reduce(x, 1)", "f.reduce(x, axis=-1, keepdims=True)", "f.reduce(x, initial=2.5)",
        "f.reduce(x, where=m, initial=1.5)", "f.reduce(x[:1])", "f.reduce(x[0])", "f.reduce(x, axis=())",
        "f.accumulate(x)", "f.accumulate(x, 1)", "f.accumulate(x[:, :1], axis=-1)", "f.accumulate(x[:0])",
        "f.reduceat(x, [0, 2, 1, 1])", "f.reduceat(x, [3, 0, 2], axis=1)", "f.reduceat(x[0], [1])",
        "f.outer(x[0], x)", "f.outer(x, 2.0)", "f.reduceat(x, i[:0])",
    )),
    *((call, ("add", "multiply", "maximum", "logaddexp", "hypot", "logical_or"), FLOATS) for call in (
        "f.reduce(x, axis=None)", "f.reduce(x, axis=(0, 1))",
    )),
    *((call, ("add", "logaddexp", "hypot", "logical_and"), FLOATS)
      for call in ("f.reduce(x[:0])", "f.reduce(x, where=m)")),
    *((call, ("add", "multiply", "subtract", "maximum", "gcd", "bitwise_or", "logical_and"), SHORT) for call in (
        "f.reduce(x)", "f.accumulate(x, axis=1)", "f.reduceat(x, [0, 1], axis=1)", "f.outer(x[0], x[1])",
    )),
    ("f.reduce(x, dtype='int32')", ("add", "multiply", "subtract", "maximum"), SHORT),
    *((call, OF_BOOLS, BOOLS) for call in ("f.reduce(x)", "f.accumulate(x, 1)", "f.reduceat(x, [0, 1], 1)")),
)  # fmt: skip
UPDATES = (
    ("add", (slice(None), [0, 1, 1]), 2.0), ("subtract", ([0, 0, 2],), 1.5), ("multiply", [1, 1], 3.0),
    ("divide", ([0, 0], [1, 1]), [2.0, 4.0]), ("maximum", (Ellipsis, [3, 3]), 0.75), ("power", ([0, 0], 1), 2.0),
    ("negative", ([0, 0, 1],)), ("add", (1, slice(1, 3)), [1.0, 2.0]), ("hypot", FLOATS > 1.0, 1.0),
    ("add", [-1, 0], FLOATS[:2]), ("square", 2), ("minimum", ([], []), 1.0),
)  # fmt: skip


def test_methods_are_numpys() -> None:
    mask, rows = FLOATS > 0.3, np.arange(3)
    for call, names, data in CALLS:
        for name in names:
            expected = eval(call, {"f": getattr(np, name), "x": data, "m": mask, "i": rows})
            for f in (getattr(lg, name), getattr(np, name)):
                got = eval(call, {"f": f, "x": lg.asarray(data), "m": lg.asarray(mask), "i": rows})
                assert isinstance(got, lg.Tensor), (call, name)
                assert (got.dtype, got.shape) == (np.asarray(expected).dtype, np.shape(expected)), (call, name)
                np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-14, err_msg=f"{name} {call}")


BITS = np.random.default_rng(0).integers(0, 2**8, (3, 77, 130), dtype=np.uint8)
IN_ANY_ORDER = (
    *((name, x) for name in ("bitwise_xor", "bitwise_and", "bitwise_or") for x in (BITS, BITS > 128)),
    *(("bitwise_xor", BITS.astype(dtype)) for dtype in (np.int16, np.uint32, np.int64)), ("logical_xor", BITS),
)  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize("case", range(len(IN_ANY_ORDER)))
def test_bits_are_put_together_in_any_order(case: int, device: str) -> None:
    """Long axes in stretches, what is left over by itself."""
    name, x = IN_ANY_ORDER[case]
    ours, theirs = getattr(lg, name).reduce, getattr(np, name).reduce
    for options in ({"axis": 0}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": None}, {"axis": (0, 2)}):
        check(ours(lg.asarray(x), **options), theirs(x, **options))
    check(ours(lg.asarray(x[:, :0]), axis=1), theirs(x[:, :0], axis=1))
    check(ours(lg.asarray(x), axis=2, where=lg.asarray(BITS > 9)), theirs(x, axis=2, where=BITS > 9))
    check(ours(lg.asarray(x), axis=2, initial=x[0, 0, 0]), theirs(x, axis=2, initial=x[0, 0, 0]))
    check(lg.vmap(ours)(lg.asarray(x)), theirs(x, axis=1))


@pytest.mark.parametrize("name", ["add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor"])
def test_what_reductions_begin_with_leaves_their_dtype(name: str) -> None:
    """Integers with a sign meet uint64 in floats, which have 53 bits; bools meet numbers in integers."""
    ours, theirs = getattr(lg, name).reduce, getattr(np, name).reduce
    large = np.array([2**63 + 1, 3], np.uint64)
    cases = ((large, np.int64(5)), (large, np.int8(-1)), (np.array([True, False, True]), 1), (BITS[0, 0], np.int64(3)))
    for x, initial in cases:
        check(ours(lg.asarray(x), initial=initial), theirs(x, initial=initial))
        check(ours(lg.asarray(x), initial=lg.asarray(initial)), theirs(x, initial=initial))


def test_lanes_put_long_rows_together() -> None:
    """A loop of as many trips as a stretch is long, not of one for each element."""
    graph = lg.compile(lambda x: lg.bitwise_xor.reduce(x)).text("graph", lg.asarray(BITS.reshape(-1)))
    assert max(int(n) for n in re.findall(r"value=(\d+)", graph)) < 512


def test_at_writes_to_the_tensor(device: str) -> None:
    for name, index, *values in UPDATES:
        expected, got = FLOATS.copy(), lg.asarray(FLOATS)
        row = got[1]
        getattr(np, name).at(expected, index, *values)
        getattr(lg, name).at(got, index, *values)
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-15, err_msg=name)
        check(row, expected[1])
    whole = lg.asarray(SHORT)
    np.add.at(whole, ([0, 0], [0, 0]), 100)  # wraps, as in NumPy
    assert whole[0, 0] == np.int8(np.int16(207) - 256)


def updated(x: lg.Tensor) -> lg.Tensor:
    y = x * 1.0
    lg.divide.at(y, [0, 0, 2], x[1:])
    return y


@pytest.mark.in_turns
@pytest.mark.usefixtures("formulas_alone")
@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: lg.sum(lg.divide.accumulate(x) * w), lambda x, _: lg.hypot.reduce(x) * lg.add.reduce(x),
        lambda x, w: lg.sum(lg.power.reduceat(x, [0, 3, 1, 2]) * w), lambda x, w: lg.sum(updated(x) * w),
        lambda x, w: lg.sum(lg.subtract.outer(x, w) ** 3), lambda x, w: lg.logaddexp.reduce(x, where=w > 0.7),
    ],
    ids=["accumulate", "reduce", "reduceat", "at", "outer", "where"],
)  # fmt: skip
def test_methods_are_differentiated(f: Any) -> None:
    weights = lg.asarray([1.0, 3.0, 0.5, 2.0])
    lg.testing.check_grads(lambda x: f(x, weights), (lg.asarray([1.5, 0.5, 2.0, 0.75]),), order=2)


def test_batches_of_segments() -> None:
    x = lg.asarray([1.5, 0.5, 2.0, 0.75])
    counts = lg.vmap(lambda i: lg.add.reduceat(x, i))(lg.asarray([[0, 2], [1, 3]]))
    check(counts, np.array([[2.0, 2.75], [2.5, 0.75]]))


def test_attributes_are_numpys() -> None:
    for name in ("add", "multiply", "maximum", "logaddexp", "sin", "logical_and", "bitwise_and", "arctan2"):
        ours, theirs = getattr(lg, name), getattr(np, name)
        for attribute in ("nin", "nout", "nargs", "identity"):
            assert getattr(ours, attribute) == getattr(theirs, attribute), (name, attribute)
    assert not hasattr(lg.erf, "reduce")
    assert repr(lg.add.reduce) == "<method 'reduce' of lg.add>"


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("f.sin.reduce(x)", ValueError), ("f.exp.outer(x, x)", ValueError),
        ("f.subtract.reduce(x, axis=None)", ValueError),
        ("f.subtract.reduce(x[:0])", ValueError), ("f.maximum.reduce(x, where=x > 0)", ValueError),
        ("f.less.reduce(x)", TypeError), ("f.subtract.reduce(x > 0)", TypeError),
        ("f.add.reduce(x, axis=2)", ValueError),
        ("f.add.reduceat(x, [0, 3])", IndexError), ("f.add.reduceat(x, [-1])", IndexError),
        ("f.add.reduceat(x, [[0]])", ValueError), ("f.add.at([1.0], 0, 1.0)", TypeError),
        ("f.add.at(x, 0)", ValueError),
        ("f.add.at(x, 9, 1.0)", IndexError), ("f.bitwise_and.reduce(x)", TypeError),
        ("f.negative.at(x, 0, 1.0)", ValueError),
        ("f.add.accumulate(x, axis=5)", ValueError),
    ],
)  # fmt: skip
def test_what_numpy_refuses_is_refused(call: str, error: type[Exception]) -> None:
    for namespace, x in ((np, FLOATS.copy()), (lg, lg.asarray(FLOATS))):
        with pytest.raises(error):
            eval(call, {"f": namespace, "x": x})
