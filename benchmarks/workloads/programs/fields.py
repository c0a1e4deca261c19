"""Fields on grids: heat, waves, fluids, reactions, spins."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import at, loss, script

GRID = sizes(512, 24, 2048)
CUBE = sizes(64, 8, 256)
MOVES = np.array([(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)])
SHARES = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]


def laplacian(xp: Any, u: Any) -> Any:
    return xp.roll(u, 1, 0) + xp.roll(u, -1, 0) + xp.roll(u, 1, 1) + xp.roll(u, -1, 1) - 4 * u


def one_field(n: int) -> Arrays:
    return named(u=uniform((n, n))[0])


def cube(n: int) -> Arrays:
    return named(u=uniform((n, n, n))[0])


def heated(xp: Any, u: Any) -> Any:
    """Ten steps of heat in a block whose surface keeps its temperature."""

    def step(_: Any, u: Any) -> Any:
        inside = u[1:-1, 1:-1, 1:-1]
        around = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
        around = around + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
        return at(u, (slice(1, -1), slice(1, -1), slice(1, -1))).set(inside + 0.1 * (around - 6 * inside))

    return xp.fori_loop(0, 10, step, u)


def conducting(n: int) -> Arrays:
    conductivity, first, seen = uniform((n, n), (n, n), (n, n))
    return named(conductivity=conductivity, first=first, seen=seen)


def conductivity(xp: Any, conductivity: Any, first: Any, seen: Any) -> Any:
    """How far temperatures after ten steps are from those that were seen."""

    def step(_: Any, u: Any) -> Any:
        flow = [0.2 * (conductivity + xp.roll(conductivity, -1, k)) * (xp.roll(u, -1, k) - u) / 2 for k in (0, 1)]
        return u + sum(f - xp.roll(f, 1, k) for k, f in enumerate(flow))

    return xp.mean((xp.fori_loop(0, 10, step, first) - seen) ** 2)


def electric(n: int) -> Arrays:
    e, hx, hy = normal((n, n), (n, n - 1), (n - 1, n))
    return named(e=e, hx=hx, hy=hy)


def propagated(xp: Any, e: Any, hx: Any, hy: Any) -> Any:
    """Electric and magnetic fields on Yee's staggered grid, ten steps, walls that conduct."""

    def step(_: Any, carry: Any) -> Any:
        e, hx, hy = carry
        hx = hx - 0.5 * (e[:, 1:] - e[:, :-1])
        hy = hy + 0.5 * (e[1:] - e[:-1])
        curl = hy[1:, 1:-1] - hy[:-1, 1:-1] - hx[1:-1, 1:] + hx[1:-1, :-1]
        return at(e, (slice(1, -1), slice(1, -1))).add(0.5 * curl), hx, hy

    return xp.fori_loop(0, 10, step, (e, hx, hy))[0]


