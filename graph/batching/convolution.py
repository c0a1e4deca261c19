"""Convolutions: the batch axis joins the batch of x, the results of a kernel, or the groups where both have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph import ops
from loopgrad.graph.batching.row import BatchContext, Row, all_expanded
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value


def _conv(node: Node, operands: Sequence[Value], context: BatchContext) -> Sequence[Value]:
    x, kernel = operands
    of_x, of_kernel = context.flags(node.operands)
    size, result = context.size, node.results[0].shape
    if of_x and not of_kernel:
        rows = ops.reshape(x, (size * x.shape[1], *x.shape[2:]))
        return (ops.reshape(emit("conv", (rows, kernel), node.attrs)[0], (size, *result)),)
    if node.attrs["groups"] == 1 and not of_x:
        rows = ops.reshape(kernel, (size * kernel.shape[1], *kernel.shape[2:]))
        found = emit("conv", (x, rows), node.attrs)[0]
        parted = ops.reshape(found, (result[0], size, *result[1:]))
        return (ops.transpose(parted, (1, 0, *range(2, len(parted.shape)))),)
    x, kernel = all_expanded(node, operands, context)
    turned = ops.transpose(x, (1, 0, *range(2, len(x.shape))))
    rows = ops.reshape(turned, (x.shape[1], size * x.shape[2], *x.shape[3:]))
    weights = ops.reshape(kernel, (size * kernel.shape[1], *kernel.shape[2:]))
    found = emit("conv", (rows, weights), {**node.attrs, "groups": size * node.attrs["groups"]})[0]
    parted = ops.reshape(found, (result[0], size, *result[1:]))
    return (ops.transpose(parted, (1, 0, *range(2, len(parted.shape)))),)


ROWS: Final[dict[str, Row]] = {"conv": _conv}
