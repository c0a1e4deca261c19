"""Numerical methods: relaxation, conjugate gradients, integrators, eigenvalues, small systems, sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import at, loss, script

GRID = sizes(512, 16, 2048)
ENSEMBLE = sizes(2**17, 50, 2**20)
SYSTEMS = sizes(2**14, 30, 2**18)
ROWS = sizes(2**15, 50, 2**19)
KNOTS = 1024


def plane(n: int) -> Arrays:
    return named(x=normal((n, n))[0])


def relaxed(xp: Any, source: Any) -> Any:
    """Twenty of Jacobi's steps for Poisson's equation, zeros around."""

    def step(_: Any, u: Any) -> Any:
        p = xp.pad(u, 1)
        return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - source) / 4

    return xp.fori_loop(0, 20, step, xp.zeros_like(source))


def red_and_black(xp: Any, source: Any) -> Any:
    """Ten of Gauss' and Seidel's steps, red places and black ones in turn."""
    n = source.shape[0]
    red = (xp.arange(n)[:, None] + xp.arange(n)[None]) % 2 == 0

    def step(_: Any, u: Any) -> Any:
        for which in (red, ~red):
            p = xp.pad(u, 1)
            u = xp.where(which, (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - source) / 4, u)
        return u

    return xp.fori_loop(0, 10, step, xp.zeros_like(source))


def conjugate_gradients(xp: Any, apply: Any, b: Any, steps: int) -> Any:
    """A solution of apply(x) = b (Hestenes and Stiefel 1952)."""

    def step(_: Any, carry: Any) -> Any:
        x, r, p, rr = carry
        ap = apply(p)
        by = rr / xp.sum(p * ap)
        x, r = x + by * p, r - by * ap
        new = xp.sum(r * r)
        return x, r, r + new / rr * p, new

    return xp.fori_loop(0, steps, step, (xp.zeros_like(b), b, b, xp.sum(b * b)))[0]


def screened(xp: Any, b: Any) -> Any:
    """A screened Poisson equation by 20 conjugate gradients."""

    def apply(u: Any) -> Any:
        p = xp.pad(u, 1)
        return 5 * u - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]

    return conjugate_gradients(xp, apply, b, 20)


def definite(n: int) -> Arrays:
    a, b = normal((n, n), (n,))
    return named(a=a / np.float32(n**0.5), b=b)


def normal_equations(xp: Any, a: Any, b: Any) -> Any:
    """A ridge regression by 20 conjugate gradients."""
    return conjugate_gradients(xp, lambda v: a.T @ (a @ v) + v, b, 20)


def largest(xp: Any, a: Any, b: Any) -> Any:
    """The largest eigenvalue of A A^T, by powers until it changes little."""

    def step(carry: Any) -> Any:
        v, old, _, k = carry
        w = a @ (a.T @ v)
        size = xp.sqrt(xp.sum(w * w))
        return w / size, size, xp.abs(size - old), k + 1

    zero = xp.sum(b) * 0
    going = lambda carry: (carry[2] > 1e-4 * carry[1]) & (carry[3] < 100)
    return xp.while_loop(going, step, (b / xp.sqrt(xp.sum(b * b)), zero, zero + 1, 0))[1]


def starts(n: int) -> Arrays:
    return named(x=normal((n, 3))[0], rate=uniform((n,), low=20.0, high=28.0)[0])


def runge_kutta(xp: Any, slope: Any, state: Any, steps: int, by: float) -> Any:
    """The classical method of fourth order."""

    def step(_: Any, y: Any) -> Any:
        k1 = slope(y)
        k2 = slope(y + by / 2 * k1)
        k3 = slope(y + by / 2 * k2)
        return y + by / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + by * k3))

    return xp.fori_loop(0, steps, step, state)


def lorenz(xp: Any, x: Any, rate: Any) -> Any:
    """Fifty steps of Lorenz' weather from many places."""

    def slope(s: Any) -> Any:
        x, y, z = s[:, 0], s[:, 1], s[:, 2]
        return xp.stack([10 * (y - x), x * (rate - z) - y, x * y - 8 / 3 * z], 1)

    return runge_kutta(xp, slope, x, 50, 0.005)


def prey(n: int) -> Arrays:
    start, rates, seen = uniform((n, 2), (n, 4), (n, 2), low=0.5, high=1.5)
    return named(start=start, rates=rates, seen=seen)


