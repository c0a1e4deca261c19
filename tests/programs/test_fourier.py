"""Fourier transforms in programs, on every device: with gradients of both modes and of second order, in loops, under
vmap, compiled and replayed; by NumPy and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np

import loopgrad as lg

RNG = np.random.default_rng(11)


def near(result: Any, expected: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance)


def diffused(m: Any, u: Any, steps: int) -> Any:
    """A nonlinear equation in time, its linear part by transforms."""
    n = u.shape[-1]
    k = 2 * np.pi * np.fft.rfftfreq(n)
    for _ in range(steps):
        u = m.fft.irfft(m.fft.rfft(m.sin(u)) * np.exp(-0.3 * k**2), n)
    return u


def test_in_loops_with_gradients(device: str) -> None:
    """Of an odd length, in a loop over whole tensors, whose reverse runs it backwards."""
    u, n = RNG.standard_normal(9), 9
    factor = np.exp(-0.3 * (2 * np.pi * np.fft.rfftfreq(n)) ** 2)
    step = lambda _, u: lg.fft.irfft(lg.fft.rfft(lg.sin(u)) * factor, n)
    run = lambda u: lg.fori_loop(0, 4, step, u)
    near(lg.compile(run)(lg.asarray(u)), diffused(np, u, 4))
    loss = lambda u: lg.sum(run(u) ** 2)
    found = lg.compile(lg.grad(loss))
    near(found(lg.asarray(u)), lg.grad(lambda u: lg.sum(diffused(lg, u, 4) ** 2))(lg.asarray(u)))
    way, h = np.cos(np.arange(n)), 1e-5
    value = lambda u: np.sum(diffused(np, u, 4) ** 2)
    near(np.asarray(found(lg.asarray(u))) @ way, (value(u + h * way) - value(u - h * way)) / (2 * h), 1e-7)
    (_, tangent), (_, second) = (
        lg.jvp(loss, (lg.asarray(u),), (lg.asarray(way),)),
        lg.jvp(lg.grad(loss), (lg.asarray(u),), (lg.asarray(way),)),
    )
    near(tangent, np.asarray(found(lg.asarray(u))) @ way)
    slopes = [np.asarray(found(lg.asarray(u + s * h * way))) for s in (1, -1)]
    near(second, (slopes[0] - slopes[1]) / (2 * h), 1e-6)


def test_gradients_by_complex_numbers(device: str) -> None:
    """The direction in which the loss grows: by both parts, as differences have it; descent goes down."""
    z = RNG.standard_normal((2, 6)) + 1j * RNG.standard_normal((2, 6))
    weights = RNG.standard_normal((2, 6))

    def loss(m: Any, z: Any) -> Any:
        y = m.fft.ifft(m.fft.fft(z, axis=0) * z) * weights
        return m.sum(y.real**2 + 2 * y.imag**2) + m.sum(m.fft.hfft(z, n=9) ** 3)

    found = np.asarray(lg.grad(lambda z: loss(lg, z))(lg.asarray(z)))
    way, h = RNG.standard_normal((2, 6)) + 1j * RNG.standard_normal((2, 6)), 1e-5
    slope = (loss(np, z + h * way) - loss(np, z - h * way)) / (2 * h)
    near(np.sum(found.real * way.real + found.imag * way.imag), slope, 1e-6)
    assert float(loss(lg, lg.asarray(z - 1e-6 * found))) < loss(np, z)


def test_batches_and_lanes(device: str) -> None:
    """Under vmap, also where each batch element takes its own number of trips."""
    x, trips = RNG.standard_normal((3, 8)), np.array([2, 0, 3])
    near(lg.vmap(lg.fft.fft, in_axes=1)(lg.asarray(x)), np.fft.fft(x.T))

    def one(v: Any, count: Any) -> Any:
        return lg.fori_loop(0, count, lambda _, v: lg.fft.fft(v).real * 0.3 + lg.fft.irfft(v[:5] + 0j), v)

    def plain(v: Any, count: int) -> Any:
        for _ in range(count):
            v = np.fft.fft(v).real * 0.3 + np.fft.irfft(v[:5] + 0j)
        return v

    near(lg.vmap(one)(lg.asarray(x), lg.asarray(trips)), [plain(*row) for row in zip(x, trips, strict=True)])
    found = lg.grad(lambda x: lg.sum(lg.vmap(one)(x, lg.asarray(trips)) ** 2))(lg.asarray(x))
    way, h = RNG.standard_normal(x.shape), 1e-6
    value = lambda x: sum(np.sum(plain(*row) ** 2) for row in zip(x, trips, strict=True))
    near(np.sum(np.asarray(found) * way), (value(x + h * way) - value(x - h * way)) / (2 * h), 1e-6)


def test_columns(device: str) -> None:
    """Along an axis that isn't the last, of all kinds, also of an odd length: where they lie, in one step each."""
    z = RNG.standard_normal((2, 18, 17)) + 1j * RNG.standard_normal((2, 18, 17))

    def f(m: Any, z: Any) -> list[Any]:
        back = [m.fft.irfft(z, n, axis=1, norm="ortho") for n in (30, 35)]
        return [m.fft.ifft(z, axis=1), m.fft.rfft(z.real, axis=1), *back]

    compiled = lg.compile(lambda z: f(lg, z))
    for found, expected in zip(compiled(lg.asarray(z)), f(np, z), strict=True):
        near(found, expected)
    if device != "interpreter":
        with lg.options(libraries=False):
            names = [row.name for row in compiled.plan(lg.asarray(z)).routines]
        assert all(name.endswith("_along") for name in names)


def test_replayed(device: str) -> None:
    z = RNG.standard_normal((4, 12)) + 1j * RNG.standard_normal((4, 12))
    replay = lg.compile(lambda z: lg.fft.fftn(z * 2) + 1).capture(lg.asarray(z))
    for factor in (1.0, 0.5, -2.0):
        near(replay.replay(lg.asarray(z * factor)), np.fft.fftn(z * factor * 2) + 1)


def test_the_plan_says_who_does_it() -> None:
    with lg.default_device("cpu"):
        plan = str(lg.compile(lg.fft.fft2).plan(lg.ones((3, 4))))
    assert "own vector code, what it leaves pocketfft of" in plan


def test_pairs_aren_t_moved_for_nothing() -> None:
    """What a library gives is what a caller gets: no kernel between an input, a transform and an output,
    nor where it is differentiated."""
    with lg.default_device("cpu"):
        plan = lg.compile(lambda z: lg.fft.ifft(lg.fft.fft(z))).plan(lg.ones((3, 4)) + 0j)
        back = lg.compile(lambda z: (lambda y, pull: pull(y))(*lg.vjp(lg.fft.fft, z))).plan(lg.ones((3, 4)) + 0j)
    for found in (plan, back):
        assert [row.name for row in found.routines] == ["dft", "dft"]
        assert not found.kernels
