"""Programs that read across axes, large enough for boxes and blocks of them; against NumPy, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

R = np.random.default_rng(5)
SHAPES = [(130, 97), (64, 64), (4100, 3), (3, 4100), (1, 5000), (5000, 1), (2, 3000)]


def floats(*shape: int) -> np.ndarray:
    return R.random(shape, dtype=np.float32)


def check(run, *arrays):
    """`run(xp, *arrays)` by ours and by NumPy."""
    got = np.asarray(lg.compile(lambda *given: run(lg, *given))(*[lg.asarray(a) for a in arrays]))
    wanted = run(np, *arrays)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transposes_and_what_is_fused_with_them(device, shape):
    x, y = floats(*shape), floats(*shape[::-1])
    check(lambda xp, x: x.T, x)
    check(lambda xp, x, y: (x.T + 1.0) * y, x, y)
    check(lambda xp, x, y: x + y.T * x, x, y)
    check(lambda xp, x: xp.flip(x, axis=0).T - x.T, x)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.float16, np.int32, np.float64, np.int64])
def test_dtypes(device, dtype):
    check(lambda xp, x: x.T, R.integers(0, 2, (131, 77)).astype(dtype))
    check(lambda xp, x: xp.where(x[:77].T, x[:77], x[50:127].T), R.integers(0, 2, (131, 77)).astype(dtype))


@pytest.mark.in_turns
@pytest.mark.parametrize("perm", [(0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("shape", [(18, 19, 20), (40, 3, 50), (2000, 2, 3)], ids=str)
def test_orders_of_three_axes(device, shape, perm):
    x = floats(*shape)
    check(lambda xp, x: xp.permute_dims(x, perm), x)
    check(lambda xp, x, y: xp.permute_dims(x, perm) + y, x, np.ascontiguousarray(np.transpose(floats(*shape), perm)))


def test_orders_of_four_axes(device):
    x = floats(9, 10, 11, 12)
    for perm in ((0, 2, 3, 1), (3, 1, 2, 0), (2, 3, 0, 1), (1, 0, 3, 2)):
        check(lambda xp, x, perm=perm: xp.permute_dims(x, perm) * 2.0, x)
    check(lambda xp, x: xp.moveaxis(x, 0, -1), x)


def test_several_orders_in_one_kernel(device):
    x, y, z = floats(30, 31, 32), floats(32, 31, 30), floats(31, 30, 32)
    check(lambda xp, x, y, z: x + xp.permute_dims(y, (2, 1, 0)) * xp.permute_dims(z, (1, 0, 2)), x, y, z)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat(device, axis):
    shape = [20, 21, 22]
    shorter = list(shape)
    shorter[axis] = 7
    none = list(shape)
    none[axis] = 0
    x, y, empty = floats(*shape), floats(*shorter), floats(*none)
    check(lambda xp, x, y: xp.concat([x, y, x], axis=axis) + 1.0, x, y)
    check(lambda xp, x, y: xp.concat([xp.exp2(xp.floor(x)), y], axis=axis), x, y)
    check(lambda xp, x, y: xp.concat([x, y], axis=axis), x, empty)
    check(lambda xp, x, y: xp.permute_dims(xp.concat([x, y], axis=axis), (2, 1, 0)), x, y)


def test_concat_of_a_transpose(device):
    check(lambda xp, x, y: xp.concat([x.T, y], axis=0) + 1.0, floats(70, 90), floats(50, 70))
    check(lambda xp, x, y: xp.concat([x.T, y], axis=1) + 1.0, floats(70, 90), floats(90, 50))


def test_rolls_flips_pads_slices(device):
    x = floats(70, 90)
    check(lambda xp, x: xp.roll(x, 5, axis=1) + 1.0, x)
    check(lambda xp, x: xp.roll(x, (-3, 7), axis=(0, 1)).T, x)
    check(lambda xp, x: xp.flip(x) * 2.0, x)
    check(lambda xp, x: xp.pad(x, ((1, 2), (3, 0))).T + 1.0, x)
    check(lambda xp, x: x[::2, ::-3].T + 1.0, x)
    check(lambda xp, x: x[1:, :-1].T - x[:-1, 1:].T, x)


def test_nothing_and_one(device):
    for shape in ((0, 5000), (5000, 0), (1, 1), (1, 6000), (0, 0)):
        check(lambda xp, x: x.T + 1.0, floats(*shape))


def test_what_isnt_a_number(device):
    x = floats(80, 70)
    x[3, 5], x[7, 9], x[11, 2] = np.nan, np.inf, -0.0
    check(lambda xp, x: x.T, x)
    got = np.asarray(lg.compile(lambda x: x.T)(lg.asarray(x)))
    np.testing.assert_array_equal(got.view(np.uint32), x.T.copy().view(np.uint32))


def test_the_gradient_goes_back_across(device):
    x, y = floats(90, 70), floats(70, 90)
    slope = lg.compile(lg.grad(lambda x, y: lg.sum(lg.permute_dims(x, (1, 0)) * y * y)))
    np.testing.assert_allclose(np.asarray(slope(lg.asarray(x), lg.asarray(y))), (y * y).T, rtol=1e-6)
