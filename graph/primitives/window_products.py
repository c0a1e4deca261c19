"""A convolution as one routine of devices that have matrix units: some `conv` become these
(`codegen/schedule/convolutions.py`).

    window_products     x: (N, C, *extents) with its borders, kernel: (groups, O / groups, C / groups * window elements,
                        and zeros up to a multiple of four)  ->  (N, O, *places); the same leading axes in front

    window_sums         x: (C, *extents, N) with its borders, kernel: (O, C * window elements, and zeros up to a whole
                        number of equal slices)  ->  (slices, O, *places, N), float32: what each slice of the elements
                        gives to the results; the same leading axes in front. For few places, as derivatives have

Attributes: `strides`, `dilation`, `window` and `places` (one integer per window dim); of the first `precision` (of the
factors: `lg.options(matmul_precision=)`) and `channels_last` (x: (N, *extents, C)), of the second `slices`.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives import convolution
from loopgrad.graph.primitives.primitive import Array, Attrs, Kind, Primitive, Types, sized, table
from loopgrad.graph.types import float32

RANK: Final = 3  # of a kernel
SUMS_RANK: Final = 2
OF_CHANNELS: Final = "window_products_of_channels"
"""Among a device's routines: this one is worth it for fewer windows of 16-bit floats, where channels are MANY."""
MANY: Final = 64  # channels, and results
WHY: Final = "it is what a convolution became"


def _infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    x, kernel = operands
    *leading, groups, results, _ = kernel.shape
    batch = x.shape[len(leading)]
    return (sized("window_products", (*leading, batch, groups * results, *attrs["places"]), x.dtype),)


def _reference(attrs: Attrs, x: Array, kernel: Array) -> Array:
    if kernel.ndim > RANK:
        return np.stack([_reference(attrs, *pair) for pair in zip(x, kernel, strict=True)])
    x = np.moveaxis(x, -1, 1) if attrs["channels_last"] else x
    groups, results, _ = kernel.shape
    channels, window = x.shape[1] // groups, attrs["window"]
    none, one = (0,) * len(window), (1,) * len(window)
    given = {"strides": attrs["strides"], "dilation": attrs["dilation"], "spread": one, "groups": groups}
    weights = kernel[..., : channels * prod(window)].reshape(groups * results, channels, *window)
    (found,) = convolution.reference({**given, "low": none, "high": none, "absent": False}, x, weights)
    return found


def _infer_sums(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    x, kernel = operands
    *leading, results, _ = kernel.shape
    return (sized("window_sums", (*leading, attrs["slices"], results, *attrs["places"], x.shape[-1]), float32),)


def _sums_reference(attrs: Attrs, x: Array, kernel: Array) -> Array:
    if kernel.ndim > SUMS_RANK:
        return np.stack([_sums_reference(attrs, *pair) for pair in zip(x, kernel, strict=True)])
    batch, each = np.moveaxis(x, -1, 0).astype(np.float32), kernel.shape[1] // attrs["slices"]
    number = np.arange(kernel.shape[1]) // each
    slices = [np.where(number == i, kernel.astype(np.float32), 0) for i in range(attrs["slices"])]
    attrs = {**attrs, "channels_last": False}
    return np.moveaxis(np.stack([_reference(attrs, batch, part[None]) for part in slices]), 1, -1)


def _same(attrs: Attrs, size: int) -> Attrs:
    return attrs


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="window_products", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer,
        reference=lambda attrs, x, kernel: (_reference(attrs, x, kernel),), batched=_same, heavy=True,
        not_differentiable=WHY,
    ),
    Primitive(
        name="window_sums", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_sums,
        reference=lambda attrs, x, kernel: (_sums_reference(attrs, x, kernel),), batched=_same, heavy=True,
        not_differentiable=WHY,
    ),
)  # fmt: skip
