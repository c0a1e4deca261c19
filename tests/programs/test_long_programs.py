"""What Python loops build when nobody looks in between: long programs that repeat themselves."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph import build
from loopgrad.graph.errors import NestingError


def stencil(u, n, xp=np):
    for _ in range(n):
        u = u + 0.1 * (xp.roll(u, 1, 0) + xp.roll(u, -1, 0) + xp.roll(u, 1, 1) + xp.roll(u, -1, 1) - 4 * u)
    return u


def test_a_stencil_in_a_python_loop(device):
    u = np.random.default_rng(0).normal(size=(8, 8))
    np.testing.assert_allclose(stencil(lg.asarray(u), 30, lg), stencil(u, 30), rtol=1e-13, atol=1e-15)


def test_longer_loops_have_no_more_kernels(compiled_device):
    counts = []
    for n in (40, 120):
        step = lg.compile(lambda u, n=n: lg.sum(stencil(u, n, lg)))
        u = lg.ones((8, 8))
        step(u)
        kernels = step.plan(u).kernels
        counts.append((len(kernels), sum(kernel.launches for kernel in kernels)))
    assert counts[0][0] == counts[1][0]
    assert counts[1][1] > 100


def test_the_gradient_of_a_long_chain(device):
    """Every value of the way forward is read on the way back, in kernels of their own."""
    x, n = np.array([0.1, 0.7, 2.0]), 1000 if device.split(":")[0] in ("interpreter", "cpu") else 15
    v, slope = lg.asarray(x), np.ones(3)
    first, w = v, x
    for _ in range(n):
        v = lg.sin(v) + 0.1
        slope = slope * np.cos(w)
        w = np.sin(w) + 0.1
    np.testing.assert_allclose(lg.gradients(lg.sum(v), [first])[0], slope, rtol=1e-9)


def test_the_gradient_of_many_layers(device):
    """More calls and launches after each other than are written out."""
    generator = np.random.default_rng(1)
    m, s, n = generator.normal(size=(9, 9)) / 3, generator.normal(size=(9, 9)), 40
    states = [s]
    for _ in range(n):
        states.append(np.tanh(states[-1] @ m))
    slope = np.ones_like(s)
    for state in reversed(states[1:]):
        slope = (slope * (1 - state * state)) @ m.T

    def loss(s, m):
        for _ in range(n):
            s = lg.tanh(s @ m)
        return lg.sum(s)

    np.testing.assert_allclose(lg.grad(loss)(lg.asarray(s), lg.asarray(m)), slope, rtol=1e-9, atol=1e-14)


def test_elements_written_one_by_one(device):
    a = lg.zeros(40)
    for i in range(40):
        a[i] = i * 2.0
    np.testing.assert_array_equal(a, 2.0 * np.arange(40))


def test_a_stack_of_more_arrays_than_one_kernel_finds(device):
    """Pieces of one axis and of the other; the gradient takes them apart again."""
    n = 150 if device.split(":")[0] in ("interpreter", "cpu") else 70
    x = np.linspace(0, 1, 3)
    pieces = lambda x: [x * (0.5 + i) for i in range(n)]
    for axis in (0, 1):
        wanted = np.stack([x * (0.5 + i) for i in range(n)], axis)
        np.testing.assert_array_equal(lg.stack(pieces(lg.asarray(x)), axis), wanted)
    weights = np.arange(3.0 * n).reshape(n, 3)
    slope = lg.grad(lambda x: lg.sum(lg.stack(pieces(x)) * weights))(lg.asarray(x))
    np.testing.assert_allclose(slope, np.sum(weights * (0.5 + np.arange(n))[:, None], 0), rtol=1e-13)


def nested(depth, v):
    if not depth:
        return v + 1.0
    return lg.cond(lg.sum(v) > 0.0, lambda w: nested(depth - 1, w * 0.5), lambda w: w - 1.0, v)


def test_two_hundred_branches_inside_each_other():
    np.testing.assert_array_equal(nested(200, lg.asarray([1.0, 2.0])), np.array([1.0, 2.0]) * 0.5**200 + 1.0)
    np.testing.assert_allclose(lg.grad(lambda v: lg.sum(nested(30, v)))(lg.asarray([1.0, 2.0])), 0.5**30, rtol=1e-13)


def test_nesting_without_an_end_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(build, "DEEPEST", 100)

    def forever(v):
        return lg.cond(lg.sum(v) > 0.0, forever, lambda w: w, v)

    with pytest.raises(NestingError, match=r"at most 100, got 112 and more[\s\S]*forever"):
        forever(lg.ones(2))


@pytest.mark.parametrize("read", [False, True])
def test_code_does_not_grow_with_the_arrays_that_loops_write_to(read):
    """Lanes in lockstep, each of which sets the elements of its row."""

    def fill(start, row):
        end = row.shape[0]
        step = lambda s: (s[0] + 1, s[1].at[s[0]].set(lg.tanh(s[1][s[0] - 1]) + 1 if read else 1.0))
        return lg.while_loop(lambda s: s[0] < end, step, (start, row))[1]

    def pulled(starts, rows):
        out, pull = lg.vjp(lambda rows: lg.vmap(fill)(starts, rows), rows)
        return pull(out)

    sizes = []
    for n in (300, 3000):
        compiled = lg.compile(pulled, device="cpu")
        sizes.append(compiled.text("kernel", lg.asarray([0, 1]), lg.zeros((2, n))).count("\n"))
    assert sizes[0] == sizes[1] < 400
