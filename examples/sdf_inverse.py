"""Inverse rendering of a signed distance field: find spheres from a picture of them.

Each pixel walks along its ray (sphere tracing) until it hits the surface or leaves the scene: a
`while_loop` whose length differs from pixel to pixel. The gradient of the image loss with respect to
centres and radii goes back through those walks. Writes before, target and after as pictures.

    python examples/sdf_inverse.py [--size 96] [--iterations 300] [--out .]
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np

import loopgrad as lg

FAR, HIT, BLEND = 6.0, 1e-3, 12.0
EDGE = 8.0  # sharpness of the silhouette: how fast coverage falls with the distance a ray misses by
FOG = 2.0  # how fast brightness falls with distance: it tells near from far
LIGHT = np.array([0.5, 0.7, -0.5]) / np.linalg.norm([0.5, 0.7, -0.5])

TARGET = np.array([[-0.55, 0.35, 0.0, 0.45], [0.5, 0.4, 0.2, 0.35], [0.05, -0.45, -0.1, 0.5], [1.0, -0.4, 0.1, 0.3]])
START = np.array([[-0.3, 0.1, 0.2, 0.35], [0.3, 0.6, 0.0, 0.35], [-0.2, -0.3, 0.1, 0.35], [0.8, -0.2, 0.0, 0.35]])


def distance(point, spheres):
    """A smooth union of the spheres (rows: centre, radius); negative inside."""
    x, y, z = point
    total = 0.0
    for k in range(spheres.shape[0]):
        dx, dy, dz = x - spheres[k, 0], y - spheres[k, 1], z - spheres[k, 2]
        total = total + lg.exp(-BLEND * (lg.sqrt(dx * dx + dy * dy + dz * dz) - spheres[k, 3]))
    return -lg.log(total) / BLEND


def rays(size):
    """Directions of a pinhole camera at z = -3."""
    axis = (np.arange(size) + 0.5) / size * 2.0 - 1.0
    x, y = np.meshgrid(axis, -axis)
    directions = np.stack([x * 0.5, y * 0.5, np.ones_like(x)])
    directions /= np.linalg.norm(directions, axis=0)
    return tuple(lg.asarray(d.reshape(-1)) for d in directions)


def render(spheres, directions):
    """The brightness of every pixel."""
    dx, dy, dz = directions

    def at(t):
        return t * dx, t * dy, t * dz - 3.0

    def walking(carry):
        t, _, here = carry
        return (here > HIT) & (t < FAR)

    def walk(carry):
        t, nearest, here = carry
        t = t + here
        here = distance(at(t), spheres)
        return t, lg.minimum(nearest, here), here

    begin = lg.full(dx.shape, 1.5)
    first = distance(at(begin), spheres)
    t, nearest, _ = lg.while_loop(walking, walk, (begin, first, first))
    seen = lg.exp(-EDGE * lg.maximum(nearest, 0.0) - FOG * (t - 1.5))
    return shade(at(t), spheres) * seen


def shade(point, spheres):
    """Lambert's law with a little ambient light; the normal from differences of the field."""
    step = 1e-3
    x, y, z = point
    moved = ((x + step, y, z), (x, y + step, z), (x, y, z + step))
    moved_back = ((x - step, y, z), (x, y - step, z), (x, y, z - step))
    pairs = zip(moved, moved_back, strict=True)
    normal = [(distance(up, spheres) - distance(down, spheres)) / (2 * step) for up, down in pairs]
    facing = sum(float(weight) * component for weight, component in zip(LIGHT, normal, strict=True))
    return 0.15 + 0.85 * lg.maximum(facing, 0.0)


def adam_step(spheres, first, second, count, rate, target, directions):
    """One step of Adam on the spheres; returns the loss before it."""

    def image_loss(spheres):
        return lg.mean((render(spheres, directions) - target) ** 2)

    loss, slope = lg.value_and_grad(image_loss)(spheres)
    first = 0.9 * first + 0.1 * slope
    second = 0.99 * second + 0.01 * slope * slope
    unbiased = first / (1.0 - 0.9**count)
    scale = lg.sqrt(second / (1.0 - 0.99**count)) + 1e-8
    return spheres - rate * unbiased / scale, first, second, count + 1.0, loss


def invert(size=96, iterations=300, report=None):
    """Images before, target and after; the spheres found; the losses on the way."""
    directions = rays(size)
    draw = lg.compile(render)
    target = draw(lg.asarray(TARGET), directions)
    update = lg.compile(adam_step)
    state = [lg.asarray(START), lg.zeros(START.shape), lg.zeros(START.shape), lg.asarray(1.0)]
    losses = []
    for iteration in range(iterations):
        cooled = 0.03 * 0.5 * (1.0 + np.cos(np.pi * iteration / iterations))
        *state, loss = update(*state, lg.asarray(cooled), target, directions)
        losses.append(float(loss))
        if report is not None:
            report(iteration + 1, losses[-1])
    images = [np.asarray(draw(lg.asarray(s), directions)).reshape(size, size) for s in (START, TARGET, state[0])]
    return images, np.asarray(state[0]), losses


def write_png(path, image):
    """A greyscale picture with values in [0, 1], magnified four times."""
    pixels = np.kron((255 * np.clip(image, 0, 1)).astype(np.uint8), np.ones((4, 4), dtype=np.uint8))
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path(), help="the folder of the pictures")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    began, live = time.perf_counter(), sys.stdout.isatty()

    def report(iteration, loss):
        last = iteration == chosen.iterations
        if live or last or iteration % 30 == 0:
            text = f"iteration {iteration:4d}/{chosen.iterations}  image loss {loss:.3e}"
            print(f"{text}  {time.perf_counter() - began:5.1f} s", end="\r" if live and not last else "\n", flush=True)

    images, spheres, _ = invert(chosen.size, chosen.iterations, report)
    for name, image in zip(("before", "target", "after"), images, strict=True):
        path = chosen.out / f"sdf_{name}.png"
        write_png(path, image)
        print(f"wrote {path}")
    print("\nspheres found (x, y, z, radius), and their error against the target")
    for found, wanted in zip(spheres, TARGET, strict=True):
        print("  " + "  ".join(f"{v:7.3f}" for v in found) + f"   {np.abs(found - wanted).max():.3f}")


if __name__ == "__main__":
    main()
