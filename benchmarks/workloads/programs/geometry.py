"""Geometry: meshes, rotations, clouds of points, cameras, distance fields."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import at, loss, script

BONES = 24
CAMERAS = 64
POINTS = sizes(2**18, 100, 2**22)
VERTICES = sizes(2**16, 100, 2**20)
CLOUD = sizes(1024, 30, 4096)


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


def mesh(n: int) -> Arrays:
    """A strip of about 2 n triangles between n points."""
    first = np.arange(2 * n, dtype=np.int32)[:, None] // 2
    faces = (first + integers((2 * n, 3), 30)) % n
    return named(x=normal((n, 3))[0], faces=faces.astype(np.int32))


def vertex_normals(xp: Any, x: Any, faces: Any) -> Any:
    a, b, c = (x[faces[:, k]] for k in range(3))
    across = xp.cross(b - a, c - a)
    total = xp.zeros_like(x)
    for k in range(3):
        total = at(total, faces[:, k]).add(across)
    return total / (xp.linalg.norm(total, axis=-1, keepdims=True) + 1e-3)


def area(xp: Any, x: Any, faces: Any) -> Any:
    """Of all triangles, and the volume that they enclose."""
    a, b, c = (x[faces[:, k]] for k in range(3))
    across = xp.cross(b - a, c - a)
    return xp.mean(xp.sqrt(xp.sum(across**2, -1) + 1e-6)) / 2 + xp.mean(xp.sum(a * xp.cross(b, c), -1)) / 6


def ringed(n: int) -> Arrays:
    near = (np.arange(n)[:, None] + integers((n, 6), 100) - 50) % n
    return named(x=normal((n, 3))[0], near=near.astype(np.int32))


def smoothed(xp: Any, x: Any, near: Any) -> Any:
    """Five steps of each point towards the mean of its six neighbours."""
    return xp.fori_loop(0, 5, lambda _, x: x + 0.5 * (xp.mean(x[near], 1) - x), x)


def quaternions(n: int) -> Arrays:
    q, p = normal((n, 4), (n, 4))
    return named(q=q, p=p)


def matrices(xp: Any, q: Any, p: Any) -> Any:
    """Rotations by products of quaternions."""
    w, x, y, z = (q[:, k] for k in range(4))
    a, b, c, d = (p[:, k] for k in range(4))
    w, x, y, z = w * a - x * b - y * c - z * d, w * b + x * a + y * d - z * c, w * c - x * d + y * a + z * b, (
        w * d + x * c - y * b + z * a
    )  # fmt: skip
    norm = 1 / xp.sqrt(w * w + x * x + y * y + z * z)
    w, x, y, z = w * norm, x * norm, y * norm, z * norm
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return xp.stack([xp.stack(row, -1) for row in rows], -2)


def turned_frames(n: int) -> Arrays:
    a, b, v = normal((n, 3, 3), (n, 3, 3), (n, 3))
    return named(a=a, b=b, v=v)


def composed(xp: Any, a: Any, b: Any, v: Any) -> Any:
    return ((a @ b) @ v[..., None])[..., 0]


def clouds(n: int) -> Arrays:
    x, y = normal((n, 3), (n, 3))
    return named(x=x, y=y)


def chamfer(xp: Any, x: Any, y: Any) -> Any:
    """How far each point of a cloud is from the nearest one of the other."""
    square = xp.sum((x[:, None] - y[None]) ** 2, -1)
    return xp.mean(xp.min(square, 1)) + xp.mean(xp.min(square, 0))


def five_nearest(xp: Any, x: Any, y: Any) -> Any:
    """Distances to the five nearest points, by the binomial formula."""
    square = xp.sum(x * x, 1)[:, None] + xp.sum(y * y, 1) - 2 * x @ y.T
    return xp.sqrt(xp.maximum(xp.sort(square, 1)[:, :5], 0.0))


def centred(xp: Any, x: Any, y: Any) -> Any:
    """A cloud's covariance with another one, both less their centres."""
    x, y = x - xp.mean(x, 0), y - xp.mean(y, 0)
    return x.T @ y / x.shape[0]


def voxel_means(xp: Any, x: Any, y: Any) -> Any:
    """Means of the points in each of 32 x 32 x 32 voxels."""
    cell = xp.clip(xp.floor(8 * x).astype(xp.int32) + 16, 0, 31)
    index = (cell[:, 0] * 32 + cell[:, 1]) * 32 + cell[:, 2]
    count = at(xp.zeros((32**3,), dtype=x.dtype), index).add(1.0)
    return at(xp.zeros((32**3, 3), dtype=x.dtype), index).add(x) / xp.maximum(count, 1)[:, None]


def seen(n: int) -> Arrays:
    points, matrix = normal((n, 3), (4, 4))
    return named(points=points, matrix=matrix)


def projected(xp: Any, points: Any, matrix: Any) -> Any:
    """Pixels of points, by a camera's matrix of 4 x 4."""
    whole = xp.concatenate([points, xp.ones_like(points[:, :1])], 1) @ matrix.T
    depth = xp.sqrt(whole[:, 3:] ** 2 + 0.1)
    return 256 * (whole[:, :2] / depth) + 128


