"""Rendering: rays, splats, samples of textures, light."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import at, loss, script

SAMPLES = 64
SIDE = 64
TABLE = 2**16
PRIMES = (1, 2654435761, 805459861)
RAYS = sizes(2**13, 40, 2**17)
PIXELS = sizes(2**18, 100, 2**22)
PICTURE = sizes(512, 24, 2048)


def rays(n: int) -> Arrays:
    density, colour, seen = uniform((n, SAMPLES), (n, SAMPLES, 3), (n, 3))
    return named(density=5 * density, colour=colour, seen=seen)


def through(xp: Any, density: Any, colour: Any, seen: Any) -> Any:
    """Colours of rays through a volume (Max 1995)."""
    opacity = 1 - xp.exp(-density * 0.03)
    left = xp.cumprod(1 - opacity + 1e-10, 1)
    left = xp.concatenate([xp.ones_like(left[:, :1]), left[:, :-1]], 1)
    return xp.sum((opacity * left)[..., None] * colour, 1)


def radiance(xp: Any, density: Any, colour: Any, seen: Any) -> Any:
    return xp.mean((through(xp, density, colour, seen) - seen) ** 2)


def splats(n: int) -> Arrays:
    """Blobs in the plane, and the picture that they should make."""
    at_, spread, colour, seen = uniform((64, 2), (64,), (64, 3), (n, n, 3))
    return named(at_=at_, spread=np.float32(0.05) + spread / 10, colour=colour, seen=seen)


def splatted(xp: Any, at_: Any, spread: Any, colour: Any, seen: Any) -> Any:
    """A sum of Gaussians at each pixel."""
    n = seen.shape[0]
    line = (xp.arange(n) / n).astype(at_.dtype)
    x, y = xp.meshgrid(line, line, indexing="ij")
    square = (x[..., None] - at_[:, 0]) ** 2 + (y[..., None] - at_[:, 1]) ** 2
    return xp.exp(-square / (2 * spread**2)) @ colour


def splat_loss(xp: Any, at_: Any, spread: Any, colour: Any, seen: Any) -> Any:
    return xp.mean((splatted(xp, at_, spread, colour, seen) - seen) ** 2)


def spheres(n: int) -> Arrays:
    centre = uniform((32, 3), low=-1.0)[0]
    return named(ray=normal((n, 3))[0], centre=centre + np.array([0, 0, 4], np.float32), radius=uniform((32,))[0])


def sphere_depth(xp: Any, ray: Any, centre: Any, radius: Any) -> Any:
    """How far the nearest of 32 spheres is along a ray, 100 where there is none."""
    ray = ray / xp.linalg.norm(ray, axis=-1, keepdims=True)
    along = ray @ centre.T
    inside = along**2 - xp.sum(centre**2, -1) + radius**2
    far = along - xp.sqrt(xp.maximum(inside, 0.0))
    return xp.min(xp.where((inside > 0) & (far > 0), far, 100.0), -1)


def triangles(n: int) -> Arrays:
    start, ray, corners = normal((n, 3), (n, 3), (64, 3, 3))
    return named(start=start, ray=ray, corners=corners)


def triangle_hits(xp: Any, start: Any, ray: Any, corners: Any) -> Any:
    """Whether a ray meets any of 64 triangles (Moeller and Trumbore 1997), and how many."""
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    p = xp.cross(ray[:, None], second[None])
    share = 1 / xp.sum(p * first, -1)
    s = start[:, None] - corners[None, :, 0]
    u = xp.sum(s * p, -1) * share
    q = xp.cross(s, first[None])
    v = xp.sum(q * ray[:, None], -1) * share
    t = xp.sum(q * second, -1) * share
    return xp.sum((u >= 0) & (v >= 0) & (u + v <= 1) & (t > 0), -1).astype(xp.float32)


def boxes(n: int) -> Arrays:
    start, ray = normal((n, 3), (n, 3))
    low = uniform((16, 3), low=-2.0)[0]
    return named(start=start, ray=ray, low=low, high=low + np.float32(0.7))


def box_depth(xp: Any, start: Any, ray: Any, low: Any, high: Any) -> Any:
    """Where rays enter the nearest of 16 boxes (Kay and Kajiya 1986)."""
    a, b = ((side - start[:, None]) / ray[:, None] for side in (low, high))
    enters, leaves = xp.max(xp.minimum(a, b), -1), xp.min(xp.maximum(a, b), -1)
    return xp.min(xp.where(enters <= leaves, xp.clip(enters, 0.0, 50.0), 50.0), -1)


def waves(*shape: int) -> np.ndarray:
    """What changes little between neighbours, so that its slope between them does, too."""
    places = np.meshgrid(*[np.linspace(0, 5, n) for n in shape], indexing="ij")
    return sum(np.sin((k + 1) * x + k) for k, x in enumerate(places)).astype(np.float32)


def textured(n: int) -> Arrays:
    return named(texture=waves(512, 512, 3), uv=uniform((n, 2), low=0.01, high=0.99)[0])


def looked_up(xp: Any, texture: Any, uv: Any) -> Any:
    """Colours of a texture between four of its pixels."""
    x = uv * (texture.shape[0] - 1)
    first = xp.floor(x).astype(xp.int32)
    i, j = first[:, 0], first[:, 1]
    f = x - xp.floor(x)
    s, t = f[:, :1], f[:, 1:]
    above = texture[i, j] * (1 - t) + texture[i, j + 1] * t
    below = texture[i + 1, j] * (1 - t) + texture[i + 1, j + 1] * t
    return above * (1 - s) + below * s


def texture_loss(xp: Any, texture: Any, uv: Any) -> Any:
    return xp.mean(looked_up(xp, texture, uv) ** 2)


def voxels(n: int) -> Arrays:
    return named(grid=waves(SIDE, SIDE, SIDE, 4), x=uniform((n, 3), low=0.01, high=0.99)[0])


def trilinear(xp: Any, grid: Any, x: Any) -> Any:
    """Four features at points between eight voxels."""
    x = x * (SIDE - 1)
    first = xp.floor(x).astype(xp.int32)
    f = x - xp.floor(x)
    shares, total = (1 - f, f), 0.0
    for a in (0, 1):
        for b in (0, 1):
            for c in (0, 1):
                share = shares[a][:, 0] * shares[b][:, 1] * shares[c][:, 2]
                total = total + share[:, None] * grid[first[:, 0] + a, first[:, 1] + b, first[:, 2] + c]
    return total


def voxel_loss(xp: Any, grid: Any, x: Any) -> Any:
    return xp.mean(trilinear(xp, grid, x) ** 2)


def hashed(n: int) -> Arrays:
    return named(table=normal((4, TABLE, 2))[0], x=uniform((n, 3))[0])


def encoded(xp: Any, table: Any, x: Any) -> Any:
    """Features of points by hashed grids of four sizes (Mueller 2022), from the nearest voxel."""
    made = []
    for level in range(4):
        cell = xp.floor(x * (16 << level)).astype(xp.uint32)
        place = cell[:, 0] ^ (cell[:, 1] * xp.uint32(PRIMES[1])) ^ (cell[:, 2] * xp.uint32(PRIMES[2]))
        made.append(table[level][(place % xp.uint32(TABLE)).astype(xp.int32)])
    return xp.concatenate(made, 1)


def hash_loss(xp: Any, table: Any, x: Any) -> Any:
    return xp.mean(xp.sum(encoded(xp, table, x) * xp.tile(x, (1, 3))[:, :8], 1) ** 2)


def frequencies(xp: Any, x: Any) -> Any:
    """Sines and cosines of points at ten octaves (Mildenhall 2020)."""
    angles = (x[..., None] * 2.0 ** xp.arange(10).astype(x.dtype)).reshape(x.shape[0], -1)
    return xp.concatenate([x, xp.sin(angles), xp.cos(angles)], -1)


def harmonics(n: int) -> Arrays:
    direction, coefficients, seen = normal((n, 3), (n, 16, 3), (n, 3))
    return named(direction=direction, coefficients=coefficients, seen=seen)


def basis(xp: Any, direction: Any) -> Any:
    """Real spherical harmonics up to the third degree."""
    d = direction / xp.sqrt(xp.sum(direction**2, -1, keepdims=True))
    x, y, z = d[..., 0], d[..., 1], d[..., 2]
    xx, yy, zz = x * x, y * y, z * z
    return xp.stack([
        0.2820948 * xp.ones_like(x), -0.4886025 * y, 0.4886025 * z, -0.4886025 * x, 1.0925484 * x * y,
        -1.0925484 * y * z, 0.3153916 * (2 * zz - xx - yy), -1.0925484 * x * z, 0.5462742 * (xx - yy),
        -0.5900436 * y * (3 * xx - yy), 2.8906114 * x * y * z, -0.4570458 * y * (4 * zz - xx - yy),
        0.3731763 * z * (2 * zz - 3 * xx - 3 * yy), -0.4570458 * x * (4 * zz - xx - yy),
        1.4453057 * z * (xx - yy), -0.5900436 * x * (xx - 3 * yy),
    ], -1)  # fmt: skip


def sh_colour(xp: Any, direction: Any, coefficients: Any, seen: Any) -> Any:
    """Colours seen from directions."""
    return xp.maximum(xp.sum(basis(xp, direction)[..., None] * coefficients, 1) + 0.5, 0.0)


def sh_loss(xp: Any, direction: Any, coefficients: Any, seen: Any) -> Any:
    return xp.mean((sh_colour(xp, direction, coefficients, seen) - seen) ** 2)


def surface(n: int) -> Arrays:
    normals, view, light = normal((n, 3), (n, 3), (3,))
    return named(normals=normals, view=view, light=light, rough=uniform((n,), low=0.1)[0])


def shaded(xp: Any, normals: Any, view: Any, light: Any, rough: Any) -> Any:
    """Light from microfacets (Walter 2007): a distribution, shadows and Fresnel's factor."""
    unit = lambda v: v / xp.sqrt(xp.sum(v * v, -1, keepdims=True) + 1e-9)
    n, v, towards = unit(normals), unit(view), unit(light)
    half = unit(v + towards)
    dot = lambda a, b: xp.clip(xp.sum(a * b, -1), 1e-3, 1.0)
    nl, nv, nh, vh = dot(n, towards), dot(n, v), dot(n, half), dot(v, half)
    a = rough**4
    spread = a / (np.pi * (nh**2 * (a - 1) + 1) ** 2)
    k = (rough + 1) ** 2 / 8
    shadow = nl / (nl * (1 - k) + k) * nv / (nv * (1 - k) + k)
    fresnel = 0.04 + 0.96 * (1 - vh) ** 5
    return spread * shadow * fresnel / (4 * nv) + nl / np.pi


