"""Reductions, scans along an axis and sorts: their axes move up by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.batching.row import Context, Row
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value


def _over_axes(node: Node, operands: Sequence[Value], context: Context) -> Sequence[Value]:
    return emit(node.op, operands, {**node.attrs, "axes": tuple([a + 1 for a in node.attrs["axes"]])})


def _along_axis(node: Node, operands: Sequence[Value], context: Context) -> Sequence[Value]:
    return emit(node.op, operands, {**node.attrs, "axis": node.attrs["axis"] + 1})


ROWS: Final[dict[str, Row]] = {
    "reduce_sum": _over_axes,
    "reduce_prod": _over_axes,
    "reduce_min": _over_axes,
    "reduce_max": _over_axes,
    "reduce_and": _over_axes,
    "reduce_or": _over_axes,
    "argmin": _along_axis,
    "argmax": _along_axis,
    "cumsum": _along_axis,
    "cumprod": _along_axis,
    "cummax": _along_axis,
    "cummin": _along_axis,
    "sort": _along_axis,
    "argsort": _along_axis,
}
