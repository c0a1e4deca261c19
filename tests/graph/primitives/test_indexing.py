from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.errors import DTypeError, ShapeError

TABLE = np.arange(12.0).reshape(3, 4)


def test_gather_clamps_each_index_to_its_dim(apply):
    i, j = np.array([[0, -1], [2, 9]]), np.array([[3, 0], [-5, 77]])
    np.testing.assert_array_equal(apply("gather", TABLE, i, j), TABLE[np.clip(i, 0, 2), np.clip(j, 0, 3)])
    np.testing.assert_array_equal(apply("gather", TABLE, i), TABLE[np.clip(i, 0, 2)])
    np.testing.assert_array_equal(apply("gather", TABLE, np.array(1)), TABLE[1])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_gather_with_any_integer_dtype(apply, dtype):
    i = np.array([0, 2, np.iinfo(dtype).max], dtype)
    np.testing.assert_array_equal(apply("gather", TABLE, i), TABLE[[0, 2, 2]])


def test_gather_of_nothing_and_from_nothing(apply):
    assert apply("gather", TABLE, np.zeros((0, 2), np.int64)).shape == (0, 2, 4)
    np.testing.assert_array_equal(apply("gather", np.zeros((0, 2)), np.array([0, 5])), np.zeros((2, 2)))


def test_scatter_combines_duplicates_in_order_and_drops_what_is_out_of_range(apply):
    x = np.array([1.0, 2.0, 3.0])
    i = np.array([[0, 2, 0], [-1, 3, 2]])
    u = np.array([[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]])
    expected = {
        "add": [41, 2, 83], "mul": [300, 2, 3600], "min": [1, 2, 3], "max": [30, 2, 60], "set": [30, 2, 60],
    }  # fmt: skip
    for kind, values in expected.items():
        np.testing.assert_array_equal(apply("scatter", x, i, u, kind=kind), values)
    np.testing.assert_array_equal(x, [1, 2, 3])


def test_scatter_of_rows_and_of_points(apply):
    i, j = np.array([0, 0, 2]), np.array([1, 1, 9])
    rows = np.ones((3, 4))
    expected = TABLE.copy()
    np.add.at(expected, i, rows)
    np.testing.assert_array_equal(apply("scatter", TABLE, i, rows, kind="add"), expected)
    expected = TABLE.copy()
    expected[0, 1] += 2
    np.testing.assert_array_equal(apply("scatter", TABLE, i, j, np.ones(3), kind="add"), expected)
    np.testing.assert_array_equal(apply("scatter", TABLE, np.array(1), rows[0], kind="set")[1], rows[0])


def test_scatter_edges(apply):
    assert apply("scatter", np.zeros((0,)), np.array([0, 1]), np.ones(2), kind="add").shape == (0,)
    np.testing.assert_array_equal(
        apply("scatter", TABLE, np.zeros((0,), np.int32), np.zeros((0, 4)), kind="set"), TABLE
    )
    assert apply("scatter", np.array([True]), np.array([0]), np.array([False]), kind="set").tolist() == [False]
    huge = np.array([2**64 - 1, 2**63, 0], np.uint64)
    assert apply("scatter", np.zeros(2), huge, np.ones(3), kind="add").tolist() == [1, 0]
    got = apply("scatter", np.array([1.0, 2.0]), np.array([0, 1]), np.array([np.nan, 5.0]), kind="min")
    np.testing.assert_array_equal(got, [np.nan, 2.0])


def test_refusals(apply):
    i = np.array([0, 1])
    with pytest.raises(DTypeError, match="indices of one integer dtype"):
        apply("gather", TABLE, np.array([0.0]))
    with pytest.raises(DTypeError, match="indices of one integer dtype"):
        apply("gather", TABLE, i, i.astype(np.int32))
    with pytest.raises(ShapeError, match="indices of one shape"):
        apply("gather", TABLE, i, np.array([0]))
    with pytest.raises(ShapeError, match="between 1 and 2 indices"):
        apply("gather", TABLE, i, i, i)
    with pytest.raises(ShapeError, match=r"updates of type float64\[2,4\], got float64\[2\]"):
        apply("scatter", TABLE, i, np.ones(2), kind="add")
    with pytest.raises(DTypeError, match=r"updates of type float64\[2,4\], got float32"):
        apply("scatter", TABLE, i, np.ones((2, 4), np.float32), kind="add")
    with pytest.raises(DTypeError, match="a kind of add, mul"):
        apply("scatter", TABLE, i, np.ones((2, 4)), kind="sub")
    with pytest.raises(DTypeError, match="scatter add: expected"):
        apply("scatter", TABLE > 0, i, np.ones((2, 4)) > 0, kind="add")
