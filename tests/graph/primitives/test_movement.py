from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph import ops
from loopgrad.graph import types as T
from loopgrad.graph.errors import DTypeError, ShapeError
from loopgrad.graph.types import TensorType

X = np.arange(24.0).reshape(2, 3, 4)


def test_const_splats_any_dtype(apply):
    for name, value in (("bool", True), ("int8", -3), ("uint64", 2**64 - 1), ("float32", 0.1), ("bfloat16", 1.5)):
        dtype = T.dtype_named(name)
        got = apply("const", value=value, type=TensorType((2, 2), dtype))
        np.testing.assert_array_equal(got, np.full((2, 2), value, dtype.np))


def test_literal_and_iota(apply):
    data = np.array([[True, False], [False, True]])
    got = apply("literal", data=data.tobytes(), type=TensorType((2, 2), T.bool_))
    np.testing.assert_array_equal(got, data)
    got = apply("iota", type=TensorType((2, 3), T.float32), axis=1)
    np.testing.assert_array_equal(got, [[0, 1, 2], [0, 1, 2]])
    assert apply("iota", type=TensorType((0,), T.int64), axis=0).shape == (0,)


def test_broadcast_places_and_stretches_dims(apply):
    x = np.array([[1.0], [2.0]])
    got = apply("broadcast", x, shape=(2, 5, 3), dims=(0, 2))
    np.testing.assert_array_equal(got, np.broadcast_to(x[:, None, :], (2, 5, 3)))
    np.testing.assert_array_equal(apply("broadcast", np.array(3.0), shape=(2, 0), dims=()), np.zeros((2, 0)))
    assert apply("broadcast", np.ones((1,)), shape=(0,), dims=(0,)).shape == (0,)


def test_reshape_and_transpose(apply):
    np.testing.assert_array_equal(apply("reshape", X, shape=(4, 6)), X.reshape(4, 6))
    np.testing.assert_array_equal(apply("transpose", X, perm=(2, 0, 1)), X.transpose(2, 0, 1))
    assert apply("reshape", np.zeros((0, 3)), shape=(5, 0)).shape == (5, 0)


@pytest.mark.parametrize(
    "at",
    [
        (slice(0, 5, 1), slice(2, 3, 1)),
        (slice(4, None, -1), slice(3, 0, -2)),
        (slice(4, 1, -2), slice(0, None, 3)),
        (slice(3, 3, 1), slice(0, 99, 1)),
        (slice(2, 4, -1), slice(0, None, -1)),
    ],
)
def test_slice_counts_as_numpy_does(apply, at):
    x = np.arange(20.0).reshape(5, 4)
    attrs = {"start": tuple(s.start for s in at), "stop": tuple(s.stop for s in at), "step": tuple(s.step for s in at)}
    np.testing.assert_array_equal(apply("slice", x, **attrs), x[at])


def test_pad_concat_flip(apply):
    x = np.arange(6.0).reshape(2, 3)
    got = apply("pad", x, np.array(9.0), low=(1, 0), high=(0, 2))
    np.testing.assert_array_equal(got, np.pad(x, ((1, 0), (0, 2)), constant_values=9))
    np.testing.assert_array_equal(apply("pad", np.zeros((0,)), np.array(2.0), low=(1,), high=(1,)), [2, 2])
    np.testing.assert_array_equal(apply("concat", x, x[:, :0], x, axis=1), np.concatenate([x, x], 1))
    np.testing.assert_array_equal(apply("flip", x, axes=(0, 1)), x[::-1, ::-1])


@pytest.mark.parametrize(
    ("op", "attrs", "message"),
    [
        ("broadcast", {"shape": (2, 3, 5), "dims": (0, 1, 2)}, "extents of 1 or those"),
        ("broadcast", {"shape": (2, 3, 4), "dims": (0, 2, 1)}, "increasing"),
        ("broadcast", {"shape": (2, 3, 4), "dims": (0, 1)}, "3 increasing dims"),
        ("broadcast", {"shape": (2, 3, 4), "dims": (0, 1, 3)}, "an axis in 0..2"),
        ("reshape", {"shape": (5, 5)}, "a shape of 24 elements"),
        ("reshape", {"shape": (-1, 24)}, "at least 0"),
        ("transpose", {"perm": (0, 1)}, "a permutation of 0..2"),
        ("slice", {"start": (0,), "stop": (1,), "step": (1,)}, "per dim"),
        ("slice", {"start": (0, 0, -1), "stop": (1, 1, 1), "step": (1, 1, 1)}, "start >= 0"),
        ("slice", {"start": (0, 0, 0), "stop": (1, 1, 1), "step": (1, 1, 0)}, "step != 0"),
        ("concat", {"axis": 3}, "an axis in 0..2"),
        ("flip", {"axes": (1, 1)}, "each axis once"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(apply, op, attrs, message):
    with pytest.raises(ShapeError, match=message):
        apply(op, X, **attrs)


def test_operands_that_do_not_fit_are_refused(apply):
    with pytest.raises(ShapeError, match="equal extents except along axis 0"):
        apply("concat", np.ones((2, 3)), np.ones((2, 4)), axis=0)
    with pytest.raises(DTypeError, match="one dtype"):
        apply("concat", np.ones(2), np.ones(2, np.float32), axis=0)
    with pytest.raises(DTypeError, match="a float64 scalar to pad with"):
        apply("pad", np.ones(2), np.ones(1), low=(1,), high=(0,))
    with pytest.raises(ShapeError, match="of at least 0"):
        apply("pad", np.ones(2), np.array(1.0), low=(-1,), high=(0,))


@pytest.mark.parametrize("shape", [(2**40, 2**30), (2**62,), (0, 2**40, 2**40)])
def test_sizes_beyond_63_bits_are_refused(leaf, shape):
    x = leaf("float32")
    for make in (
        lambda: ops.full(0, TensorType(shape, T.float32)),
        lambda: ops.broadcast_to(x, shape),
        lambda: ops.iota(TensorType(shape, T.int32), 0),
    ):
        with pytest.raises(ShapeError, match=r"fewer than 2\*\*63 bytes"):
            make()
    with pytest.raises(ShapeError, match=r"fewer than 2\*\*63 bytes"):
        ops.pad(leaf("float32", 2**60), (2**61,), (0,))
