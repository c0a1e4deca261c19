"""A convolution as one routine of devices that have matrix units: some `conv` become these
(`codegen/schedule/convolutions.py`).

    window_products     x: (N, C, *extents) with its borders, kernel: (groups, O / groups, C / groups * window elements,
                        and zeros up to a multiple of four)  ->  (N, O, *places); the same leading axes in front

Attributes: `strides`, `dilation`, `window` and `places` (one integer per window dim), `precision` (of the factors:
`lg.options(matmul_precision=)`).
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives import convolution
from loopgrad.graph.primitives.primitive import Array, Attrs, Kind, Primitive, Types, sized, table

RANK: Final = 3  # of a kernel
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
    groups, results, _ = kernel.shape
    channels, window = x.shape[1] // groups, attrs["window"]
    none, one = (0,) * len(window), (1,) * len(window)
    given = {"strides": attrs["strides"], "dilation": attrs["dilation"], "spread": one, "groups": groups}
    weights = kernel[..., : channels * prod(window)].reshape(groups * results, channels, *window)
    (found,) = convolution.reference({**given, "low": none, "high": none, "absent": False}, x, weights)
    return found


def _same(attrs: Attrs, size: int) -> Attrs:
    return attrs


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="window_products", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer,
        reference=lambda attrs, x, kernel: (_reference(attrs, x, kernel),), batched=_same, heavy=True,
        not_differentiable=WHY,
    ),
)  # fmt: skip