def fitted_prey(xp: Any, start: Any, rates: Any, seen: Any) -> Any:
    """How far hares and foxes are after 20 steps from those counted."""

    def slope(s: Any) -> Any:
        x, y = s[:, 0], s[:, 1]
        return xp.stack([x * (rates[:, 0] - rates[:, 1] * y), y * (rates[:, 2] * x - rates[:, 3])], 1)

    return xp.mean((runge_kutta(xp, slope, start, 20, 0.05) - seen) ** 2)


def pendulums(xp: Any, x: Any, rate: Any) -> Any:
    """A hundred symplectic steps of pendulums with springs."""

    def step(_: Any, carry: Any) -> Any:
        angle, speed = carry
        speed = speed - 0.01 * (xp.sin(angle) * rate + 0.1 * angle)
        return angle + 0.01 * speed, speed

    return xp.fori_loop(0, 100, step, (x[:, 0], x[:, 1]))[0]


def systems(n: int) -> Arrays:
    a, b = normal((n, 4, 4), (n, 4))
    return named(a=a + 4 * np.eye(4, dtype=np.float32), b=b)


def solved(xp: Any, a: Any, b: Any) -> Any:
    return xp.linalg.solve(a, b[..., None])[..., 0]


def solve_loss(xp: Any, a: Any, b: Any) -> Any:
    return xp.mean(solved(xp, a, b) ** 2)


def whitened(xp: Any, a: Any, b: Any) -> Any:
    """Logarithms of densities by Cholesky factors of 4 x 4 matrices."""
    factor = xp.linalg.cholesky(a @ xp.swapaxes(a, -1, -2) + xp.eye(4, dtype=a.dtype))
    y = xp.linalg.solve(factor, b[..., None])[..., 0]
    return -0.5 * xp.sum(y * y, -1) - xp.sum(xp.log(xp.diagonal(factor, axis1=-2, axis2=-1)), -1)


def bands(n: int) -> Arrays:
    low, high, right = uniform((128, n), (128, n), (128, n))
    return named(low=low, high=high, right=right)


def tridiagonal(xp: Any, low: Any, high: Any, right: Any) -> Any:
    """Systems of 128 unknowns with three diagonals, the middle one 3 (Thomas 1949)."""

    def down(carry: Any, row: Any) -> Any:
        c, d = carry
        by = 3 - row[0] * c
        c, d = row[1] / by, (row[2] - row[0] * d) / by
        return (c, d), xp.stack([c, d])

    zero = xp.zeros_like(low[0])
    both = xp.scan(down, (zero, zero), (low, high, right))[1]

    def up(x: Any, row: Any) -> Any:
        x = row[1] - row[0] * x
        return x, x

    return xp.scan(up, zero, (both[::-1, 0], both[::-1, 1]))[1][::-1]


def poisson(xp: Any, x: Any) -> Any:
    """Poisson's equation on a torus by transforms."""
    n = x.shape[0]
    kx, ky = (2 - 2 * xp.cos(2 * np.pi * f(n)).astype(x.dtype) for f in (xp.fft.fftfreq, xp.fft.rfftfreq))
    by = kx[:, None] + ky[None]
    return xp.fft.irfft2(xp.fft.rfft2(x - xp.mean(x)) / xp.where(by == 0, 1.0, by), s=(n, n))


def spectral_slope(xp: Any, x: Any) -> Any:
    """Derivatives of rows by their transforms."""
    n = x.shape[1]
    return xp.fft.irfft(2j * np.pi * xp.fft.rfftfreq(n).astype(x.dtype) * xp.fft.rfft(x, axis=1), n, axis=1)


def anomalies(n: int) -> Arrays:
    mean, shape = uniform((n,), (n,))
    return named(mean=mean * np.float32(2 * np.pi), shape=shape * np.float32(0.8))


def kepler(xp: Any, mean: Any, shape: Any) -> Any:
    """Eccentric anomalies by six of Newton's steps."""
    e = mean + shape * xp.sin(mean)
    for _ in range(6):
        e = e - (e - shape * xp.sin(e) - mean) / (1 - shape * xp.cos(e))
    return e


def bisected(xp: Any, mean: Any, shape: Any) -> Any:
    """The same by halving an interval 24 times."""

    def step(_: Any, carry: Any) -> Any:
        low, high = carry
        middle = (low + high) / 2
        above = middle - shape * xp.sin(middle) > mean
        return xp.where(above, low, middle), xp.where(above, middle, high)

    return sum(xp.fori_loop(0, 24, step, (mean - 1, mean + 1))) / 2


