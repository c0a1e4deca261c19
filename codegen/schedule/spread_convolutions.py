"""Convolutions of arrays with zeros between their elements, as derivatives of those with strides and transposed ones
are, by one without such zeros for each phase of the places.

conv {spread=s}   ->   s convs of x itself with every s-th element of the kernel, whose results take turns

Where matrix units multiply 16-bit floats of many channels, which takes less time than putting windows of several
convolutions together, the phases are results of one convolution: kernels with zeros up to the same window.

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
from loopgrad.graph.primitives.window_products import MANY
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.types import TensorType

WORTH: Final = 1 << 24  # products, zeros among them, from which on fewer are worth more kernels
MOST_PHASES: Final = 16
MOST_ZEROS: Final = 2  # times as many products


def rewrite_spread_convolutions(graph: Graph, of_channels: bool = False) -> Graph:
    """Those of `graph` and of its regions; the same graph where there are none. `of_channels`: there are matrix units
    for windows of many channels."""

    def by_phases(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if node.op != "conv" or not _is_worth_it(node):
            return None
        phases = _Phases(node, builder)
        return [phases.together() if of_channels and phases.are_alike() else phases.joined()]

    return rebuild(graph, by_phases)


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

    def are_alike(self) -> bool:
        """Whether one convolution of many channels to as many results has little more to do than those of all phases,
        each of which has elements."""
        x, kernel = self.node.operands
        narrow = x.dtype.is_float and x.dtype.bits == 16 and self.attrs["groups"] == 1
        some = all(n >= s for n, s in zip(kernel.shape[2:], self.spread, strict=True))
        products = prod(self.spread) * prod(self.window()[1])
        few_zeros = products <= MOST_ZEROS * prod(kernel.shape[2:])
        return narrow and some and few_zeros and min(kernel.shape[:2]) >= MANY

    def window(self) -> tuple[list[int], list[int]]:
        """The zeros before x, and the window, in which each phase has its elements."""
        kernel, phases = self.node.operands[1], [range(s) for s in self.spread]
        low = [max(self.begin(d, rest)[1] for rest in rests) for d, rests in enumerate(phases)]
        ends = [
            [low[d] - self.begin(d, rest)[1] + -(-(n - self.begin(d, rest)[0]) // s) for rest in range(s)]
            for d, (n, s) in enumerate(zip(kernel.shape[2:], self.spread, strict=True))
        ]
        return low, [max(end) for end in ends]

    def begin(self, d: int, rest: int) -> tuple[int, int]:
        """The first element of the kernel along a dim that has to do with such places, and the zeros before x."""
        low, s = self.attrs["low"][d], self.spread[d]
        first = (low - rest) % s
        return first, (low - rest - first) // s

    def elements(self, start: Sequence[int]) -> Value:
        """Those of the kernel that have to do with places of one phase."""
        kernel, step = self.node.operands[1], (1, 1, *self.spread)
        return self.b.value("slice", kernel, start=(0, 0, *start), stop=kernel.shape, step=step)

    def together(self) -> Value:
        """The results of all phases by one convolution."""
        b, (x, kernel), rank = self.b, self.node.operands, len(self.spread)
        (low, window), zero = self.window(), b.const(0, TensorType((), kernel.dtype))
        parts = []
        for rests in product(*map(range, self.spread)):
            begins = [self.begin(d, rest) for d, rest in enumerate(rests)]
            some = self.elements([first for first, _ in begins])
            before = [most - own for most, (_, own) in zip(low, begins, strict=True)]
            behind = [n - f - k for n, f, k in zip(window, before, some.shape[2:], strict=True)]
            parts.append(b.value("pad", some, zero, low=(0, 0, *before), high=(0, 0, *behind)))
        attrs = {**self.attrs, "spread": (1,) * rank, "low": tuple(low), "high": self.high(x, window, low)}
        found = b.value("conv", x, b.value("concat", *parts, axis=0), **attrs)
        parted = b.value("reshape", found, shape=(x.shape[0], *self.spread, kernel.shape[0], *self.each))
        turns = [axis for d in range(rank) for axis in (rank + 2 + d, 1 + d)]
        whole = b.value("transpose", parted, perm=(0, rank + 1, *turns))
        return self.without_more(whole)

    def high(self, x: Value, window: Sequence[int], low: Sequence[int]) -> tuple[int, ...]:
        """The zeros behind x, for windows at all places of a phase."""
        return tuple([
            (self.each[d] - 1) * self.attrs["strides"][d] + spread_extent(n, self.attrs["dilation"][d])
            - x.shape[2 + d] - low[d]
            for d, n in enumerate(window)
        ])  # fmt: skip

    def without_more(self, taking_turns: Value) -> Value:
        """The results, of phases that take turns along every dim, without places that there aren't."""
        result = self.node.results[0]
        extents = [n * s for n, s in zip(self.each, self.spread, strict=True)]
        flat = self.b.value("reshape", taking_turns, shape=(*result.shape[:2], *extents))
        if flat.shape == result.shape:
            return flat
        rank = len(flat.shape)
        return self.b.value("slice", flat, start=(0,) * rank, stop=result.shape, step=(1,) * rank)

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
        return self.without_more(found[()])

    def beside(self, values: Sequence[Value], axis: int) -> Value:
        return values[0] if len(values) == 1 else self.b.value("concat", *values, axis=axis)

    def phase(self, rests: Sequence[int]) -> Value:
        """What is at the places that leave these rests, and at some that there aren't."""
        x, kernel = self.node.operands
        begins = [self.begin(d, rest) for d, rest in enumerate(rests)]
        start, low = [first for first, _ in begins], [zeros for _, zeros in begins]
        if any(first >= n for first, n in zip(start, kernel.shape[2:], strict=True)):
            shape = (*self.node.results[0].shape[:2], *self.each)
            return self.b.const(0, TensorType(shape, x.dtype))
        some = self.elements(start)
        attrs: dict[str, Any] = {**self.attrs, "spread": (1,) * len(low), "low": tuple(low)}
        attrs["high"] = self.high(x, some.shape[2:], low)
        return self.b.value("conv", x, some, **attrs)