def populations(n: int) -> Arrays:
    wall = np.zeros((n, n), bool)
    wall[n // 4 : n // 2, n // 3 : n // 2] = True
    return named(f=uniform((9, n, n), low=0.9, high=1.1)[0], wall=wall)


def balanced(xp: Any, f: Any) -> Any:
    moves, shares = xp.asarray(MOVES, dtype=f.dtype), xp.asarray(SHARES, dtype=f.dtype)
    mass = xp.sum(f, 0)
    speed = xp.tensordot(moves.T, f, 1) / mass
    along = xp.tensordot(moves, speed, 1)
    return shares[:, None, None] * mass * (1 + 3 * along + 4.5 * along**2 - 1.5 * xp.sum(speed**2, 0))


def collided(xp: Any, f: Any, wall: Any) -> Any:
    """Collisions of nine populations, written with products of tensors."""
    return f + 0.6 * (balanced(xp, f) - f)


def flowed(xp: Any, f: Any, wall: Any) -> Any:
    """A lattice Boltzmann step around an obstacle from which populations bounce back."""
    f = xp.where(wall, f[np.array(OPPOSITE)], f + 0.6 * (balanced(xp, f) - f))
    return xp.stack([xp.roll(f[k], tuple(int(m) for m in MOVES[k]), (0, 1)) for k in range(9)])


def reacted(xp: Any, u: Any) -> Any:
    """Ten steps of two substances that react and spread (Gray and Scott 1983)."""

    def step(_: Any, carry: Any) -> Any:
        a, b = carry
        made = a * b * b
        a = a + 0.16 * laplacian(xp, a) - made + 0.035 * (1 - a)
        return a, b + 0.08 * laplacian(xp, b) + made - 0.1 * b

    return xp.stack(xp.fori_loop(0, 10, step, (1 - 0.5 * u, 0.25 * u)))


def shallow(n: int) -> Arrays:
    height, x, y = uniform((n, n), low=1.0, high=1.2), *normal((n, n), (n, n))
    return named(state=np.stack([height[0], np.float32(0.1) * x, np.float32(0.1) * y]))


def sloshed(xp: Any, state: Any) -> Any:
    """A step of shallow water by the scheme of Lax and Friedrichs."""
    h, x, y = state
    across = xp.stack([x, x * x / h + 4.9 * h * h, x * y / h])
    along = xp.stack([y, x * y / h, y * y / h + 4.9 * h * h])
    mean = sum(xp.roll(state, by, axis) for by in (1, -1) for axis in (1, 2)) / 4
    return mean - 0.05 * (xp.roll(across, -1, 1) - xp.roll(across, 1, 1) + xp.roll(along, -1, 2) - xp.roll(along, 1, 2))


def blown(n: int) -> Arrays:
    u, x, y = normal((n, n), (n, n), (n, n))
    return named(u=u, x=x, y=y)


def advected(xp: Any, u: Any, x: Any, y: Any) -> Any:
    """What is carried by a wind, looked up where it came from (Stam 1999)."""
    n = u.shape[0]
    line = xp.arange(n).astype(u.dtype)
    row, column = xp.clip(line[:, None] - x, 0, n - 1.001), xp.clip(line[None] - y, 0, n - 1.001)
    i, j = xp.floor(row).astype(xp.int32), xp.floor(column).astype(xp.int32)
    s, t = row - xp.floor(row), column - xp.floor(column)
    return (1 - s) * ((1 - t) * u[i, j] + t * u[i, j + 1]) + s * ((1 - t) * u[i + 1, j] + t * u[i + 1, j + 1])


def divergence_free(xp: Any, x: Any, y: Any, u: Any) -> Any:
    """Speeds less the gradient of the pressure that 20 of Jacobi's steps find."""
    source = (xp.roll(x, -1, 0) - xp.roll(x, 1, 0) + xp.roll(y, -1, 1) - xp.roll(y, 1, 1)) / 2
    p = xp.fori_loop(0, 20, lambda _, p: (laplacian(xp, p) + 4 * p - source) / 4, xp.zeros_like(x))
    return xp.stack([x - (xp.roll(p, -1, 0) - xp.roll(p, 1, 0)) / 2, y - (xp.roll(p, -1, 1) - xp.roll(p, 1, 1)) / 2])


def burgers(xp: Any, u: Any) -> Any:
    """Upwind steps of Burgers' equation on many lines."""

    def step(_: Any, u: Any) -> Any:
        left, right = u - xp.roll(u, 1, 1), xp.roll(u, -1, 1) - u
        return u - 0.2 * u * xp.where(u > 0, left, right) + 0.1 * (right - left)

    return xp.fori_loop(0, 10, step, u)


def spins(n: int) -> Arrays:
    """Random numbers have few bits, so that no rounding decides who flips."""
    chance = (integers((10, 2, n, n), 1024).astype(np.float32) + np.float32(0.3)) / np.float32(1024)
    return named(s=(2 * integers((n, n), 2) - 1).astype(np.int8), chance=chance)


def magnetised(xp: Any, s: Any, chance: Any) -> Any:
    """Ten sweeps of an Ising model, black and white fields in turn, by given random numbers."""
    black = (xp.arange(s.shape[0])[:, None] + xp.arange(s.shape[1])[None]) % 2 == 0

    def sweep(s: Any, row: Any) -> Any:
        for which, drawn in ((black, row[0]), (~black, row[1])):
            around = xp.roll(s, 1, 0) + xp.roll(s, -1, 0) + xp.roll(s, 1, 1) + xp.roll(s, -1, 1)
            flips = which & (drawn < xp.exp(-0.8 * (s * around).astype(drawn.dtype)))
            s = xp.where(flips, -s, s)
        return s, None

    return xp.scan(sweep, s, chance)[0]


def toppled(xp: Any, s: Any) -> Any:
    """Twenty topplings of a pile of sand."""

    def step(_: Any, s: Any) -> Any:
        full = (s >= 4).astype(s.dtype)
        p = xp.pad(full, 1)
        return s - 4 * full + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]

    return xp.fori_loop(0, 20, step, s)


def vortices(xp: Any, u: Any) -> Any:
    """A step of a vorticity on a torus: its stream function by transforms, then what it carries."""
    n = u.shape[0]
    kx, ky = (n * f(n).astype(u.dtype) for f in (xp.fft.fftfreq, xp.fft.rfftfreq))
    kx = kx[:, None]
    square = kx**2 + ky**2
    w = xp.fft.rfft2(u)
    stream = w / xp.where(square == 0, 1.0, square)
    back = lambda f: xp.fft.irfft2(f, s=(n, n))
    carried = back(1j * ky * stream) * back(1j * kx * w) - back(1j * kx * stream) * back(1j * ky * w)
    return u - 1e-4 * carried


PROGRAMS = {
    "heated": script("ten steps of heat in a block", CUBE, cube, heated),
    "conductivity_g": loss("ten steps of heat against temperatures seen", GRID, conducting, conductivity, wrt=(0, 1)),
    "propagated": script("ten steps of electromagnetic fields", GRID, electric, propagated),
    "collided": script("lattice Boltzmann collisions by products of tensors", GRID, populations, collided),
    "flowed": script("a lattice Boltzmann step around an obstacle", GRID, populations, flowed),
    "reacted": script("ten steps of reaction and diffusion", GRID, one_field, reacted),
    "sloshed": script("a step of shallow water", GRID, shallow, sloshed),
    "advected": script("a field carried by a wind", GRID, blown, advected, tolerance=1e-2),
    "divergence_free": script("a pressure that makes a flow divergence-free", GRID, blown, divergence_free),
    "burgers": script("ten steps of Burgers' equation", GRID, one_field, burgers),
    "magnetised": script("ten sweeps of an Ising model", sizes(512, 24, 1024), spins, magnetised),
    "toppled": script("20 topplings of sand", GRID, lambda n: named(s=integers((n, n), 8)), toppled),
    "vortices": script("a step of vorticity by transforms", GRID, one_field, vortices, tolerance=1e-3),
}  # fmt: skip