def simpson(xp: Any, x: Any) -> Any:
    """Integrals of functions that are sampled along rows."""
    x = xp.exp(-x * x)
    n = x.shape[1] // 2 * 2 - 2
    return (x[:, 0] + 4 * xp.sum(x[:, 1 : n + 1 : 2], 1) + 2 * xp.sum(x[:, 2:n:2], 1) + x[:, n]) / (3 * n)


def chebyshev(n: int) -> Arrays:
    return named(x=uniform((n,), low=-1.0)[0], c=normal((32,))[0])


def clenshaw(xp: Any, x: Any, c: Any) -> Any:
    """A series of 32 of Chebyshev's polynomials (Clenshaw 1955)."""
    a = b = xp.zeros_like(x)
    for k in range(31, 0, -1):
        a, b = 2 * x * a - b + c[k], a
    return x * a - b + c[0]


def restricted(xp: Any, x: Any) -> Any:
    """To half the places by full weights, and back between them."""
    rows = x[:-2:2] / 4 + x[1:-1:2] / 2 + x[2::2] / 4
    half = rows[:, :-2:2] / 4 + rows[:, 1:-1:2] / 2 + rows[:, 2::2] / 4
    return xp.repeat(xp.repeat(half, 2, 0), 2, 1)


def symmetric(n: int) -> Arrays:
    a = normal((n, 3, 3))[0]
    return named(a=a + a.transpose(0, 2, 1))


def eigenvalues(xp: Any, a: Any) -> Any:
    """Of symmetric 3 x 3 matrices by the trigonometric formula (Smith 1961)."""
    mean = xp.trace(a, axis1=1, axis2=2) / 3
    b = a - mean[:, None, None] * xp.eye(3, dtype=a.dtype)
    size = xp.sqrt(xp.sum(b * b, (1, 2)) / 6)
    half = xp.linalg.det(b / size[:, None, None]) / 2
    angle = xp.arccos(xp.clip(half, -1.0, 1.0)) / 3
    return mean[:, None] + 2 * size[:, None] * xp.cos(
        angle[:, None] + xp.asarray([0, 2 * np.pi / 3, 4 * np.pi / 3], dtype=a.dtype)
    )


def table(n: int) -> Arrays:
    knots = np.sort(uniform((KNOTS,))[0])
    return named(x=uniform((n,), seed=3)[0], knots=knots, values=normal((KNOTS,))[0])


def interpolated(xp: Any, x: Any, knots: Any, values: Any) -> Any:
    return xp.interp(x, knots, values)


def cubic(xp: Any, x: Any, knots: Any, values: Any) -> Any:
    """Between even knots by Catmull's and Rom's splines."""
    x = x * (KNOTS - 3.01) + 1
    k = xp.floor(x).astype(xp.int32)
    t = x - xp.floor(x)
    a, b, c, d = (values[k + by] for by in (-1, 0, 1, 2))
    return b + t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a))) / 2


def sparse(n: int) -> Arrays:
    """Sixteen numbers a row, near the diagonal and far from it."""
    near = (np.arange(n)[:, None] + integers((n, 12), 64) - 32) % n
    column = np.concatenate([near, integers((n, 4), n, seed=2)], 1).astype(np.int32)
    row = np.repeat(np.arange(n, dtype=np.int32), 16)
    return named(value=normal((n * 16,))[0], row=row, column=column.reshape(-1), x=normal((n,), seed=1)[0])


def by_coordinates(xp: Any, value: Any, row: Any, column: Any, x: Any) -> Any:
    """A sparse matrix by a vector."""
    return at(xp.zeros_like(x), row).add(value * x[column])


def by_rows(xp: Any, value: Any, row: Any, column: Any, x: Any) -> Any:
    return xp.sum(value.reshape(-1, 16) * x[column.reshape(-1, 16)], 1)


def sparse_loss(xp: Any, value: Any, row: Any, column: Any, x: Any) -> Any:
    return xp.mean(by_coordinates(xp, value, row, column, x) ** 2)


