"""Group P: dtypes in differentiated programs."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check, check_gradient

import loopgrad as lg


def test_p1_double_precision_is_kept(device):
    """A gradient that float32 anywhere on the way would round at 1e-7."""
    x = lg.asarray([0.1, 0.3], dtype=lg.float64)
    loss = lambda x: lg.sum(lg.fori_loop(0, lg.asarray([300, 7]), lambda _, v: 0.95 * v + 0.01, x))
    check(lg.grad(loss)(x), [0.95**300, 0.95**7], 1e-13)


@pytest.mark.parametrize(("outer", "inner"), [("float32", "float64"), ("float64", "float32")])
def test_p3_casts_across_the_loss_boundary(device, mode, outer, inner):
    outer, inner = getattr(lg, outer), getattr(lg, inner)
    x = lg.asarray([0.5, 1.5], dtype=outer)
    check_gradient(lambda x: lg.sum(lg.astype(x, inner)), (x,), [1.0, 1.0], mode=mode, rtol=1e-6)
    assert lg.grad(lambda x: lg.sum(lg.astype(x, inner)))(x).dtype is outer


def test_p5_integer_casts_stop_gradients(device, mode):
    loss = lambda x: lg.sum(lg.astype(lg.astype(x, lg.int32), lg.float64) + x)
    check_gradient(loss, (lg.asarray([0.5, 2.5]),), [1.0, 1.0], mode=mode)


def test_p7_absolute_value_and_sign(device, mode):
    x = lg.asarray([-2.0, 0.0, 3.0])
    check_gradient(lambda x: lg.sum(lg.abs(x)), (x,), [-1.0, 0.0, 1.0], mode=mode)
    check_gradient(lambda x: lg.sum(lg.sign(x)), (x,), [0.0, 0.0, 0.0], mode=mode)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("index", ["int32", "int64", "uint8"])
def test_p6_every_index_type(device, kind, index):
    table = lg.asarray(np.linspace(1, 2, 5), dtype=getattr(lg, kind))
    positions = lg.asarray(np.array([4, 0, 4]), dtype=getattr(lg, index))
    check(lg.grad(lambda t: lg.sum(t[positions] ** 2))(table), 2 * np.linspace(1, 2, 5) * [1, 0, 0, 0, 2], 1e-6)


def test_p_float32_carry_keeps_its_dtype_beside_python_scalars(device):
    x = lg.asarray([0.5], dtype=lg.float32)
    value = lg.while_loop(lambda v: v < 3.0, lambda v: v * 1.5 + 0.25, x)
    assert value.dtype is lg.float32
    assert lg.grad(lambda x: lg.sum(lg.while_loop(lambda v: v < 3.0, lambda v: v * 1.5, x)))(x).dtype is lg.float32
