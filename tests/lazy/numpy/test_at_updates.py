"""`x.at[index]` and `x[index] = v` against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.location import at, user_location
from loopgrad.graph.nodes import Noted
from loopgrad.graph.structure import noted_structure
from loopgrad.lazy.numpy.at_updates import row_set, update
from tests.lazy.numpy.test_indexing import CUBE, I, J, as_index
from tests.lazy.oracle import check

INDICES: list[Any] = [
    0, -1, (1, 2), (1, 2, 3), slice(1, 3), slice(None, None, -1), slice(3, 0, -2), slice(5, 1), slice(None, None, 2),
    (slice(None), slice(1, None, 2)), (..., 0), (0, ..., slice(None, None, -2)), None, ..., (), (slice(None), None, 1),
    I, (slice(None), J), (I, I), (I, slice(None), I), (slice(None), I, I), (I, 1), (1, I), (1, slice(None), I),
    (0, I, slice(1, 3)), (slice(None, None, 2), J, slice(None, None, -1)), (None, I), (I, None, I), [0, 2],
    (slice(0, 2), [1, 3], None, 2), (slice(1, None), slice(None), J), CUBE > 20,
]  # fmt: skip
KINDS: dict[str, Any] = {
    "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum, "subtract": np.subtract,
    "divide": np.divide,
}  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("scalar", [True, False])
def test_set(device: str, index: Any, scalar: bool) -> None:
    expected = CUBE.copy()
    values: Any = -1.0 if scalar else -1.0 - np.arange(CUBE[index].size).reshape(CUBE[index].shape)
    expected[index] = values
    made = lg.asarray(CUBE).at[as_index(index)].set(values)
    x = lg.asarray(CUBE)
    x[index] = values
    lg.eval([made, x])
    check(made, expected)
    check(x, expected)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_combine(device: str, index: Any) -> None:
    values = 0.5 + np.arange(CUBE[index].size).reshape(CUBE[index].shape)
    made = {kind: getattr(lg.asarray(CUBE).at[as_index(index)], kind)(values) for kind in KINDS}
    lg.eval(made)  # one program of all kinds
    for kind, function in KINDS.items():
        expected = CUBE.copy()
        function.at(expected, index, values)
        check(made[kind], expected)


def test_repeated_indices_combine(device: str) -> None:
    index = lg.asarray([0, 0, 2, 0])
    values = lg.asarray([1.0, 2.0, 3.0, 4.0])
    assert lg.zeros(3).at[index].add(values).tolist() == [7, 0, 3]
    assert lg.zeros(3).at[index].set(values).tolist() == [4, 0, 3]
    assert lg.zeros(3).at[index].max(values).tolist() == [4, 0, 3]
    assert lg.zeros(3).at[index].add(1).tolist() == [3, 0, 1]


def test_data_out_of_range_is_dropped(device: str) -> None:
    assert lg.zeros(3).at[lg.asarray([3, -4, -1])].add(1.0).tolist() == [0, 0, 1]


def test_rows_of_large_tensors_are_scattered(device: str) -> None:
    table = np.zeros((50, 4))
    x = lg.asarray(table)
    assert "scatter" in lg.to_text(x.at[7].set(1.0))
    table[7] = 1.0
    table[3, 2] = 5.0
    check(x.at[7].set(1.0).at[3, 2].add(5.0), table)


def test_masks(device: str) -> None:
    x = lg.asarray(CUBE)
    expected = CUBE.copy()
    expected[CUBE > 20] += 1
    check(x.at[x > 20].add(1), expected)
    check(lg.compile(lambda v: v.at[v > 20].add(1))(x), expected)
    rows = CUBE[:, 0, 0] > 10
    expected = CUBE.copy()
    expected[rows] = np.arange(5.0)
    check(x.at[lg.asarray(rows)].set(np.arange(5.0)), expected)


def test_get_apply_and_power(device: str) -> None:
    x = lg.asarray([1.0, 2.0, 3.0])
    assert x.at[1].get().item() == 2
    assert x.at[1:].power(2).tolist() == [1, 4, 9]
    assert x.at[0].apply(lg.negative).tolist() == [-1, 2, 3]


def test_assignment_leaves_others_alone(device: str) -> None:
    x = lg.zeros(3)
    y, doubled = x.copy(), x * 2
    x[0] = 1
    x[1:] += 5
    assert x.tolist() == [1, 5, 5]
    assert y.tolist() == [0, 0, 0]
    assert doubled.tolist() == [0, 0, 0]


def test_values_that_do_not_fit() -> None:
    with pytest.raises(lg.DTypeError, match="astype"):
        lg.zeros(3, dtype=lg.int32).at[0].set(1.5)
    with pytest.raises(lg.DTypeError):
        lg.zeros(3, dtype=lg.int32).at[0].add(lg.ones(()))
    with pytest.raises(lg.ShapeError):
        lg.zeros((3, 2)).at[0].set(lg.ones(3))
    with pytest.raises(lg.IndexRangeError):
        lg.zeros(3).at[3].set(1.0)
    assert lg.zeros(3, dtype=lg.float32).at[0].set(lg.ones(())).dtype is lg.float32


def test_outer_tensors_cannot_be_assigned_in_a_body() -> None:
    total = lg.zeros(3)

    def body(i: Any, v: Any) -> Any:
        total[i] = v
        return v

    with pytest.raises(lg.TracedValueError, match=r"carry it through the loop(.|\n)*test_at_updates.py"):
        lg.fori_loop(0, 3, body, 0.0)
    with lg.default_device("interpreter"):
        assert total.tolist() == [0, 0, 0]


def test_assignment_to_a_carry(device: str) -> None:
    def body(i: Any, v: Any) -> Any:
        v[i] = i * 2.0
        return v

    assert lg.fori_loop(0, 3, body, lg.zeros(4)).tolist() == [0, 2, 4, 0]


def test_values_of_a_lower_kind_become_elements():
    """NumPy's and JAX's assignments take integers for floats, wider ones and unsigned ones for integers."""
    for dtype, given in (("float32", "int64"), ("float16", "int32"), ("complex64", "int64"), ("int8", "uint8")):
        values, expected = np.array([3, 250], given), np.zeros(3, dtype)
        expected[[0, 2]] = values
        x = lg.zeros(3, dtype=dtype)
        x[np.array([0, 2])] = lg.asarray(values)
        np.testing.assert_array_equal(np.asarray(x), expected)
        np.testing.assert_array_equal(np.asarray(lg.zeros(3, dtype=dtype).at[::2].set(lg.asarray(values))), expected)
    with pytest.raises(lg.DTypeError, match="values that fit"):
        lg.zeros(3, dtype="int64").at[0].set(lg.asarray(0.5))


def test_integers_become_elements_of_masks():
    """True where they aren't 0, as in NumPy; floats don't, and nothing is added."""
    mask, expected = lg.asarray([True, False, True, False]), np.array([True, False, True, False])
    for x in (mask, expected):
        x[0], x[1] = 0, 5
        x[2:] = np.array([0, 256])
    np.testing.assert_array_equal(mask, expected)
    for kind, value in (("set", 0.5), ("add", 1)):
        with pytest.raises(lg.DTypeError, match="fit bool"):
            getattr(mask.at[0], kind)(value)


@pytest.mark.parametrize("places", [[0, 0, 3, 4, 0, 3], [[1, 1], [1, -1], [2, 9]], 2])
def test_complex_elements_are_multiplied_at_positions_that_are_data(places: Any) -> None:
    """Repeated positions multiply, others behind the end are dropped; the derivatives are those of differences."""
    rng = np.random.default_rng(0)
    at = np.asarray(places)
    x = rng.normal(size=(5, 2)) + 1j * rng.normal(size=(5, 2))
    values = rng.normal(size=(*at.shape, 2)) + 1j * rng.normal(size=(*at.shape, 2))
    expected = np.concatenate([x, np.ones((5, 2))])
    np.multiply.at(expected, np.where(at < 0, at + 5, at), values)

    def product(x: Any, values: Any) -> Any:
        return lg.asarray(x).at[lg.asarray(at)].multiply(values)

    np.testing.assert_allclose(product(x, values), expected[:5], rtol=1e-12)
    lg.testing.check_grads(lambda x, v: lg.sum(abs(product(x, v)) ** 2), (lg.asarray(x), lg.asarray(values)), order=1)


def test_rows_that_are_set_at_once_are_noted_as_other_updates_are() -> None:
    x, wide = lg.asarray(np.arange(90.0)), lg.asarray(np.arange(360.0).reshape(30, 3, 4))
    cases = [(x, (3,), ()), (x, (-1,), ()), (wide, (2,), (3, 4)), (wide, (-30, 2), (4,)), (wide, (1, 0, -4), ())]
    for tensor, places, shape in cases:
        row = lg.full(shape, 7.5) * 2.0
        with at(user_location()):  # words have the line
            noted = row_set(tensor._value, places, row)
            usual = update.__wrapped__("set", tensor, places, row)._value  # type: ignore[attr-defined]
        assert isinstance(noted, Noted)
        found, expected = noted_structure(noted), noted_structure(usual)
        assert found is not None
        assert expected is not None
        assert found[:3] == expected[:3]
    for tensor, places, values in [
        (x, (90,), lg.asarray(1.0) * 2.0), (x, (0, 0), lg.ones(())), (x, (3,), lg.ones(1)), (x, (3,), 1.0),
        (x, (3,), lg.ones((), dtype=lg.float32)), (wide, (2,), lg.ones((1, 4))), (lg.zeros((1, 90)), (0,), x),
        (lg.zeros(4), (1,), lg.ones(())),
    ]:  # fmt: skip
        assert row_set(tensor._value, places, values) is None


def test_recurrences_of_elements_and_rows_are_numpys() -> None:
    def script(xp: Any) -> list[Any]:
        v, w, rows = xp.zeros(150), xp.ones(100, dtype=np.int32), xp.ones((40, 3))
        v[0], ratio = 1.0, xp.asarray(0.5)
        for i in range(1, 150):
            v[i] = v[i - 1] * ratio + i
            v[-i] += v[i // 2]
        for i in range(2, 100):  # two that read each other
            w[i] = w[i - 1] + w[i - 2] % 7
            rows[i % 40] = rows[(i * 7) % 40] * 0.5 + v[i]
            rows[i % 40, 1] = w[i]
        flat = rows.reshape(-1)
        flat[5] = rows[0, 0]
        return [v, w, rows, flat]

    for found, expected in zip(script(lg), script(np), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    v = lg.zeros(100)
    for i in range(50):  # longer than an expression may be
        v[i] = v[i - 1] + 1.0
    with pytest.raises(lg.IndexRangeError):
        v[100] = v[0]
    with pytest.raises(lg.IndexRangeError):
        v[100]
    slope = lg.grad(lambda x: _grown(x)[99])(2.0)
    assert float(slope) == 99.0


def _grown(x: Any) -> Any:
    v = lg.zeros(100)
    for i in range(1, 100):
        v[i] = v[i - 1] + x
    return v