def tone_mapped(xp: Any, x: Any) -> Any:
    """Bytes of a picture of any brightness (Narkowicz's fit of ACES)."""
    x = xp.clip(x * (2.51 * x + 0.03) / (x * (2.43 * x + 0.59) + 0.14), 0.0, 1.0)
    return x ** (1 / 2.2) * 255


def escaped(xp: Any, x: Any) -> Any:
    """How many of 50 steps of Mandelbrot's stay near."""

    def step(_: Any, carry: Any) -> Any:
        a, b, count = carry
        a, b = xp.clip(a * a - b * b + x, -4.0, 4.0), xp.clip(2 * a * b + x.T, -4.0, 4.0)
        return a, b, count + (a * a + b * b < 4.0)

    zero = xp.zeros_like(x)
    return xp.fori_loop(0, 8, step, (zero, zero, zero.astype(xp.int32)))[2].astype(xp.float32)


def environment(n: int) -> Arrays:
    return named(direction=normal((n, 3))[0], sky=uniform((256, 512, 3))[0])


def lit(xp: Any, direction: Any, sky: Any) -> Any:
    """Light from directions, of a map of the sky."""
    d = direction / xp.linalg.norm(direction, axis=-1, keepdims=True)
    row = xp.arccos(xp.clip(d[:, 2], -1.0, 1.0)) / np.pi * 255
    column = (xp.arctan2(d[:, 1], d[:, 0]) / (2 * np.pi) + 0.5) * 510
    i, s = xp.clip(row.astype(xp.int32), 0, 254), column.astype(xp.int32)
    t, u = (row - i.astype(row.dtype))[:, None], (column - s.astype(row.dtype))[:, None]
    above, below = ((1 - u) * sky[k, s] + u * sky[k, s + 1] for k in (i, i + 1))
    return (1 - t) * above + t * below


