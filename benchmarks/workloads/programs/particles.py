"""Particles: forces between pairs and neighbours, charges on grids, flocks, springs, walks."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import at, loss, script

GRID = 256
CELLS = 4096
NEIGHBOURS = 32
PAIRS = sizes(1024, 24, 4096)
PAIRS_BACK = sizes(768, 24, 2048)
PARTICLES = sizes(2**18, 100, 2**22)


def charges(n: int) -> Arrays:
    return named(x=uniform((n, 2), high=GRID)[0], charge=normal((n,))[0])


def deposited(xp: Any, x: Any, charge: Any) -> Any:
    """Charges of particles on the four nodes around each, by the cloud-in-cell weights."""
    first = xp.floor(x).astype(xp.int32)
    f = x - xp.floor(x)
    grid = xp.zeros((GRID, GRID), dtype=x.dtype)
    for a, wx in ((0, 1 - f[:, 0]), (1, f[:, 0])):
        for b, wy in ((0, 1 - f[:, 1]), (1, f[:, 1])):
            grid = at(grid, ((first[:, 0] + a) % GRID, (first[:, 1] + b) % GRID)).add(charge * wx * wy)
    return grid


def counted(xp: Any, x: Any, charge: Any) -> Any:
    """The same by counts with weights."""
    first = xp.floor(x).astype(xp.int32)
    f = x - xp.floor(x)
    total = xp.zeros(GRID * GRID, dtype=x.dtype)
    for a in (0, 1):
        for b in (0, 1):
            cell = (first[:, 0] + a) % GRID * GRID + (first[:, 1] + b) % GRID
            near = xp.abs(1 - a - f[:, 0]) * xp.abs(1 - b - f[:, 1])
            total = total + xp.bincount(cell, weights=charge * near, length=GRID * GRID).astype(x.dtype)
    return total.reshape(GRID, GRID)


def plasma(n: int) -> Arrays:
    (x,), (v,) = uniform((n,), high=CELLS - 1e-3), normal((n,))
    return named(x=x, v=v)


def particle_in_cell(xp: Any, x: Any, v: Any) -> Any:
    """A step of electrons on a line: their charge on a grid, its field by a transform, and the push."""
    cell = xp.floor(x).astype(xp.int32)
    f = x - xp.floor(x)
    density = at(xp.zeros(CELLS, dtype=x.dtype), cell).add(1 - f)
    density = at(density, (cell + 1) % CELLS).add(f) * (CELLS / x.shape[0])
    wave = 2 * np.pi * xp.fft.rfftfreq(CELLS).astype(x.dtype)
    square = xp.where(wave == 0, 1.0, wave * wave)
    potential = xp.fft.irfft(xp.where(wave == 0, 0.0, xp.fft.rfft(density - 1) / square), CELLS)
    field = (xp.roll(potential, 1) - xp.roll(potential, -1)) / 2
    v = v - 0.1 * ((1 - f) * field[cell] + f * field[(cell + 1) % CELLS])
    return xp.stack([x + 0.1 * v, v])


def orbits(n: int) -> Arrays:
    v, e, b = normal((n, 3), (n, 3), (n, 3))
    return named(v=v, e=e, b=b)


def pushed(xp: Any, v: Any, e: Any, b: Any) -> Any:
    """Velocities in electric and magnetic fields after a step (Boris 1970)."""
    half = v + 0.05 * e
    t = 0.05 * b
    s = 2 * t / (1 + xp.sum(t * t, -1, keepdims=True))
    return half + xp.cross(half + xp.cross(half, t), s) + 0.05 * e


def bodies(n: int) -> Arrays:
    x, v = normal((n, 3), (n, 3))
    return named(x=x, v=v, mass=uniform((n,), low=0.5, high=1.5)[0])


def attracted(xp: Any, x: Any, v: Any, mass: Any) -> Any:
    """Positions and velocities of bodies under gravity after a leapfrog step."""
    apart = x[None] - x[:, None]
    square = xp.sum(apart**2, -1) + 0.01
    pull = xp.sum((mass[None] * square**-1.5)[..., None] * apart, 1) / x.shape[0]
    v = v + 0.01 * pull
    return xp.concatenate([x + 0.01 * v, v], 1)


def gravity(xp: Any, x: Any, v: Any, mass: Any) -> Any:
    """The energy of such bodies."""
    square = xp.sum((x[None] - x[:, None]) ** 2, -1) + 0.01
    kinetic = xp.sum(mass * xp.sum(v * v, -1)) / 2
    return kinetic - xp.sum(mass[:, None] * mass[None] / xp.sqrt(square)) / (2 * x.shape[0])


def flock(n: int) -> Arrays:
    """At places of few bits, so that no rounding decides who is in sight."""
    x = integers((n, 2), 10 * 1024).astype(np.float32) / np.float32(1024)
    return named(x=x, v=uniform((n, 2), low=-0.5, high=0.5)[0])


def boids(xp: Any, x: Any, v: Any) -> Any:
    """Velocities of a flock: away from the nearest, along with and towards those in sight (Reynolds 1987)."""
    apart = x[:, None] - x[None]
    square = xp.sum(apart * apart, -1)
    near, close = square < 1.0, square < 0.04
    count = xp.maximum(xp.sum(near, 1), 1).astype(x.dtype)[:, None]
    along = xp.sum(xp.where(near[..., None], v[None], 0.0), 1) / count - v
    towards = xp.sum(xp.where(near[..., None], x[None], 0.0), 1) / count - x
    away = xp.sum(xp.where(close[..., None], apart, 0.0), 1)
    v = v + 0.05 * along + 0.01 * towards + 0.1 * away
    speed = xp.sqrt(xp.sum(v * v, -1, keepdims=True))
    return v / xp.maximum(speed, 1e-6) * xp.clip(speed, 0.2, 1.0)


def water(n: int) -> Arrays:
    return named(x=uniform((n, 3))[0])


def smoothed_density(xp: Any, x: Any) -> Any:
    """Densities of smoothed particles (poly6, Mueller 2003)."""
    square = xp.sum((x[:, None] - x[None]) ** 2, -1)
    return xp.sum(xp.maximum(0.04 - square, 0.0) ** 3, 1) * (315 / (64 * np.pi * 0.2**9)) / x.shape[0]


def compressed(xp: Any, x: Any) -> Any:
    return xp.mean((smoothed_density(xp, x) - 1.0) ** 2)


def listed(n: int) -> Arrays:
    """Particles that are about in the order of a lattice, and neighbours of each by number."""
    lattice = np.arange(n)
    side = max(round(n ** (1 / 3)), 1)
    x = np.stack([lattice % side, lattice // side % side, lattice // side**2], 1) + 0.2 * normal((n, 3))[0]
    near = (lattice[:, None] + integers((n, NEIGHBOURS), 4 * side) - 2 * side) % n
    return named(x=x.astype(np.float32), near=near.astype(np.int32))


def bound(xp: Any, x: Any, near: Any) -> Any:
    """A potential of Lennard and Jones between particles and their listed neighbours, kept finite."""
    apart = x[near] - x[:, None]
    square = xp.sum(apart * apart, -1) + 0.7
    s = (1 / square) ** 3
    return xp.sum(xp.where(square < 9.0, 4 * (s * s - s) + 0.0055, 0.0)) / x.shape[0]


def neighbour_forces(xp: Any, x: Any, near: Any) -> Any:
    apart = x[:, None] - x[near]
    square = xp.sum(apart * apart, -1, keepdims=True) + 0.7
    s = xp.where(square < 9.0, 1 / square, 0.0)
    return xp.sum(24 * s * (2 * s**6 - s**3) * apart, 1)


def net(n: int) -> Arrays:
    """Points and springs between them, each to one of the next."""
    first = np.repeat(np.arange(n, dtype=np.int32), 4)
    second = (first + integers(first.shape, 50) + 1) % n
    return named(x=normal((n, 3))[0], first=first, second=second.astype(np.int32))


def stretched(xp: Any, x: Any, first: Any, second: Any) -> Any:
    apart = x[first] - x[second]
    length = xp.sqrt(xp.sum(apart * apart, -1) + 1e-6)
    return xp.sum((length - 1) ** 2) / x.shape[0]


def spring_forces(xp: Any, x: Any, first: Any, second: Any) -> Any:
    apart = x[second] - x[first]
    length = xp.linalg.norm(apart, axis=-1, keepdims=True) + 1e-6
    pull = (length - 1) * apart / length
    return at(at(xp.zeros_like(x), first).add(pull), second).add(-pull)


def oscillators(n: int) -> Arrays:
    return named(phase=uniform((n,), high=2 * np.pi)[0], rate=normal((n,))[0])


def synchronised(xp: Any, phase: Any, rate: Any) -> Any:
    """Phases of coupled oscillators after a step (Kuramoto 1975)."""
    return phase + 0.01 * (rate + xp.mean(xp.sin(phase[None] - phase[:, None]), 1))


def walked(xp: Any, steps: Any) -> Any:
    """Mean square distances of walkers from where they began, at each time."""
    return xp.mean(xp.sum(xp.cumsum(steps, 1) ** 2, -1), 0)


def shells(xp: Any, x: Any) -> Any:
    """Pairs of particles by distance, in 64 shells."""
    apart = x[:, None] - x[None]
    apart = apart - xp.round(apart)
    far = xp.sqrt(xp.sum(apart * apart, -1))
    shell = xp.minimum((far * 64).astype(xp.int32), 64)
    return xp.bincount(shell.reshape(-1), length=65)[:64]


def sorted_by_cell(xp: Any, x: Any, v: Any, mass: Any) -> Any:
    """Particles in the order of the cells that they are in."""
    cell = xp.clip(xp.floor(4 * x).astype(xp.int32) + 16, 0, 31)
    order = xp.argsort(cell[:, 0] * 1024 + cell[:, 1] * 32 + cell[:, 2], stable=True)
    return xp.concatenate([x[order], v[order], mass[order][:, None]], 1)


PROGRAMS = {
    "deposited": script("charges of particles on a grid", PARTICLES, charges, deposited),
    "deposit_counts": script("charges on a grid by weighted counts", PARTICLES, charges, counted),
    "particle_in_cell": script("a step of a plasma on a line", PARTICLES, plasma, particle_in_cell, tolerance=1e-3),
    "pushed": script("velocities in electric and magnetic fields", PARTICLES, orbits, pushed),
    "attracted": script("a step of bodies under gravity", PAIRS, bodies, attracted),
    "gravity_g": loss("the energy of bodies under gravity", PAIRS_BACK, bodies, gravity, wrt=(0, 1)),
    "boids": script("a step of a flock", PAIRS, flock, boids, tolerance=1e-3),
    "water_density": script("densities of smoothed particles", PAIRS, water, smoothed_density),
    "water_density_g": loss("unevenness of such densities", PAIRS_BACK, water, compressed, wrt=(0,)),
    "neighbour_forces": script("forces between listed neighbours", sizes(2**14, 100, 2**18), listed, neighbour_forces),
    "neighbours_g": loss("energy of listed neighbours", sizes(2**14, 100, 2**18), listed, bound, wrt=(0,)),
    "spring_forces": script("forces of springs between points", sizes(2**16, 100, 2**20), net, spring_forces),
    "springs_g": loss("energy of springs between points", sizes(2**16, 100, 2**20), net, stretched, wrt=(0,)),
    "synchronised": script("a step of coupled oscillators", sizes(1024, 24, 8192), oscillators, synchronised),
    "walked": script(
        "mean square distances of walkers", sizes(2**12, 16, 2**14), lambda n: named(steps=normal((n, 256, 2))[0]),
        walked, tolerance=1e-3,
    ),
    "shells": script("pairs of particles by distance", PAIRS, water, shells, tolerance=1e-2),
    "sorted_by_cell": script("particles ordered by cell", sizes(2**17, 100, 2**21), bodies, sorted_by_cell),
}  # fmt: skip
