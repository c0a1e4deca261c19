"""Sums of rows that belong to the same segment. Scheduling makes them of scatters that add rows
(`codegen/schedule/row_sums.py`), for devices that have a routine for it.

    segment_sum  (values, segments, rows)          attrs shape, rank -> floats of that shape, of at least 32 bits
    segment_sum  (values, segments, rows, start)   the same, added to an array of that shape and dtype

The first `rank` axes of `shape` number the rows of the result, and the elements below them are as many as a row of
`values` has. Row rows[k] of these is added to row segments[k], or dropped where there is none. `segments` and `rows`
are int32; segments ascend.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import Array, Attrs, Kind, Primitive, Types, added_in, table
from loopgrad.graph.types import TensorType, sum_dtype


def _infer_segments(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    return (TensorType(attrs["shape"], sum_dtype(operands[0].dtype)),)


def _made_later(attrs: Attrs, size: int) -> Attrs:
    raise AssertionError("scheduling makes sums of segments, when all is batched")


def segment_sum(attrs: Attrs, values: Array, segments: Array, rows: Array, start: Array | None = None) -> tuple[Array]:
    shape, rank = attrs["shape"], attrs["rank"]
    count, width = prod(shape[:rank]), prod(shape[rank:])
    result = np.zeros((count, width), added_in(values.dtype))
    inside = (segments >= 0) & (segments < count)
    wide = values.dtype if values.dtype.itemsize > 2 else np.dtype(np.float32)
    with np.errstate(all="ignore"):
        np.add.at(result, segments[inside], values.reshape(-1, width)[rows[inside]].astype(result.dtype, copy=False))
        if start is not None:
            result += start.reshape(count, width)
        return (result.reshape(shape).astype(wide, copy=False),)


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="segment_sum", public=None, kind=Kind.LIBRARY, kinds="f", infer=_infer_segments, reference=segment_sum,
        batched=_made_later, heavy=True, not_differentiable="it is what a scatter became",
    ),
)  # fmt: skip
