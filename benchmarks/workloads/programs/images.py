"""Images: filters, pooling, morphology, histograms, colours."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import integers, named, normal, sizes, uniform
from benchmarks.workloads.arrays.script import at, loss, script

PICTURE = sizes(512, 32, 2048)
WIDE = sizes(1024, 32, 4096)
PALETTE = 16


def bytes_of_colours(n: int) -> Arrays:
    return named(x=integers((n, n, 3), 256).astype(np.uint8))


def colours(n: int) -> Arrays:
    return named(x=uniform((n, n, 3))[0])


def greys(n: int) -> Arrays:
    return named(x=uniform((n, n))[0])


def grey_bytes(n: int) -> Arrays:
    return named(x=integers((n, n), 200).astype(np.uint8))


def linear(xp: Any, x: Any) -> Any:
    """Of sRGB bytes."""
    v = x.astype(xp.float32) / 255
    return xp.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def displayed(xp: Any, x: Any) -> Any:
    """sRGB of linear light, as numbers up to 255."""
    return 255 * xp.where(x <= 0.0031308, 12.92 * x, 1.055 * xp.maximum(x, 0.0031308) ** (1 / 2.4) - 0.055)


def luminance(xp: Any, x: Any) -> Any:
    """Grey bytes of coloured bytes."""
    x = x.astype(xp.uint32)
    return ((77 * x[..., 0] + 150 * x[..., 1] + 29 * x[..., 2]) >> 8).astype(xp.uint8)


def chroma(xp: Any, x: Any) -> Any:
    """Brightness and two differences of colours, by a matrix."""
    by = xp.asarray([[0.299, 0.587, 0.114], [-0.1687, -0.3313, 0.5], [0.5, -0.4187, -0.0813]], dtype=x.dtype)
    return x @ by.T + xp.asarray([0, 0.5, 0.5], dtype=x.dtype)


def hsv(xp: Any, x: Any) -> Any:
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    most, least = xp.max(x, -1), xp.min(x, -1)
    spread = xp.where(most > least, most - least, 1.0)
    hue = xp.where(most == r, (g - b) / spread % 6, xp.where(most == g, (b - r) / spread + 2, (r - g) / spread + 4))
    return xp.stack([hue / 6, xp.where(most > 0, (most - least) / xp.maximum(most, 1e-6), 0.0), most], -1)


def blurred(xp: Any, x: Any) -> Any:
    """By Gaussian weights of eleven pixels, one axis after the other."""
    weights = np.exp(-0.5 * (np.arange(-5, 6) / 2.0) ** 2)
    weights, n = [float(w) for w in weights / weights.sum()], x.shape[0]
    p = xp.pad(x, ((5, 5), (0, 0), (0, 0)), mode="reflect")
    x = sum(w * p[k : k + n] for k, w in enumerate(weights))
    p = xp.pad(x, ((0, 0), (5, 5), (0, 0)), mode="reflect")
    return sum(w * p[:, k : k + n] for k, w in enumerate(weights))


def boxed(xp: Any, x: Any) -> Any:
    """Means of 15 x 15 pixels, by totals of rows and columns."""
    n = x.shape[0] - 14
    total = xp.pad(xp.cumsum(xp.cumsum(x.astype(xp.float64), 0), 1), ((1, 0), (1, 0)))
    return ((total[15:, 15:] - total[:n, 15:] - total[15:, :n] + total[:n, :n]) / 225).astype(x.dtype)


def windows(xp: Any, x: Any, reach: int) -> Any:
    n, p = x.shape[0], xp.pad(x, reach, mode="edge")
    return [p[i : i + n, j : j + n] for i in range(2 * reach + 1) for j in range(2 * reach + 1)]


def median(xp: Any, x: Any) -> Any:
    """Of nine pixels."""
    return xp.median(xp.stack(windows(xp, x, 1)), 0)


def bilateral(xp: Any, x: Any) -> Any:
    """A blur that stops at edges (Tomasi and Manduchi 1998)."""
    total = share = 0.0
    for k, near in enumerate(windows(xp, x, 2)):
        away = (k // 5 - 2) ** 2 + (k % 5 - 2) ** 2
        w = xp.exp(-away / 8 - (near - x) ** 2 / 0.02)
        total, share = total + w * near, share + w
    return total / share


def opened(xp: Any, x: Any) -> Any:
    """The greatest of 3 x 3 pixels of the least of as many."""
    least = windows(xp, x, 1)[0]
    for near in windows(xp, x, 1):
        least = xp.minimum(least, near)
    return xp.max(xp.stack(windows(xp, least, 1)), 0)


def pooled(xp: Any, x: Any) -> Any:
    """The greatest of 2 x 2 pixels, of each colour."""
    n = x.shape[0] // 2
    return xp.max(x.reshape(n, 2, n, 2, 3), (1, 3))


def shrunk(xp: Any, x: Any) -> Any:
    """Means of 4 x 4 pixels."""
    n = x.shape[0] // 4
    return xp.mean(x.reshape(n, 4, n, 4, 3), (1, 3))


def enlarged(xp: Any, x: Any) -> Any:
    """Twice as large, between the pixels."""
    n = x.shape[0]
    at_ = xp.clip((xp.arange(2 * n) + 0.5) / 2 - 0.5, 0, n - 1.001)
    first = xp.floor(at_).astype(xp.int32)
    f = (at_ - first).astype(x.dtype)
    x = x[first] * (1 - f)[:, None] + x[first + 1] * f[:, None]
    return x[:, first] * (1 - f) + x[:, first + 1] * f


def histogram(xp: Any, x: Any) -> Any:
    return xp.bincount(x.reshape(-1).astype(xp.int32), length=256)


def equalised(xp: Any, x: Any) -> Any:
    """Bytes by their rank among all."""
    total = xp.cumsum(histogram(xp, x))
    return ((total * 255) // total[-1])[x.astype(xp.int32)].astype(xp.uint8)


def threshold(xp: Any, x: Any) -> Any:
    """A picture in black and white, where classes differ most (Otsu 1979)."""
    count = histogram(xp, x).astype(xp.float64)
    weight, moment = xp.cumsum(count), xp.cumsum(count * xp.arange(256))
    between = (moment[-1] * weight - moment * weight[-1]) ** 2 / xp.maximum(weight * (weight[-1] - weight), 1.0)
    return (x > xp.argmax(between)).astype(xp.uint8)


def oriented(xp: Any, x: Any) -> Any:
    """Histograms of gradients' directions in cells of 8 x 8 (Dalal and Triggs 2005)."""
    n = x.shape[0]
    across, along = xp.roll(x, -1, 0) - xp.roll(x, 1, 0), xp.roll(x, -1, 1) - xp.roll(x, 1, 1)
    strength = xp.sqrt(across**2 + along**2)
    angle = xp.arctan2(across, along) / np.pi * 4 + 4
    bins = [xp.maximum(1 - xp.abs((angle - k + 4) % 8 - 4), 0.0) * strength for k in range(8)]
    return xp.sum(xp.stack(bins, -1).reshape(n // 8, 8, n // 8, 8, 8), (1, 3))


def corners(xp: Any, x: Any) -> Any:
    """Harris and Stephens' measure of corners."""
    across, along = xp.roll(x, -1, 0) - xp.roll(x, 1, 0), xp.roll(x, -1, 1) - xp.roll(x, 1, 1)
    a, b, c = (sum(windows(xp, v, 1)) / 9 for v in (across * across, along * along, across * along))
    return a * b - c * c - 0.05 * (a + b) ** 2


def sharpened(xp: Any, x: Any) -> Any:
    return xp.clip(x + 1.5 * (x - sum(windows(xp, x, 1)) / 9), 0.0, 1.0)


def mosaic(xp: Any, x: Any) -> Any:
    """Colours of a sensor's raw picture: each pixel's missing ones are means of its neighbours."""
    cross = (xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1) + xp.roll(x, -1, 1)) / 4
    out = xp.stack([x, x, x], -1)
    out = at(out, (slice(0, None, 2), slice(0, None, 2), 1)).set(cross[::2, ::2])
    return at(out, (slice(1, None, 2), slice(1, None, 2), 1)).set(cross[1::2, 1::2])


def cosines(xp: Any, x: Any) -> Any:
    """Cosine transforms of blocks of 8 x 8 pixels, rounded off."""
    n, k = x.shape[0] // 8, np.arange(8)
    by = xp.asarray(np.cos(np.pi * (2 * k + 1) * k[:, None] / 16) / 2, dtype=x.dtype)
    return xp.einsum("ki,aibj,lj->abkl", by, x.reshape(n, 8, n, 8), by)


def warped(n: int) -> Arrays:
    turn = np.array([[0.98, 0.05, 0.4], [-0.05, 0.98, 0.6]], np.float32)
    i, j = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    x = np.sin(i / 9) * np.cos(j / 7)
    seen = np.sin((i + 1.7) / 9) * np.cos((j - 1.1) / 7)
    return named(turn=turn, x=x.astype(np.float32), seen=seen.astype(np.float32))


def registered(xp: Any, turn: Any, x: Any, seen: Any) -> Any:
    """How a picture that an affine map turned differs from one seen."""
    n = x.shape[0]
    line = xp.arange(n).astype(x.dtype)
    i, j = line[:, None], line[None]
    row = xp.clip(turn[0, 0] * i + turn[0, 1] * j + turn[0, 2], 0.0, n - 1.001)
    column = xp.clip(turn[1, 0] * i + turn[1, 1] * j + turn[1, 2], 0.0, n - 1.001)
    a, b = xp.floor(row).astype(xp.int32), xp.floor(column).astype(xp.int32)
    s, t = row - xp.floor(row), column - xp.floor(column)
    value = (1 - s) * ((1 - t) * x[a, b] + t * x[a, b + 1]) + s * ((1 - t) * x[a + 1, b] + t * x[a + 1, b + 1])
    return xp.mean((value - seen) ** 2)


def noisy(n: int) -> Arrays:
    x, seen = uniform((n, n), (n, n))
    return named(x=x, seen=seen)


def variation(xp: Any, x: Any, seen: Any) -> Any:
    """How far a picture is from one seen, and how rough it is (Rudin, Osher and Fatemi 1992)."""
    across, along = x[1:, :-1] - x[:-1, :-1], x[:-1, 1:] - x[:-1, :-1]
    return xp.mean((x - seen) ** 2) + 0.1 * xp.mean(xp.sqrt(across**2 + along**2 + 1e-4))


def similarity(xp: Any, x: Any, seen: Any) -> Any:
    """One less how alike pictures are in their structure (Wang 2004), in windows of 7 x 7."""
    n = x.shape[0] - 6

    def mean(v: Any) -> Any:
        v = sum(v[k : k + n] for k in range(7))
        return sum(v[:, k : k + n] for k in range(7)) / 49

    a, b = mean(x), mean(seen)
    aa, bb, ab = mean(x * x) - a * a, mean(seen * seen) - b * b, mean(x * seen) - a * b
    alike = (2 * a * b + 1e-4) * (2 * ab + 9e-4) / ((a * a + b * b + 1e-4) * (aa + bb + 9e-4))
    return 1 - xp.mean(alike)


def burst(n: int) -> Arrays:
    return named(x=integers((16, n, n), 256).astype(np.uint8))


def steady(xp: Any, x: Any) -> Any:
    """Means of 16 pictures, less where they differ much."""
    mean, spread = xp.mean(x, 0, dtype=xp.float32), xp.std(x, 0, dtype=xp.float32)
    return mean / (1 + spread / 10)


def quantised(n: int) -> Arrays:
    return named(x=normal((n, n, 3))[0], palette=normal((PALETTE, 3), seed=1)[0])


def palette_distance(xp: Any, x: Any, palette: Any) -> Any:
    """How far the nearest of 16 colours is."""
    return xp.sqrt(xp.min(xp.sum((x[:, :, None] - palette) ** 2, -1), -1))


def palette_bytes(xp: Any, x: Any, palette: Any) -> Any:
    """The nearest of 16 colours."""
    return palette[xp.argmin(xp.sum((x[:, :, None] - palette) ** 2, -1), -1)]


def stretched(xp: Any, x: Any) -> Any:
    """Between the first and the last percent."""
    low, high = xp.percentile(x, 1.0), xp.percentile(x, 99.0)
    return xp.clip((x - low) / (high - low), 0.0, 1.0)


def dithered(xp: Any, x: Any) -> Any:
    """Black and white by an ordered pattern of 4 x 4 (Bayer 1973)."""
    pattern = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) * 16 + 8
    n = x.shape[0] // 4
    return (x > xp.tile(xp.asarray(pattern), (n, n))).astype(xp.uint8)