def observed(n: int) -> Arrays:
    """Points seen by cameras, n times."""
    cameras, points, noise = normal((CAMERAS, 6), (n // 8 + 1, 3), (n, 2))
    which, where = integers((n,), CAMERAS), integers((n,), n // 8 + 1, seed=2)
    cameras = cameras / np.float32(10)
    cameras[:, 5] += 6
    return named(cameras=cameras, points=points, which=which, where=where, pixels=noise)


def reprojected(xp: Any, cameras: Any, points: Any, which: Any, where: Any, pixels: Any) -> Any:
    """Squares of errors of a bundle of rays, as they are adjusted."""
    camera, x = cameras[which], points[where]
    turn = camera[:, :3]
    x = x + xp.cross(turn, x) + xp.cross(turn, xp.cross(turn, x)) / 2 + camera[:, 3:]
    error = x[:, :2] / x[:, 2:] - 0.1 * pixels
    return xp.mean(xp.log(1 + xp.sum(error * error, -1)))


def skin(n: int) -> Arrays:
    x, pose = normal((n, 3), (BONES, 3, 4))
    share = uniform((n, BONES))[0] ** 4
    return named(x=x, share=share / share.sum(1, keepdims=True), pose=pose)


def skinned(xp: Any, x: Any, share: Any, pose: Any) -> Any:
    """Points moved by a mixture of bones' matrices."""
    mixed = xp.einsum("nb,bij->nij", share, pose)
    return xp.einsum("nij,nj->ni", mixed[..., :3], x) + mixed[..., 3]


def skin_loss(xp: Any, x: Any, share: Any, pose: Any) -> Any:
    return xp.mean(skinned(xp, x, share, pose) ** 2)


def depths(n: int) -> Arrays:
    return named(depth=uniform((n, n), low=1.0, high=1.2)[0])


def depth_normals(xp: Any, depth: Any) -> Any:
    """Normals of the surface that a picture of depths shows."""
    n = depth.shape[0]
    line = ((xp.arange(n) - n / 2) / n).astype(depth.dtype)
    points = xp.stack([line[:, None] * depth, line[None] * depth, depth], -1)
    across = xp.cross(points[1:, :-1] - points[:-1, :-1], points[:-1, 1:] - points[:-1, :-1])
    return across / (xp.linalg.norm(across, axis=-1, keepdims=True) + 1e-6)


def spots(n: int) -> Arrays:
    return named(x=normal((n, 3))[0])


def scene(xp: Any, x: Any) -> Any:
    """A distance field: a torus, a rounded box and a ball that merge."""
    flat = xp.sqrt(x[..., 0] ** 2 + x[..., 1] ** 2)
    torus = xp.sqrt((flat - 1) ** 2 + x[..., 2] ** 2) - 0.3
    out = xp.maximum(xp.abs(x) - 0.5, 0.0)
    box = xp.sqrt(xp.sum(out**2, -1) + 1e-12) - 0.1
    ball = xp.sqrt(xp.sum((x - 0.6) ** 2, -1)) - 0.4
    return -xp.log(xp.exp(-8 * torus) + xp.exp(-8 * box) + xp.exp(-8 * ball)) / 8


def scene_normals(xp: Any, x: Any) -> Any:
    """Of the field, by differences at four corners."""
    corners = np.array([(1, -1, -1), (-1, -1, 1), (-1, 1, -1), (1, 1, 1)])
    g = sum(xp.asarray(k, dtype=x.dtype) * scene(xp, x + xp.asarray(0.01 * k, dtype=x.dtype))[:, None] for k in corners)
    return g / (xp.linalg.norm(g, axis=-1, keepdims=True) + 1e-3)


def scene_loss(xp: Any, x: Any) -> Any:
    return xp.mean(scene(xp, x) ** 2)


PROGRAMS = {
    "pose_g": loss("a rotation fitted to points", POINTS, posed, misplaced, wrt=(0,)),
    "vertex_normals": script("normals of a mesh's vertices", VERTICES, mesh, vertex_normals, tolerance=1e-3),
    "area_g": loss("a mesh's area and volume", VERTICES, mesh, area, wrt=(0,)),
    "mesh_smoothed": script("points towards their neighbours", VERTICES, ringed, smoothed),
    "matrices": script("rotations by products of quaternions", POINTS, quaternions, matrices),
    "composed": script("products of 3 x 3 matrices on points", POINTS, turned_frames, composed),
    "chamfer_g": loss("a distance between clouds", CLOUD, clouds, chamfer, wrt=(0, 1)),
    "five_nearest": script("distances to the five nearest points", sizes(1024, 30, 2048), clouds, five_nearest,
                           tolerance=1e-2),
    "centred": script("covariances of clouds", POINTS, clouds, centred, tolerance=1e-3),
    "voxel_means": script("means of points in voxels", sizes(2**17, 100, 2**21), clouds, voxel_means),
    "projected": script("pixels of points", POINTS, seen, projected),
    "reprojected_g": loss("errors of a bundle of rays", VERTICES, observed, reprojected, wrt=(0, 1)),
    "skinned": script("points moved by 24 bones", VERTICES, skin, skinned),
    "skin_g": loss("the same, squared", VERTICES, skin, skin_loss, wrt=(1, 2)),
    "depth_normals": script("normals of a picture of depths", sizes(512, 24, 2048), depths, depth_normals,
                            tolerance=1e-3),
    "scene": script("a distance field of three bodies", POINTS, spots, scene),
    "scene_normals": script("normals of such a field", sizes(2**17, 100, 2**21), spots, scene_normals, tolerance=1e-2),
    "scene_g": loss("such a field, squared", POINTS, spots, scene_loss, wrt=(0,)),
}  # fmt: skip
