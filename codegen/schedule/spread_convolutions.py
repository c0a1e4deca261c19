"""Convolutions of arrays with zeros between their elements, as derivatives of those with strides and transposed ones
are, by one without such zeros for each phase of the places.

conv {spread=s}   ->   s convs of x itself with every s-th element of the kernel, whose results take turns

Where a window begins at place p, its element k meets an element of x if p + k - low is a multiple of s, else a zero.
So places that leave the same rest have to do with the same elements of the kernel, and those of one rest are the places
of a window of just these. Nothing else need be multiplied: of s^dims products one is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.convolution import spread_extent, window_size
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import TensorType

WORTH: Final = 1 << 24  # products, zeros among them, from which on fewer are worth more kernels
MOST_PHASES: Final = 16


def rewrite_spread_convolutions(graph: Graph) -> Graph:
    """Those of `graph` and of its regions; the same graph where there are none."""
    return rebuild(graph, _by_phases)


def _by_phases(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    return [_Phases(node, builder).joined()] if node.op == "conv" and _is_worth_it(node) else None


def _is_worth_it(node: Node) -> bool:
    """Whether most of much work is multiplying by zeros that lie between elements. Where places are strides apart, or
    elements of the kernel, fewer phases would have elements, which is left alone."""
    attrs, result = node.attrs, node.results[0]
    spread: tuple[int, ...] = attrs["spread"]
    if not 1 < prod(spread) <= MOST_PHASES or 0 in [n for v in (*node.operands, result) for n in v.shape]:
        return False
    if any(s > 1 and max(attrs["strides"][d], attrs["dilation"][d]) != 1 for d, s in enumerate(spread)):
        return False
    return prod(result.shape) * window_size(node) >= WORTH


class _Phases:
    def __init__(self, node: Node, builder: GraphBuilder) -> None:
        self.node, self.attrs, self.b = node, node.attrs, builder
        self.spread: tuple[int, ...] = node.attrs["spread"]
        self.places = node.results[0].shape[2:]
        self.each = [-(-n // s) for n, s in zip(self.places, self.spread, strict=True)]  # places of a phase, at most

    def joined(self) -> Value:
        """The results of all phases, which take turns along every dim."""
        b, result = self.b, self.node.results[0]
        parted = (*result.shape[:2], *[n for each in self.each for n in (each, 1)])
        found = {
            phase: b.value("reshape", self.phase(phase), shape=parted) for phase in product(*map(range, self.spread))
        }
        for d in reversed(range(len(self.spread))):
            whole: dict[tuple[int, ...], list[Value]] = {}
            for phase, value in found.items():
                whole.setdefault(phase[:d], []).append(value)
            found = {phase: self.beside(values, 3 + 2 * d) for phase, values in whole.items()}
        extents = [n * s for n, s in zip(self.each, self.spread, strict=True)]
        flat = b.value("reshape", found[()], shape=(*result.shape[:2], *extents))
        if flat.shape == result.shape:
            return flat
        rank = len(flat.shape)
        return b.value("slice", flat, start=(0,) * rank, stop=result.shape, step=(1,) * rank)

    def beside(self, values: Sequence[Value], axis: int) -> Value:
        return values[0] if len(values) == 1 else self.b.value("concat", *values, axis=axis)

    def phase(self, rests: Sequence[int]) -> Value:
        """What is at the places that leave these rests, and at some that there aren't."""
        x, kernel = self.node.operands
        start, low = [0, 0], list(self.attrs["low"])
        for d, (s, rest) in enumerate(zip(self.spread, rests, strict=True)):
            first = (low[d] - rest) % s
            start.append(first)
            low[d] = (low[d] - rest - first) // s
        if any(first >= n for first, n in zip(start, kernel.shape, strict=True)):
            shape = (*self.node.results[0].shape[:2], *self.each)
            return self.b.const(0, TensorType(shape, x.dtype))
        some = self.b.value("slice", kernel, start=tuple(start), stop=kernel.shape, step=(1, 1, *self.spread))
        attrs: dict[str, Any] = {**self.attrs, "spread": (1,) * len(low), "low": tuple(low)}
        attrs["high"] = tuple([
            (self.each[d] - 1) * attrs["strides"][d] + spread_extent(some.shape[2 + d], attrs["dilation"][d])
            - x.shape[2 + d] - low[d]
            for d in range(len(low))
        ])  # fmt: skip
        return self.b.value("conv", x, some, **attrs)