PROGRAMS = {
    "srgb_bytes": script("bytes of sRGB as linear light", PICTURE, bytes_of_colours, linear),
    "displayed": script("linear light as sRGB", PICTURE, colours, displayed),
    "luminance": script("grey bytes of coloured ones", WIDE, bytes_of_colours, luminance),
    "chroma": script("colours by a matrix", PICTURE, colours, chroma),
    "hsv": script("hue, saturation and value", PICTURE, colours, hsv, tolerance=1e-2),
    "blurred": script("a Gaussian blur", PICTURE, colours, blurred),
    "boxed": script("means of 15 x 15 pixels by totals", PICTURE, greys, boxed),
    "median": script("medians of nine pixels", PICTURE, greys, median),
    "bilateral": script("a blur that stops at edges", PICTURE, greys, bilateral),
    "opened": script("an opening of 3 x 3", WIDE, grey_bytes, opened),
    "pooled": script("the greatest of 2 x 2 pixels", WIDE, colours, pooled),
    "downsampled": script("means of 4 x 4 pixels", WIDE, colours, shrunk),
    "enlarged": script("a picture of twice the size", sizes(512, 32, 2048), greys, enlarged, tolerance=1e-3),
    "histogram": script("counts of bytes", WIDE, grey_bytes, histogram),
    "equalised": script("bytes by their rank", WIDE, grey_bytes, equalised),
    "threshold": script("black and white where classes differ most", WIDE, grey_bytes, threshold),
    "oriented": script("histograms of gradients' directions", PICTURE, greys, oriented, tolerance=1e-3),
    "corners": script("a measure of corners", PICTURE, greys, corners),
    "sharpened": script("a sharper picture", PICTURE, greys, sharpened),
    "mosaic": script("colours of a raw picture", PICTURE, greys, mosaic),
    "cosines": script("cosine transforms of 8 x 8 blocks", PICTURE, greys, cosines),
    "registered_g": loss("a picture turned onto another one", PICTURE, warped, registered, wrt=(0,),
                         tolerance=2e-2),
    "variation_g": loss("a picture's roughness", PICTURE, noisy, variation, wrt=(0,)),
    "similarity_g": loss("how unlike pictures are", PICTURE, noisy, similarity, wrt=(0,)),
    "steady": script("means and deviations of 16 pictures", sizes(256, 24, 1024), burst, steady),
    "palette_distance": script("distances to 16 colours", PICTURE, quantised, palette_distance),
    "palette_bytes": script("the nearest of 16 colours", PICTURE, quantised, palette_bytes, tolerance=3.0),
    "stretched": script("contrast between percentiles", PICTURE, greys, stretched),
    "dithered": script("black and white by a pattern", WIDE, grey_bytes, dithered),
}  # fmt: skip
