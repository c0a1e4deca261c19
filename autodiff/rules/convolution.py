"""Derivatives of convolutions, which are convolutions themselves (see `graph.primitives.convolution`).

Of x: places and elements change sides, so stride and spread do, and the window is walked backwards; the channels of a
group's results become those of its operands. Of the kernel: the cotangent is the window that slides over x, stride and
dilation change places, and the batch is what is summed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives.convolution import spread_extent


def _lows(node: Node) -> list[int]:
    window = node.operands[1].shape[2:]
    reach = [spread_extent(k, d) - 1 for k, d in zip(window, node.attrs["dilation"], strict=True)]
    return [r - low for r, low in zip(reach, node.attrs["low"], strict=True)]


def _to_extents(attrs: dict[str, Any], extents: Sequence[int], window: Sequence[int], wanted: Sequence[int]) -> None:
    """Set `high` so that the window has the wanted number of places."""
    attrs["high"] = tuple(
        (wanted[d] - 1) * attrs["strides"][d] + spread_extent(window[d], attrs["dilation"][d])
        - spread_extent(extents[d], attrs["spread"][d]) - attrs["low"][d]
        for d in range(len(extents))
    )  # fmt: skip


def _exchanged(kernel: Value, groups: int) -> Value:
    """(O, C/groups, *window) as (C, O/groups, *window), walked backwards."""
    outs, ins, *window = kernel.shape
    parted = ops.reshape(kernel, (groups, outs // groups, ins, *window))
    turned = ops.transpose(parted, (0, 2, 1, *range(3, len(parted.shape))))
    flat = ops.reshape(turned, (groups * ins, outs // groups, *window))
    return ops.flip(flat, tuple(range(2, len(flat.shape))))


def of_x(node: Node, ct: Value) -> Value:
    """The cotangent of x."""
    x, kernel = node.operands
    attrs = dict(node.attrs)
    attrs.update(strides=node.attrs["spread"], spread=node.attrs["strides"], low=tuple(_lows(node)))
    _to_extents(attrs, ct.shape[2:], kernel.shape[2:], x.shape[2:])
    return emit("conv", (ct, _exchanged(kernel, attrs["groups"])), attrs)[0]


def of_kernel(node: Node, ct: Value) -> Value:
    """The cotangent of the kernel."""
    x, kernel = node.operands
    groups, (size, channels, *extents) = node.attrs["groups"], x.shape
    parted = ops.reshape(x, (size, groups, channels // groups, *extents))
    turned = ops.transpose(parted, (2, 1, 0, *range(3, len(parted.shape))))
    rows = ops.reshape(turned, (channels // groups, groups * size, *extents))
    window = ops.transpose(ct, (1, 0, *range(2, len(ct.shape))))
    attrs = dict(node.attrs)
    attrs.update(strides=node.attrs["dilation"], dilation=node.attrs["strides"])
    _to_extents(attrs, extents, ct.shape[2:], kernel.shape[2:])
    found = emit("conv", (rows, window), attrs)[0]
    return ops.transpose(found, (1, 0, *range(2, len(found.shape))))


def _vjp(node: Node, cotangents: Values) -> tuple[Value | None, ...]:
    (ct,) = cotangents
    assert ct is not None
    return of_x(node, ct), of_kernel(node, ct)


def _jvp(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (x, kernel), (tx, tk) = node.operands, tangents
    of_x = None if tx is None else emit("conv", (tx, kernel), node.attrs)[0]
    of_kernel = None if tk is None else emit("conv", (x, tk), node.attrs)[0]
    if of_x is None or of_kernel is None:
        return (of_kernel if of_x is None else of_x,)
    return (ops.add(of_x, of_kernel),)


VJP: Final[dict[str, Rule]] = {"conv": _vjp}
JVP: Final[dict[str, Rule]] = {"conv": _jvp}
