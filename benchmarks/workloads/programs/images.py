"""Images: filters, pooling, morphology, histograms, colours."""

from __future__ import annotations

from typing import Any

from benchmarks.contender import Arrays
from benchmarks.workloads.arrays.program import Program, integers, named, sizes
from benchmarks.workloads.arrays.script import script

PICTURE = sizes(512, 32, 2048)


def bytes_of_colours(n: int) -> Arrays:
    return named(x=integers((n, n, 3), 256).astype("uint8"))


def linear(xp: Any, x: Any) -> Any:
    """Of sRGB bytes."""
    v = x.astype(xp.float32) / 255
    return xp.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


PROGRAMS: dict[str, Program] = {
    "srgb_bytes": script("bytes of sRGB as linear light", PICTURE, bytes_of_colours, linear),
}
