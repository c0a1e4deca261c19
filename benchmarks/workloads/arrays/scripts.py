"""What users write between the loops: stencils, points and rotations, forces between pairs, small matrices.

Each is one text that NumPy runs as it is, which makes it the oracle, in float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import Script, script

PLANE = sizes(1024, 32, 4096)
POINTS = sizes(2**19, 100, 2**21)
STATES = 32
WORDS = 64
BOX = 20.0


def plane(n: int) -> Arrays:
    return named(x=normal((n, n))[0])


def cells(n: int) -> Arrays:
    return named(x=integers((n, n), 2).astype(np.uint8))


def life(xp: Any, x: Any) -> Any:
    near = [xp.roll(xp.roll(x, a, 0), b, 1) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
    total = sum(near[1:], near[0])
    return ((total == 3) | ((x == 1) & (total == 2))).astype(xp.uint8)


def eroded(xp: Any, x: Any) -> Any:
    return xp.min(xp.stack([xp.roll(x, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1)]), axis=0)


def edges(xp: Any, x: Any) -> Any:
    """Magnitudes of Sobel's gradients, the edge repeated."""
    p = xp.pad(x, 1, mode="edge")
    across = p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:] - p[:-2, :-2] - 2 * p[1:-1, :-2] - p[2:, :-2]
    along = p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:] - p[:-2, :-2] - 2 * p[:-2, 1:-1] - p[:-2, 2:]
    return xp.sqrt(across * across + along * along + 1e-6)


def weights(xp: Any, t: Any) -> Any:
    """Of a cubic B-spline at each place between two knots."""
    return xp.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], -1) / 6


def places(n: int) -> Arrays:
    return named(t=uniform((n,))[0])


def turned(xp: Any, q: Any, v: Any) -> Any:
    """Vectors turned by quaternions."""
    q = q / xp.sqrt(xp.sum(q * q, -1, keepdims=True))
    t = 2 * xp.cross(q[:, 1:], v)
    return v + q[:, :1] * t + xp.cross(q[:, 1:], t)


def turns(n: int) -> Arrays:
    q, v = normal((n, 4), (n, 3))
    return named(q=q, v=v)


def forces(xp: Any, x: Any) -> Any:
    """Between points in a periodic box, by the potential of Lennard and Jones, cut off at 2.5."""
    apart = x[:, None] - x[None]
    apart = apart - BOX * xp.round(apart / BOX)
    square = xp.sum(apart * apart, -1) + xp.eye(x.shape[0], dtype=x.dtype)
    s = xp.where(square < 6.25, 1.0 / xp.maximum(square, 0.5), 0.0)
    cube = s * s * s
    return xp.sum((24 * s * (2 * cube * cube - cube))[..., None] * apart, 1)


def quadratic(xp: Any, x: Any, a: Any) -> Any:
    return xp.einsum("bi,bij,bj->b", x, a, x)


def forms(n: int) -> Arrays:
    x, a = normal((n, 8), (n, 8, 8))
    return named(x=x, a=a)


def inverses(xp: Any, a: Any) -> Any:
    return xp.linalg.inv(a + 3 * xp.eye(3, dtype=a.dtype))


def best_scores(step: Script, first: Any, scores: Any, moves: Any) -> Any:
    for row in scores:
        first = step(first, row, moves)
    return first


def advanced(xp: Any, best: Any, row: Any, moves: Any) -> Any:
    """The best scores of all states after one more observation (Viterbi 1967)."""
    return xp.max(best[:, :, None] + moves[None], axis=1) + row


def decoded(xp: Any, scan: Any, scores: Any, moves: Any) -> Any:
    return scan(lambda best, row: (advanced(xp, best, row, moves), None), scores[0], scores[1:])[0]


def observations(n: int) -> Arrays:
    scores, moves = normal((WORDS, n, STATES), (STATES, STATES))
    return named(scores=scores, moves=moves)


def blended(xp: Any, over: Any, under: Any) -> Any:
    """One picture over another one, by opacity (Porter and Duff 1984)."""
    a, b = over[..., 3:], under[..., 3:] * (1 - over[..., 3:])
    opacity = a + b
    return xp.concatenate([(over[..., :3] * a + under[..., :3] * b) / xp.maximum(opacity, 1e-6), opacity], -1)


def pictures(n: int) -> Arrays:
    over, under = uniform((n, n, 4), (n, n, 4))
    return named(over=over, under=under)


def moved(xp: Any, x: Any, turn: Any, by: Any) -> Any:
    return x @ turn.T + by


def movements(n: int) -> Arrays:
    x, turn, by = normal((n, 3), (3, 3), (3,))
    return named(x=x, turn=turn, by=by)


def standardised(xp: Any, x: Any) -> Any:
    return (x - xp.mean(x, 0)) / xp.std(x, 0)


def scaled(xp: Any, costs: Any) -> Any:
    """Five rounds of scaling rows and columns to equal sums, in logarithms (Sinkhorn and Knopp 1967)."""
    for _ in range(5):
        for axis in (1, 0):
            most = xp.max(costs, axis, keepdims=True)
            costs = costs - most - xp.log(xp.sum(xp.exp(costs - most), axis, keepdims=True))
    return costs


def fitted(xp: Any, x: Any, y: Any) -> Any:
    """Coefficients of a polynomial, by the normal equations."""
    powers = xp.stack([x**k for k in range(6)], 1)
    return xp.linalg.solve(powers.T @ powers, powers.T @ y)


