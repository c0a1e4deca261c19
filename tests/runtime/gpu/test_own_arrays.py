"""Arrays of lanes in device memory, where invocations can't have so much of their own: the same bits as with it."""

from dataclasses import replace

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.gpu.lanes import layout

N, LANES = 17, 300
RNG = np.random.default_rng(5)
A = RNG.standard_normal((LANES, N, N)) + 2 * N * np.eye(N)
B, TRIPS = RNG.standard_normal((LANES, N)), np.arange(LANES) % 3


def steps(a, b, trips):
    return lg.fori_loop(0, trips, lambda _, x: 0.5 * x + lg.linalg.solve(a, b + 0.1 * x), b)


def loss(a, b):
    return lg.sum(lg.vmap(steps)(a, b, lg.asarray(TRIPS)) ** 2)


@pytest.fixture
def few_bytes(monkeypatch):
    """Of an invocation's own; and device memory for fewer lanes than there are."""
    plan = layout.plan
    monkeypatch.setattr(layout, "MOST_HELD", 1 << 16)
    monkeypatch.setattr(
        "loopgrad.codegen.targets.gpu.compile.plan",
        lambda kernel, options, geometry: plan(kernel, options, replace(geometry, own_bytes=256)),
    )


def found():
    """Values, slopes, and what is said of them, by functions that no other test has compiled."""
    with lg.default_device("simulator:0"):
        value, slope = lg.compile(lambda *a: lg.vmap(steps)(*a)), lg.compile(lambda a, b: lg.grad(loss)(a, b))
        given = [lg.asarray(x) for x in (A, B, TRIPS)]
        notes = [*value.plan(*given).notes, *slope.plan(*given[:2]).notes]
        return np.asarray(value(*given)), np.asarray(slope(*given[:2])), [n for n in notes if "device memory" in n]


def test_arrays_are_held_for_some_lanes_at_a_time(few_bytes, monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPGRAD_CACHE_DIR", str(tmp_path))
    value, slope, notes = found()
    assert len(notes) == 2
    assert all("for 256 lanes at a time" in note for note in notes)
    wanted = B.copy()
    for trip in range(2):
        stepped = 0.5 * wanted + np.linalg.solve(A, (B + 0.1 * wanted)[..., None])[..., 0]
        wanted = np.where((trip < TRIPS)[:, None], stepped, wanted)
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    step = 1e-6 * np.cos(np.arange(A.size)).reshape(A.shape)
    with lg.default_device("cpu"):
        high, low = (float(loss(lg.asarray(A + sign * step), lg.asarray(B))) for sign in (1, -1))
    np.testing.assert_allclose(np.sum(slope * step), (high - low) / 2, rtol=1e-6)
