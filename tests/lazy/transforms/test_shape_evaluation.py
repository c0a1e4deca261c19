"""`lg.eval_shape` against what the function returns; `lg.ShapeDtypeStruct`."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg

STRUCT = lg.ShapeDtypeStruct


def test_shapes_are_those_of_the_results() -> None:
    def f(p, x, mode="sum"):
        y = lg.fori_loop(0, 5, lambda i, v: v * p["w"] + i, x)
        return {"y": y, "t": (lg.sum(y), None)} if mode == "sum" else y > 0

    for dtype in ("float32", "complex64", "int16", ml_dtypes.bfloat16):
        p, x = {"w": np.ones((2, 1), dtype)}, np.ones((2, 3), dtype)
        for mode in ("sum", "sign")[: 1 if dtype == "complex64" else 2]:
            like = lg.eval_shape(f, {"w": STRUCT((2, 1), dtype)}, STRUCT([2, 3], dtype), mode=mode)
            expected = lg.tree.map(lambda t: STRUCT(t.shape, t.dtype), f(p, x, mode=mode))
            assert like == expected


def test_nothing_is_computed() -> None:
    out = lg.eval_shape(lambda a: (a @ a)[0], STRUCT((10**6, 10**6), lg.float64))  # 8 TB
    assert (out.shape, out.dtype, out.ndim, out.size) == ((10**6,), lg.float64, 1, 10**6)
    assert lg.eval_shape(lambda x, y: x * y, 2.0, np.ones(3, np.float32)) == STRUCT(
        (3,), lg.float32
    )  # numbers are weak
    assert lg.eval_shape(lg.grad(lambda x: lg.sum(x**2)), STRUCT((3,), "float32")) == STRUCT((3,), lg.float32)
    assert lg.eval_shape(lambda: 1.0) == STRUCT((), lg.float64)
    w = lg.zeros(3)

    def writes(x):
        x[...] = 1.0
        return lg.sum(x) + lg.sum(w)

    x = lg.zeros(())
    assert lg.eval_shape(writes, x) == STRUCT((), lg.float64)
    assert lg.eval_shape(writes, STRUCT((), lg.float64)) == STRUCT((), lg.float64)
    assert x.item() == 0.0


def test_structs() -> None:
    assert len({STRUCT((2,), "int8"), STRUCT([2], np.int8), STRUCT((2,), lg.int16)}) == 2
    assert repr(STRUCT((2, 3), np.float32)) == "ShapeDtypeStruct(shape=(2, 3), dtype=float32)"
    with pytest.raises(lg.ShapeError, match="negative"):
        STRUCT((-1,), lg.int8)
    with pytest.raises(lg.TracedValueError):
        lg.eval_shape(float, STRUCT((), lg.float64))
