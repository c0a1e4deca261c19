"""Group S: lanes behind a gate `if gate[idx] > eps` (also F2); ungated lanes have gradient exactly 0."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import check_gradient, tolerance

import loopgrad as lg

SLOPE = 1.05**8


def recurrence(v):
    return lg.fori_loop(0, 8, lambda _, v: 1.05 * v + 0.05, v)


def gated_sum(x, gate, threshold, index, carry_inside=True):
    """`x` has one element per lane; `gate[index]` opens lane by lane."""

    def lane(v, *position):
        opened = gate[position] > threshold
        if carry_inside:
            return lg.cond(opened, lambda: recurrence(v), lambda: 0.0 * v)
        return lg.where(opened, 1.0, 0.0) * recurrence(v)

    flat = lg.vmap(lane)(lg.reshape(x, (-1,)), *[lg.asarray(i.reshape(-1)) for i in index])
    return lg.sum(flat)


def check_gate(gate, index, mode, shape, dtype=lg.float64, threshold=0.5, carry_inside=True):
    x = np.linspace(0.1, 0.9, int(np.prod(shape))).reshape(shape)
    want = np.where(gate[index] > threshold, SLOPE, 0.0)
    device_gate = lg.asarray(gate)

    def loss(x):
        return gated_sum(x, device_gate, threshold, index, carry_inside)

    check_gradient(loss, (lg.asarray(x, dtype=dtype),), want, mode=mode, rtol=tolerance(dtype, 2e-5, 1e-13))


def opened(fraction, size):
    gate = np.zeros(size)
    gate[np.random.default_rng(1).permutation(size)[: round(fraction * size)]] = 1.0
    return gate


@pytest.mark.parametrize("fraction", [0.0, 0.05, 0.5, 1.0])
def test_s1_s4_array_gate(device, dtype, mode, fraction):
    check_gate(opened(fraction, 256), (np.arange(256),), mode, (256,), dtype)


def test_s2_double_precision_gate(device, mode):
    gate = np.where(np.arange(64) % 3 == 0, 0.75, 0.25)
    check_gate(gate, (np.arange(64),), mode, (64,), threshold=0.5)


@pytest.mark.parametrize("carry_inside", [True, False])
def test_s3_carry_inside_or_outside(device, mode, carry_inside):
    check_gate(opened(0.5, 32), (np.arange(32),), mode, (32,), carry_inside=carry_inside)


def test_s5_gate_smaller_than_the_lanes(device, mode):
    check_gate(opened(0.5, 64), (np.arange(256) % 64,), mode, (256,))


LANES = np.arange(64)
INDICES = {
    "modulo": (LANES % 16,),
    "halved": (LANES // 2,),
    "constant": (np.full(64, 5),),
    "array": (np.random.default_rng(2).integers(0, 64, 64),),
    "two axes": (LANES % 8, (LANES // 8) % 8),
    "quotient and remainder": (LANES // 16, LANES % 16),
    "linear": (LANES,),
    "first column": (LANES, np.zeros(64, dtype=int)),
}


@pytest.mark.parametrize("name", list(INDICES))
def test_s6_s7_s8_s11_gate_index(device, mode, name):
    index = INDICES[name]
    shape = tuple(64 for _ in index)
    check_gate(opened(0.5, int(np.prod(shape))).reshape(shape), index, mode, (64,))


def test_s9_s10_three_dimensional_lanes(device, mode):
    grid = np.indices((6, 6, 6))
    gate = opened(0.3, 216).reshape(6, 6, 6)
    check_gate(gate, tuple(grid), mode, (6, 6, 6))


def test_s12_gate_of_five_axes_with_an_argument(device, mode):
    grid = np.indices((2, 3, 2, 3))
    frame = np.full(grid.shape[1:], 1)
    gate = opened(0.5, 2 * 36).reshape(2, 2, 3, 2, 3)
    check_gate(gate, (frame, *grid), mode, (2, 3, 2, 3))
