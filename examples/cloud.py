"""A cloud rendered by a volumetric path tracer of unbounded depth, and the derivative of its picture by its density.

Each lane is one path of one pixel: it flies to a tentative collision (Woodcock's tracking), scatters there or not,
and goes on until it leaves the box or Russian roulette ends it. That is one `while_loop` whose trip counts nobody
knows; every lane carries its own stream of random numbers, and the reverse pass computes them again.

Decisions aren't differentiable. So they are made by the density as it is, and a path's weight is multiplied by the
probability of each decision over itself: 1 in value, the derivative of the expectation in reverse mode (Nimier-David,
Mueller, Keller, Jakob: Unbiased inverse volume rendering with differential trackers, 2022, section 3, explains this
and better estimators).

    python examples/cloud.py [--size 96] [--paths 64] [--out .]
"""

from __future__ import annotations

import argparse
import struct
import time
import zlib
from pathlib import Path

import numpy as np

import loopgrad as lg

DENSEST = 24.0  # extinction where the cloud is densest; the box has sides of length 1
MAJORANT = 1.25 * DENSEST  # beyond every density: how often paths stop to look
THRESHOLD = 0.2  # below this weight Russian roulette begins
SUN = np.array([0.55, 0.75, -0.35]) / np.linalg.norm([0.55, 0.75, -0.35])


def cloud(size=24, blobs=60, seed=4):
    """Densities at the corners of a grid in the box [0, 1]^3: a heap of soft balls, flat below, in thin haze. (Where
    there is nothing, no path scatters, and what scattering there would do to the picture is not seen.)"""
    rng = np.random.default_rng(seed)
    axis = np.linspace(0.0, 1.0, size)
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    centres = rng.normal([0.5, 0.42, 0.5], [0.2, 0.12, 0.18], (blobs, 3))
    radii = rng.uniform(0.07, 0.19, blobs)
    far = np.linalg.norm(points[..., None, :] - centres, axis=-1)
    density = np.clip(1.3 - far / radii, 0.0, None).max(axis=-1)
    density = np.clip(density * 2.0, 0.0, 1.0) * np.clip((axis - 0.22) * 8.0, 0.0, 1.0)[None, :, None]
    return DENSEST * np.maximum(density, 0.004)


def density_at(grid, point):
    """The density between the corners of the grid: trilinear."""
    last = grid.shape[0] - 1
    corners, shares = [], []
    for p in point:
        scaled = lg.clip(p, 0.0, 1.0) * last
        low = lg.clip(lg.floor(lg.stop_gradient(scaled)), 0.0, last - 1.0)
        corners.append(low.astype(lg.int64))
        shares.append(scaled - low)
    total = 0.0
    for corner in np.ndindex(2, 2, 2):
        places = tuple(c + int(up) for c, up in zip(corners, corner, strict=True))
        factors = [s if up else 1.0 - s for s, up in zip(shares, corner, strict=True)]
        total = total + grid[places] * factors[0] * factors[1] * factors[2]
    return total


def sky(direction):
    """Brightness of what is outside: brighter above, brightest around the sun."""
    towards = sum(float(s) * d for s, d in zip(SUN, direction, strict=True))
    return 0.35 + 0.25 * direction[1] + 9.0 * lg.exp(14.0 * (towards - 1.0))


def trace(grid, sampled, origin, direction, alive, stream, albedo=0.995, outside=sky):
    """The light that each path brings home. Decisions are made by the densities `sampled`, of which the result doesn't
    depend on average; derivatives are those by `grid`."""
    zero = lg.zeros_like(origin[0])

    def trip(path):
        point, heading, weight, light, _, stream = path
        u, stream = stream.random(size=5, dtype=weight.dtype)
        flight = -lg.log(1.0 - u[:, 0]) / MAJORANT
        point = tuple(p + flight * d for p, d in zip(point, heading, strict=True))
        inside = (point[0] >= 0) & (point[0] <= 1) & (point[1] >= 0) & (point[1] <= 1)
        inside = inside & (point[2] >= 0) & (point[2] <= 1)
        light = lg.where(inside, light, light + weight * outside(heading))

        chance = density_at(grid, point) / MAJORANT
        chosen = lg.stop_gradient(density_at(sampled, point)) / MAJORANT
        scatters = inside & (u[:, 1] < chosen)
        likelier = lg.where(scatters, albedo * chance / lg.where(chosen > 0, chosen, 1.0), (1 - chance) / (1 - chosen))
        weight = lg.where(inside, weight * likelier, weight)
        heading = tuple(lg.where(scatters, new, d) for new, d in zip(anywhere(u), heading, strict=True))

        survival = lg.stop_gradient(lg.minimum(weight / THRESHOLD, 1.0))
        alive = inside & (~scatters | (u[:, 4] < survival))
        weight = lg.where(scatters & alive, weight / lg.where(survival > 0, survival, 1.0), weight)
        return point, heading, weight, light, alive, stream

    start = (origin, direction, zero + 1.0, zero, alive, stream)
    return lg.while_loop(lambda path: path[4], trip, start)[3]