def exponentials(xp: Any, a: Any, b: Any) -> Any:
    """Of 4 x 4 matrices by a series, and squared twice."""
    a = a / 16
    term = total = xp.eye(4, dtype=a.dtype) + 0 * a
    for k in range(1, 8):
        term = term @ a / k
        total = total + term
    total = total @ total
    return xp.einsum("nij,nj->ni", total @ total, b)


def valley(xp: Any, x: Any) -> Any:
    """Rosenbrock's function."""
    return xp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2) / x.shape[0]


def residuals(n: int) -> Arrays:
    t, noise = uniform((n,), high=4.0), normal((n,))
    y = 2 * np.exp(-t[0]) * np.cos(3 * t[0]) + np.float32(0.1) * noise[0]
    return named(p=np.array([1.5, 0.8, 2.9, 0.1], np.float32), t=t[0], y=y)


def damped(xp: Any, p: Any, t: Any, y: Any) -> Any:
    """A damped wave fitted to measurements."""
    return xp.mean((p[0] * xp.exp(-p[1] * t) * xp.cos(p[2] * t + p[3]) - y) ** 2)


PROGRAMS = {
    "jacobi": script("20 steps of Jacobi's for Poisson's equation", GRID, plane, relaxed),
    "red_and_black": script("10 steps of Gauss' and Seidel's", GRID, plane, red_and_black),
    "screened": script("a screened Poisson equation by conjugate gradients", GRID, plane, screened),
    "normal_equations": script("a ridge regression by conjugate gradients", sizes(512, 20, 2048), definite,
                               normal_equations, tolerance=1e-3),
    "largest": script("an eigenvalue by powers until it changes little", sizes(512, 20, 2048), definite, largest,
                      tolerance=1e-2),
    "lorenz": script("50 steps of Runge's and Kutta's", ENSEMBLE, starts, lorenz, tolerance=1e-2),
    "prey_g": loss("20 such steps against what was counted", ENSEMBLE, prey, fitted_prey, wrt=(0, 1)),
    "pendulums": script("100 symplectic steps", ENSEMBLE, starts, pendulums, tolerance=1e-3),
    "solved": script("systems of four equations", SYSTEMS, systems, solved, tolerance=1e-2),
    "solve_g": loss("such systems, squared", SYSTEMS, systems, solve_loss, wrt=(0, 1)),
    "whitened": script("densities by Cholesky factors of 4 x 4", SYSTEMS, systems, whitened, tolerance=1e-2),
    "tridiagonal": script("systems with three diagonals", sizes(1024, 30, 16384), bands, tridiagonal),
    "poisson_equation": script("Poisson's equation by transforms", GRID, plane, poisson, tolerance=1e-3),
    "spectral_slope": script("derivatives by transforms", GRID, plane, spectral_slope, tolerance=1e-3),
    "kepler": script("Kepler's equation by Newton's steps", sizes(2**18, 50, 2**22), anomalies, kepler),
    "bisected": script("Kepler's equation by halving", ENSEMBLE, anomalies, bisected),
    "simpson": script("integrals of samples", GRID, plane, simpson),
    "clenshaw": script("a series of 32 polynomials", sizes(2**18, 50, 2**22), chebyshev, clenshaw, tolerance=1e-3),
    "restricted": script("to a coarser grid and back", GRID, plane, restricted),
    "eigenvalues": script("eigenvalues of 3 x 3 matrices by a formula", ENSEMBLE, symmetric, eigenvalues,
                          tolerance=1e-2),
    "interpolated": script("between 1,024 knots", sizes(2**18, 50, 2**22), table, interpolated, tolerance=1e-2),
    "cubic": script("a spline between even knots", sizes(2**18, 50, 2**22), table, cubic, tolerance=1e-2),
    "by_coordinates": script("a sparse matrix by its coordinates", ROWS, sparse, by_coordinates),
    "by_rows": script("a sparse matrix by rows of 16", ROWS, sparse, by_rows),
    "sparse_g": loss("a sparse matrix by a vector, squared", ROWS, sparse, sparse_loss, wrt=(0, 3)),
    "exponentials": script("exponentials of 4 x 4 matrices", SYSTEMS, systems, exponentials),
    "valley_g": loss("Rosenbrock's function", sizes(2**18, 50, 2**22), lambda n: named(x=normal((n,))[0]), valley,
                     wrt=(0,)),
    "damped_g": loss("a damped wave fitted", sizes(2**18, 50, 2**22), residuals, damped, wrt=(0,)),
}  # fmt: skip
