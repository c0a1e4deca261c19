"""Many pieces that Python computes one by one, joined: bits are NumPy's, wherever the pieces come from."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

X = np.random.default_rng(0).normal(size=(40, 5))
NUMBERS = np.arange(40) + 0.25

CASES = {
    "elements": lambda x: [x[i, 2] * 2.0 + i for i in range(40)],
    "rows": lambda x: [x[i] * 2.0 - x[39 - i] for i in range(40)],
    "rows and numbers": lambda x: [x[i] * NUMBERS[i] for i in range(40)],
    "rows and data": lambda x: [x[i] + np.arange(5.0) * i for i in range(40)],
    "overlapping windows": lambda x: [x[i : i + 3] for i in range(37)],
    "overlapping windows from behind": lambda x: [x[i : i + 3, ::-1] for i in range(37)],
    "windows of every other row": lambda x: [x[2 * i : 2 * i + 4 : 2] for i in range(18)],
    "windows with gaps": lambda x: [x[2 * i : 2 * i + 1, ::2] * 3.0 for i in range(20)],
    "windows in no order": lambda x: [x[7 * i % 40, 3 * i % 5] + x[i, 0] for i in range(40)],
    "from behind": lambda x: [x[::-1][i] for i in range(0, 40, 2)],
    "one row": lambda x: [x[3] for _ in range(20)],
    "conditions": lambda x: [abs(x[i]) + (x[i] > 0) for i in range(20)],
    "two kinds": lambda x: [x[i] * 2.0 if i % 2 else x[i] + 1.0 for i in range(20)],
    "shared by pieces": lambda x: [(x[i] + 1.0) * (x[i] + 1.0) for i in range(20)],
}


@pytest.mark.in_turns
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", CASES)
def test_stacked(device, name, axis):
    if axis == 1 and name in ("elements", "windows in no order"):
        axis = 0
    np.testing.assert_array_equal(lg.stack(CASES[name](lg.asarray(X)), axis), np.stack(CASES[name](X), axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_concatenated(device, axis):
    pieces = lambda x: [x[2 * i : 2 * i + 2] * NUMBERS[i] for i in range(20)]
    np.testing.assert_array_equal(lg.concat(pieces(lg.asarray(X)), axis), np.concatenate(pieces(X), axis))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32"])
def test_dtypes(device, dtype):
    x = (X * 50).astype(dtype)
    pieces = lambda x: [x[i] + np.asarray(i, dtype)[()] for i in range(40)]
    np.testing.assert_array_equal(lg.stack(pieces(lg.asarray(x))), np.stack(pieces(x)))


def test_pieces_that_others_read_too(device):
    x = lg.asarray(X)
    pieces = [x[i] * 2.0 for i in range(40)]
    found = lg.stack(pieces), lg.stack(pieces[::-1]), pieces[7] + 1.0
    lg.eval(*found)
    for got, wanted in zip(found, (X * 2.0, X[::-1] * 2.0, X[7] * 2.0 + 1.0), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_gradient(device):
    loss = lambda x: lg.sum(lg.asarray([x[i, 2] * x[i, 1] + i for i in range(40)]) ** 2)
    slope, outer = np.zeros_like(X), 2 * (X[:, 2] * X[:, 1] + np.arange(40))
    slope[:, 2], slope[:, 1] = outer * X[:, 1], outer * X[:, 2]
    np.testing.assert_allclose(lg.grad(loss)(lg.asarray(X)), slope, rtol=1e-13)


def test_a_thousand_lazy_scalars_are_one_small_kernel(compiled_device):
    make = lg.compile(lambda x: lg.asarray([x[i] * 2.0 + i * 0.5 for i in range(1000)]))
    x = lg.asarray(np.linspace(0, 1, 1000))
    np.testing.assert_array_equal(make(x), np.linspace(0, 1, 1000) * 2.0 + np.arange(1000) * 0.5)
    assert [kernel.launches for kernel in make.plan(x).kernels] == [1]
    assert make.text("kernel", x).count("\n") < 40


def test_the_gradient_of_a_loop_that_reads_rows(device):
    """As many cotangents as rows, each of them zero elsewhere."""
    n, w = 40, 0.5
    states = [np.zeros(5)]
    for t in range(n):
        states.append(np.tanh(X[t] + w * states[-1]))
    slope, along = np.zeros_like(X), np.ones(5)
    for t in reversed(range(n)):
        along = along * (1 - states[t + 1] ** 2)
        slope[t] = along
        along = along * w

    def loss(x):
        state = lg.zeros(5)
        for t in range(n):
            state = lg.tanh(x[t] + w * state)
        return lg.sum(state)

    np.testing.assert_allclose(lg.grad(loss)(lg.asarray(X)), slope, rtol=1e-12, atol=1e-300)