def anywhere(u):
    """A direction, all of them alike."""
    height, turn = 2.0 * u[:, 2] - 1.0, 2.0 * np.pi * u[:, 3]
    flat = lg.sqrt(1.0 - height * height)
    return flat * lg.cos(turn), height, flat * lg.sin(turn)


def camera(size, paths, dtype=np.float32):
    """Where the paths of all pixels enter the box, in which direction, and whether they do."""
    axis = ((np.arange(size) + 0.5) / size * 2.0 - 1.0) * 0.36
    x, y = np.meshgrid(axis, -axis)
    heading = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    heading = (heading / np.linalg.norm(heading, axis=0)).repeat(paths, axis=1)
    eye = np.array([0.5, 0.5, -1.4])[:, None]
    with np.errstate(divide="ignore"):  # straight ahead: at infinity
        near, far = np.sort([(0.0 - eye) / heading, (1.0 - eye) / heading], axis=0)
    entry, leaving = near.max(axis=0), far.min(axis=0)
    origin = np.clip(eye + entry * heading, 0.0, 1.0)
    arrays = [lg.asarray(a.astype(dtype)) for a in (*origin, *heading)]
    return tuple(arrays[:3]), tuple(arrays[3:]), lg.asarray(entry < leaving)


def render(grid, sampled, rays, rng, paths):
    """The picture, one number for each pixel."""
    origin, direction, hits = rays
    light = trace(grid, sampled, origin, direction, hits, rng.stream(origin[0].shape))
    return lg.mean(lg.where(hits, light, sky(direction)).reshape(-1, paths), axis=1)


def brightness(grid, sampled, rays, rng, paths):
    """The mean of the picture."""
    return lg.mean(render(grid, sampled, rays, rng, paths))


def write_png(path, pixels):
    """A picture of bytes, (rows, columns, 3)."""
    rows = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels, dtype=np.uint8))

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def signed_colours(image):
    """Red where positive, blue where negative."""
    scaled = np.clip(image / (np.quantile(np.abs(image), 0.99) + 1e-30), -1.0, 1.0)
    white = 1.0 - np.abs(scaled)
    return 255.0 * np.stack([np.where(scaled > 0, 1.0, white), white, np.where(scaled < 0, 1.0, white)], axis=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--paths", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path(), help="the folder of the pictures")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    grid = lg.asarray(cloud().astype(np.float32))
    rays, rng = camera(chosen.size, chosen.paths), lg.random.default_rng(1)

    draw = lg.compile(render, static_argnames="paths")
    began = time.perf_counter()
    image = np.asarray(draw(grid, grid, rays, rng.copy(), paths=chosen.paths)).reshape(chosen.size, chosen.size)
    print(f"{image.size} pixels, {chosen.paths} paths each: {time.perf_counter() - began:.1f} s")

    slope_of = lg.compile(lg.value_and_grad(brightness), static_argnames="paths")
    began = time.perf_counter()
    value, slope = slope_of(grid, grid, rays, rng.copy(), paths=chosen.paths)
    print(f"mean brightness {float(value):.5f}, and its derivative by {slope.size} densities: "
          f"{time.perf_counter() - began:.1f} s")  # fmt: skip

    step = 1e-2  # denser everywhere; the same random numbers, and decisions as before: a smooth function
    mean = lg.compile(brightness, static_argnames="paths")
    ends = [float(mean(grid * (1 + d), grid, rays, rng.copy(), paths=chosen.paths)) for d in (step, -step)]
    by_density, near = float(lg.sum(slope * grid)), (ends[0] - ends[1]) / (2 * step)
    print(f"by a denser cloud: {by_density:.5f}; by differences {near:.5f}")

    shown = np.clip(image / (0.55 + image), 0.0, 1.0)[..., None] ** (1 / 1.4) * [255.0, 252.0, 246.0]
    write_png(chosen.out / "cloud.png", np.kron(shown, np.ones((4, 4, 1))))
    from_the_front = np.asarray(slope).sum(axis=2).T[::-1]
    write_png(chosen.out / "cloud_gradient.png", np.kron(signed_colours(from_the_front), np.ones((16, 16, 1))))
    print("wrote cloud.png and cloud_gradient.png: where more density brightens the picture (red) or darkens it (blue)")


if __name__ == "__main__":
    main()
