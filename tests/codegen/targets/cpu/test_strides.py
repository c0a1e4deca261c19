"""Backwards, and every few elements: vectors and shuffles give what NumPy's slices give."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

STEPS = (-9, -8, -5, -3, -2, -1, 2, 3, 4, 7, 8, 9)


@pytest.mark.in_turns
@pytest.mark.parametrize("name", ["int8", "bool", "float16", "int32", "float32", "float64", "int64"])
def test_slices_of_every_step(name: str) -> None:
    """Rows that are no multiple of a vector, whose last element is the array's last one."""
    x = (np.random.default_rng(0).normal(size=(2, 1031)) * 50).astype(name)

    def slices(x: object) -> list[object]:
        return [part for step in STEPS for part in (x[:, ::step], x[1, 5:-3:step] if step > 0 else x[1, -3:5:step])]  # type: ignore[index]

    for got, expected in zip(lg.compile(slices)(x), slices(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_lanes_that_read_several_strides() -> None:
    """What is computed of neighbours: three reads of one array, and sums of rows that lie backwards."""
    x = np.random.default_rng(1).normal(size=(5, 999))
    f = lg.compile(lambda x: (x[:, ::3] * x[:, 1::3] - x[:, 2::3], lg.sum(x[:, ::-1] * x, axis=1)))
    product, total = f(x)
    np.testing.assert_array_equal(np.asarray(product), x[:, ::3] * x[:, 1::3] - x[:, 2::3])
    np.testing.assert_allclose(np.asarray(total), (x[:, ::-1] * x).sum(1), rtol=1e-13)


def test_no_gather_is_left() -> None:
    text = lg.compile(lambda x: (x[::-1], x[::5])).text("llvm", np.zeros(4096, np.float32))
    reads = text.split("define void @k")[1:3]
    body = [part.partition("phi i64")[2].partition("br i1")[0] for part in reads]
    assert all("shufflevector" in part and "masked.gather" not in part for part in body)
