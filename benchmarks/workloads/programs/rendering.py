"""Rendering and geometry: rays, splats, samples, surfaces, rotations, points."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import named, normal, sizes
from benchmarks.workloads.arrays.script import loss


def rotation(xp: Any, axis: Any) -> Any:
    """By an axis times its angle (Rodrigues 1840)."""
    angle = xp.sqrt(xp.sum(axis * axis))
    x, y, z = (axis[k] / angle for k in range(3))
    zero = xp.zeros_like(x)
    across = xp.stack([xp.stack([zero, -z, y]), xp.stack([z, zero, -x]), xp.stack([-y, x, zero])])
    return xp.eye(3, dtype=axis.dtype) + xp.sin(angle) * across + (1 - xp.cos(angle)) * across @ across


def posed(n: int) -> Arrays:
    axis, points, noise = normal((3,), (n, 3), (n, 3))
    target = points @ rotation(np, axis + np.float32(0.3)).T + np.float32(0.01) * noise
    return named(axis=axis, points=points, target=target)


def misplaced(xp: Any, axis: Any, points: Any, target: Any) -> Any:
    apart = points @ rotation(xp, axis).T - target
    return xp.mean(xp.sum(apart * apart, -1))


PROGRAMS = {
    "pose_g": loss("a rotation fitted to points", sizes(2**18, 100, 2**22), posed, misplaced, wrt=(0,)),
}  # fmt: skip