def measured(n: int) -> Arrays:
    (x,), (y,) = uniform((n,), low=-1.0), normal((n,))
    return named(x=x, y=y)


def populations(n: int) -> Arrays:
    return named(f=uniform((9, n, n), low=0.9, high=1.1)[0])


def streamed(xp: Any, f: Any) -> Any:
    """A lattice Boltzmann step of nine directions: collisions, then each population moves on (Qian 1992)."""
    moves = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
    shares = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4
    mass = xp.sum(f, 0)
    u, v = (sum(f[k] * moves[k][d] for k in range(1, 9)) / mass for d in (0, 1))
    made = []
    for k, (a, b) in enumerate(moves):
        along = 3 * (a * u + b * v)
        balanced = shares[k] * mass * (1 + along + along * along / 2 - 1.5 * (u * u + v * v))
        made.append(xp.roll(f[k] + 0.6 * (balanced - f[k]), (a, b), (0, 1)))
    return xp.stack(made)


def sheets(n: int) -> Arrays:
    return named(places=normal((n, n, 3))[0], speeds=normal((n, n, 3))[0])


def swung(xp: Any, places: Any, speeds: Any) -> Any:
    """A step of a cloth whose springs have length 1, with both its places and its speeds."""
    force = xp.zeros_like(places)
    for by, axis in ((1, 0), (-1, 0), (1, 1), (-1, 1)):
        apart = xp.roll(places, by, axis) - places
        length = xp.sqrt(xp.sum(apart * apart, -1, keepdims=True) + 1e-9)
        force = force + (length - 1) * apart / length
    speeds = 0.99 * (speeds + 0.01 * force)
    return xp.stack([places + 0.01 * speeds, speeds])


def channels(n: int) -> Arrays:
    return named(x=normal((8, n, n, 64))[0], w=normal((3, 3, 64))[0])


def depthwise(xp: Any, x: Any, w: Any) -> Any:
    """A convolution of each channel by itself, as slices of a padded array."""
    p, n = xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), x.shape[1]
    return sum(p[:, i : i + n, j : j + n] * w[i, j] for i in range(3) for j in range(3))


PROGRAMS = {
    "life": script("one generation of Conway's Life on a torus of bytes", PLANE, cells, life),
    "eroded": script("the least of nine neighbours", PLANE, plane, eroded),
    "edges": script("magnitudes of Sobel's gradients", PLANE, plane, edges),
    "spline_weights": script("four weights of a cubic B-spline a place", POINTS, places, weights),
    "turned": script("vectors turned by quaternions", POINTS, turns, turned),
    "forces": script(
        "forces between all pairs of points in a periodic box", sizes(1024, 40, 2048),
        lambda n: named(x=uniform((n, 3), high=BOX)[0]), forces, tolerance=1e-2,
    ),
    "quadratic": script("x A x for matrices of 8 x 8", sizes(2**16, 50, 2**18), forms, quadratic),
    "inverses": script(
        "inverses of 3 x 3 matrices", sizes(2**18, 50, 2**20),
        lambda n: named(a=uniform((n, 3, 3), low=-0.5, high=0.5)[0]), inverses,
    ),
    "covariance": script(
        "the covariance of 64 variables", sizes(2**16, 100, 2**18), lambda n: named(x=normal((n, 64))[0]),
        lambda xp, x: xp.cov(x.T),
    ),
    "blended": script("one picture over another one, with opacity", PLANE, pictures, blended),
    "moved": script("points by a 3 x 3 matrix and a vector", POINTS, movements, moved),
    "powers": script("x**0.7 + x**2.5", sizes(2**20, 100, 2**23), places, lambda xp, t: t**0.7 + t**2.5),
    "distances": script(
        "sums of absolute differences between points in 32 dimensions", sizes(512, 20, 1024),
        lambda n: named(x=normal((n, 32))[0]), lambda xp, x: xp.sum(xp.abs(x[:, None] - x[None]), -1),
    ),
    "standardised": script("columns less their mean, over their deviation", PLANE, plane, standardised),
    "scaled": script("Sinkhorn's scalings of a square matrix", sizes(512, 20, 1024), plane, scaled),
    "fitted": script("a polynomial of degree 5 fitted", sizes(2**16, 50, 2**18), measured, fitted, tolerance=1e-2),
    "streamed": script("a step of a lattice Boltzmann method", sizes(512, 16, 1024), populations, streamed),
    "swung": script("a step of a cloth of springs", sizes(512, 16, 1024), sheets, swung),
    "depthwise": script("a depthwise convolution of 3 x 3", sizes(56, 8, 112), channels, depthwise),
    "among": script(
        "whether numbers are among 64 others", sizes(2**18, 50, 2**22),
        lambda n: named(x=integers((n,), 1000), few=integers((64,), 1000)),
        lambda xp, x, few: xp.any(x[:, None] == few[None], 1).astype(xp.uint8),
    ),
    "viterbi": Program(
        "best scores of 32 states after 64 observations", sizes(256, 8, 256), observations,
        lambda scores, moves: best_scores(partial(advanced, np), scores[0], scores[1:], moves),
        loopgrad=lambda lg: partial(decoded, lg, lg.scan),
        jax=lambda jax: partial(decoded, jax.numpy, jax.lax.scan),
    ),
}  # fmt: skip