def hidden(n: int) -> Arrays:
    return named(pixel=integers((n,), 256 * 256), depth=uniform((n,))[0])


def nearest(xp: Any, pixel: Any, depth: Any) -> Any:
    """The nearest of the points that fall on each pixel."""
    return at(xp.full((256 * 256,), 10.0, dtype=depth.dtype), pixel).min(depth)


PROGRAMS = {
    "through": script("colours of rays through a volume", RAYS, rays, through),
    "radiance_g": loss("such colours against those seen", RAYS, rays, radiance, wrt=(0, 1)),
    "splatted": script("a picture of 64 blobs", PICTURE, splats, splatted),
    "splats_g": loss("such a picture against one seen", sizes(256, 24, 1024), splats, splat_loss, wrt=(0, 1, 2)),
    "sphere_depth": script("rays to the nearest of 32 spheres", sizes(2**16, 50, 2**20), spheres, sphere_depth,
                           tolerance=1e-2),
    "triangle_hits": script("rays through 64 triangles", sizes(2**14, 50, 2**18), triangles, triangle_hits,
                            tolerance=0.3),
    "box_depth": script("rays to the nearest of 16 boxes", sizes(2**16, 50, 2**20), boxes, box_depth, tolerance=1e-2),
    "texture": script("a texture between its pixels", PIXELS, textured, looked_up, tolerance=1e-3),
    "texture_g": loss("the same, squared", PIXELS, textured, texture_loss, wrt=(0, 1)),
    "trilinear": script("four features between voxels", PIXELS, voxels, trilinear, tolerance=1e-3),
    "trilinear_g": loss("the same, squared", sizes(2**16, 100, 2**20), voxels, voxel_loss, wrt=(0, 1)),
    "hash_encoding": script("features of points by hashed grids", PIXELS, hashed, encoded),
    "hash_encoding_g": loss("the same, squared", sizes(2**16, 100, 2**20), hashed, hash_loss, wrt=(0,)),
    "octaves": script("sines and cosines at ten octaves", sizes(2**16, 100, 2**20),
                      lambda n: named(x=uniform((n, 3))[0]), frequencies),
    "sh_colour": script("colours by spherical harmonics", sizes(2**16, 100, 2**20), harmonics, sh_colour),
    "sh_colour_g": loss("the same against colours seen", sizes(2**16, 100, 2**20), harmonics, sh_loss, wrt=(0, 1)),
    "shaded": script("light from microfacets", PIXELS, surface, shaded, tolerance=1e-3),
    "tone_mapped": script("bytes of bright pictures", PICTURE, lambda n: named(x=uniform((n, n, 3), high=8.0)[0]),
                          tone_mapped),
    "escaped": script("steps of Mandelbrot's", PICTURE, lambda n: named(x=uniform((n, n), low=-2.0, high=1.0)[0]),
                      escaped, tolerance=1e-3),
    "lit": script("light from a map of the sky", PIXELS, environment, lit, tolerance=1e-2),
    "nearest": script("the nearest point on each pixel", PIXELS, hidden, nearest),
}  # fmt: skip
