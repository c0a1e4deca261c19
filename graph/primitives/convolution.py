"""Convolution as neural networks have it: sums of products in windows that slide over the last dims of an array.

conv    (x, kernel) attrs strides, low, high, spread, dilation (one integer per window dim), groups, absent
        x is (N, C, *extents), kernel (O, C/groups, *window), the result (N, O, *places):

            result[n, o, p] = sum over c, k of x[n, c of o's group, (p * stride + k * dilation - low) / spread] *
                              kernel[o, c, k]

        Between the elements of x lie spread - 1 zeros, before and behind them `low` and `high` zeros; where these are
        negative, elements are left out. `absent`: nothing lies there, and no product is made of it, whatever the
        kernel's element is; else whether one is made of the zeros between elements isn't said, where the kernel's
        element isn't finite.

Every derivative of a convolution is a convolution of this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Final

import numpy as np

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import (
    Array,
    Attrs,
    Axes,
    Kind,
    Primitive,
    Types,
    dtype_error,
    require_kinds,
    shape_error,
    sized,
    table,
    tensor_type,
    types_text,
)


def spread_extent(extent: int, spread: int) -> int:
    """How long `extent` elements are with zeros between them."""
    return (extent - 1) * spread + 1 if extent else 0


def places(attrs: Attrs, extents: Sequence[int], window: Sequence[int]) -> tuple[int, ...]:
    """How many places the window has along each dim."""
    found = []
    for d, (extent, size) in enumerate(zip(extents, window, strict=True)):
        whole = spread_extent(extent, attrs["spread"][d]) + attrs["low"][d] + attrs["high"][d]
        left = whole - spread_extent(size, attrs["dilation"][d])
        found.append(left // attrs["strides"][d] + 1 if left >= 0 else 0)
    return tuple(found)


def _infer(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    x, kernel = tensor_type("conv", operands[0]), tensor_type("conv", operands[1])
    if x.dtype is not kernel.dtype:
        raise dtype_error("conv", "operands of one dtype", types_text(operands), "cast one of them first")
    require_kinds("conv", x, "iuf")
    groups, dims = attrs["groups"], len(x.shape) - 2
    if dims < 1 or len(kernel.shape) != dims + 2:
        expected = "x of shape (N, C, *extents) and a kernel (O, C/groups, *window) with as many dims"
        raise shape_error("conv", expected, types_text(operands), "reshape the operands")
    if x.shape[1] != groups * kernel.shape[1] or kernel.shape[0] % groups:
        expected = f"a kernel (O, C/groups, *window) whose O is a multiple of {groups} groups, for {x}"
        raise shape_error("conv", expected, kernel, "choose the channels so that they make whole groups")
    if any(len(attrs[name]) != dims for name in ("strides", "low", "high", "spread", "dilation")):
        raise shape_error("conv", f"one number for each of {dims} window dims", dict(attrs), "add the others")
    shape = (x.shape[0], kernel.shape[0], *places(attrs, x.shape[2:], kernel.shape[2:]))
    return (sized("conv", shape, x.dtype),)


def reference(attrs: Attrs, x: Array, kernel: Array) -> tuple[Array]:
    """A `conv`'s results: one product for each element of the window."""
    count, window, groups = places(attrs, x.shape[2:], kernel.shape[2:]), kernel.shape[2:], attrs["groups"]
    work = np.dtype(np.float64) if x.dtype.kind in "fV" else x.dtype  # ml_dtypes' have kind V
    batch, channels = x.shape[0], kernel.shape[1]
    results = kernel.shape[0] // groups
    out = np.zeros((batch, groups, results, *count), work)
    rows = x.astype(work).reshape(batch, groups, channels, *x.shape[2:])
    parts = kernel.astype(work).reshape(groups, results, *kernel.shape[1:])
    with np.errstate(all="ignore"):
        for at in product(*map(range, window)):
            index, inside = zip(
                *[_positions(attrs, d, k, count[d], x.shape[2 + d]) for d, k in enumerate(at)], strict=True
            )
            taken = rows[(slice(None), slice(None), slice(None), *np.ix_(*index))] if rows.size else 0.0
            mask = reduce(np.logical_and.outer, inside)
            taken = np.where(mask, taken, 0)
            weights = parts.reshape(*parts.shape[:3], prod(window))[..., np.ravel_multi_index(at, window)]
            for c in range(channels):
                left, right = np.broadcast_to(taken, (*rows.shape[:3], *count))[:, :, None, c], weights[:, :, c]
                term = left * right.reshape(1, groups, results, *[1] * len(count))
                out += np.where(mask, term, 0) if attrs["absent"] else term
    return (out.reshape(batch, kernel.shape[0], *count).astype(x.dtype),)


def _positions(attrs: Attrs, d: int, k: int, count: int, extent: int) -> tuple[Array, Array]:
    """Along one dim: where in x each place's element k of the window lies, and whether one lies there at all."""
    at = np.arange(count) * attrs["strides"][d] + k * attrs["dilation"][d] - attrs["low"][d]
    index, rest = np.divmod(at, attrs["spread"][d])
    inside = (rest == 0) & (index >= 0) & (index < extent)
    return np.where(inside, index, 0), inside


def _axes(node: Node, operand: int, axes: Axes) -> Axes | None:
    """The batch stays."""
    return axes if operand == 0 and axes == (0,) else None


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(
        name="conv", kind=Kind.CONTRACTION, kinds="iuf", infer=_infer, reference=reference, axes=_axes, heavy=True,
    )
)  # fmt: skip


def window_size(node: Node) -> int:
    """Of how many products an element of the result is the sum."""
    return prod(node.operands[1].shape[1:])
