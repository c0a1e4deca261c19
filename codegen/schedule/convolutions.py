"""Convolutions as products of matrices, or as sums of products; see `graph.primitives.convolution`.

conv of many results a group   ->  matmul(kernel, windows of x): (O, C k) x (C k, places), for each group and each of
                                   the batch; of few places (O, C k) x (C k, N places), for each group
conv of few                    ->  reduce_sum(windows of x * kernel), which stores no window
large conv of 16-bit floats at ->  window_sums(x, its batch side by side, rows of kernel), whose slices are added up
few places of many
few at few places              ->  a reduce_sum(slice of x * kernel) for each place, which are one kernel, where there
                                   are matrix units, too
large conv of floats           ->  window_products(x with its borders, rows of kernel), where there are matrix units

The windows of x are a gather at places that are affine in the index, so whoever reads them reads x in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from loopgrad.codegen.options import FULL_PRECISION
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.convolution import spread_extent, window_size
from loopgrad.graph.primitives.window_products import MANY
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.region_flow import outside_lanes
from loopgrad.graph.types import TensorType, bfloat16, bool_, float16, float32, int64, sum_dtype

FEW_RESULTS: Final = 4  # of a group: for so few, reading a window again costs less than storing it
SMALL_WINDOW: Final = 4
LONG_ROW: Final = 32  # of a window
CHUNK: Final = 4  # elements of float32 that routines copy at once
MANY_RESULTS: Final = 16  # of a group: rows of matrix units
LARGE_RESULT: Final = 1 << 14  # places of 64 results: two workgroups for each of the multiprocessors have so many
LARGE_WINDOW: Final = 32
LARGE_COPY: Final = 1 << 24  # elements of all windows: second-level caches hold fewer, which libraries multiply at once
LARGE_OF_CHANNELS: Final = 3 << 30  # multiplications that make up for putting channels side by side
MOST: Final = 1 << 31  # elements of one of the batch, which are counted in 32 bits
FEW_PLACES: Final = 32  # whose sums a kernel makes together
LARGE_SUM: Final = 1024  # elements of a window
TILE: Final = 128  # results, and of the batch, of a workgroup
BLOCK: Final = 64  # elements of windows that it works on together
ENOUGH: Final = 264  # workgroups: two for each of the multiprocessors of a large device
FEWEST_BLOCKS: Final = 8  # of a slice
SHORT_RESULT: Final = 1024  # elements: fewer leave too few lanes that add up by themselves


def rewrite_convolution(node: Node, builder: GraphBuilder) -> Sequence[Value]:
    """What stands for the results of a `conv`, none of whose values is empty."""
    x, kernel = node.operands
    return [_Windows(node, x, builder).convolved(kernel)]


def rewrite_window_products(graph: Graph, precision: str = FULL_PRECISION, of_channels: bool = False) -> Graph:
    """Large convolutions are routines where there are matrix units, and few results of long windows are sums by places;
    not in lanes. `of_channels`: smaller ones of many channels are large, too."""
    outside = outside_lanes(graph)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if node.op != "conv" or builder.original not in outside or not _is_whole(node):
            return None
        x, kernel = node.operands
        if _is_large(node, of_channels):
            return [_Windows(node, x, builder).by_matrix_units(kernel, precision, of_channels)]
        if of_channels and _has_long_windows(node):
            return [_Windows(node, x, builder).by_slices(kernel)]
        return [_Windows(node, x, builder).sums_by_places(kernel)] if _is_at_few_places(node) else None

    return rebuild(graph, rewrite)


def _is_whole(node: Node) -> bool:
    """Whether there are results, all of windows whose elements are elements of x or zeros around them."""
    return not node.attrs["absent"] and 0 not in [n for v in (*node.operands, *node.results) for n in v.shape]


def _is_at_few_places(node: Node) -> bool:
    """Whether a result for each place, of which one kernel makes all, is a long sum."""
    places, results = prod(node.results[0].shape[2:]), node.operands[1].shape[0] // node.attrs["groups"]
    return 1 < places <= FEW_PLACES and results <= FEW_RESULTS and window_size(node) >= LARGE_SUM


def _is_large(node: Node, of_channels: bool) -> bool:
    """Whether it has enough results for many workgroups, each with enough of one window to be worth it."""
    x, kernel, out = *node.operands, node.results[0]
    results, places = kernel.shape[0] // node.attrs["groups"], prod(out.shape[2:])
    if x.dtype not in (bfloat16, float16, float32):
        return False
    copied = out.shape[0] * places * window_size(node) * node.attrs["groups"]
    many = of_channels and min(results, kernel.shape[1]) >= MANY and copied * results >= LARGE_OF_CHANNELS
    if x.dtype is not float32 and copied < LARGE_COPY and not many:
        return False
    filled = out.shape[0] * places * node.attrs["groups"] * -(-results // 64) >= LARGE_RESULT
    windows = prod(kernel.shape[2:]) > 1 and window_size(node) >= LARGE_WINDOW
    borders = 2 * sum(map(abs, (*node.attrs["low"], *node.attrs["high"]))) + 2
    counted = max(x.shape[1] * prod(x.shape[2:]) * borders, prod(kernel.shape)) < MOST
    return filled and windows and results >= MANY_RESULTS and counted


def _has_long_windows(node: Node) -> bool:
    """Whether it has long windows at few places, of many results and a large batch: the derivative by a kernel."""
    x, kernel, (out,) = *node.operands, node.results
    if x.dtype not in (bfloat16, float16) or node.attrs["groups"] > 1 or x.shape[0] % (2 * CHUNK):
        return False
    places, terms = prod(out.shape[2:]), kernel.shape[1] * prod(kernel.shape[2:])
    large = x.shape[0] * places * terms >= LARGE_COPY and prod(x.shape) < MOST and prod(kernel.shape) < MOST
    return large and 1 < places <= FEW_PLACES and terms >= LARGE_SUM and min(x.shape[0], kernel.shape[0]) >= MANY


@dataclass(frozen=True, slots=True)
class _Taken:
    """Elements of windows, with the first axis of each part of their shape, and where each lies along the dims of x
    with its borders."""

    elements: Value
    first: Mapping[str, int]
    where: Sequence[Value]


class _Windows:
    """The windows of x in one convolution."""

    def __init__(self, node: Node, x: Value, builder: GraphBuilder) -> None:
        self.node, self.attrs, self.b = node, node.attrs, builder
        self.window, self.places = node.operands[1].shape[2:], node.results[0].shape[2:]
        self.batch, self.groups = x.shape[0], node.attrs["groups"]
        self.channels, self.results = node.operands[1].shape[1], node.operands[1].shape[0] // self.groups
        self.extents = x.shape[2:]
        self.x = self._bordered(x)

    def convolved(self, kernel: Value) -> Value:
        many = self.results > FEW_RESULTS and window_size(self.node) > SMALL_WINDOW
        found = self._product(kernel) if many and not self.attrs["absent"] else self._sum(kernel)
        return self.b.value("reshape", found, shape=self.node.results[0].shape)

    def by_matrix_units(self, kernel: Value, precision: str, of_channels: bool) -> Value:
        """Many channels are put side by side by whoever makes the borders."""
        depth = self.channels * prod(self.window)
        rows = self.b.value("reshape", kernel, shape=(self.groups, self.results, depth))
        rows = self.b.extended(rows, 2, -(-depth // CHUNK) * CHUNK)
        many = min(self.results, self.channels) >= MANY and not self.channels % (2 * CHUNK) and self.groups == 1
        last, x, rank = of_channels and many and kernel.dtype is not float32, self.x, len(self.x.shape)
        if last:
            x = self._bordered(self.node.operands[0], needed=True)
            x = self.b.value("transpose", x, perm=(0, *range(2, rank), 1))
        attrs = {**self._sizes(), "precision": precision, "channels_last": last}
        return self.b.value("window_products", x, rows, **attrs)

    def _images(self) -> Value | None:
        """What x is with its first two dims exchanged, if that is so."""
        x = self.node.operands[0]
        node, (batch, channels, *extents) = x.node, x.shape
        while node is not None and node.op == "reshape":
            node = node.operands[0].node
        if node is None or node.op != "transpose" or 1 in x.shape:
            return None
        wide = [d for d, n in enumerate(node.operands[0].shape) if n > 1]
        kept = [d for d in node.attrs["perm"] if d in wide]
        if [node.operands[0].shape[d] for d in kept] != [*x.shape] or kept != [wide[1], wide[0], *wide[2:]]:
            return None
        return self.b.value("reshape", node.operands[0], shape=(channels, batch, *extents))

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        strides, dilation = (tuple(self.attrs[name]) for name in ("strides", "dilation"))
        return {"strides": strides, "dilation": dilation, "window": self.window, "places": self.places}

    def by_slices(self, kernel: Value) -> Value:
        """As many slices as have a device busy, of whole blocks."""
        terms, rank = self.channels * prod(self.window), len(self.x.shape)
        tiles = -(-self.results // TILE) * prod(self.places) * -(-self.batch // TILE)
        blocks = -(-terms // BLOCK)
        most = max(min(ENOUGH // tiles, blocks // FEWEST_BLOCKS), 1)
        slices = next((n for n in range(most, most // 2, -1) if blocks % n == 0), most)
        rows = self.b.value("reshape", kernel, shape=(self.results, terms))
        rows = self.b.extended(rows, 1, slices * -(-blocks // slices) * BLOCK)
        images = self._images()
        if images is None:
            batch_last = self.b.value("transpose", self.x, perm=(*range(1, rank), 0))
        else:  # as the convolution that this is a derivative of has them, which may do with the same
            bordered = self._bordered(images, needed=True)
            batch_last = self.b.value("transpose", bordered, perm=(0, *range(2, rank), 1))
        parts = self.b.value("window_sums", batch_last, rows, **self._sizes(), slices=slices)
        total = self.b.cast(self.b.value("reduce_sum", parts, axes=(0,)), kernel.dtype)
        return self.b.value("transpose", total, perm=(len(self.places) + 1, *range(len(self.places) + 1)))

    # x with its borders

    def _bordered(self, x: Value, needed: bool = False) -> Value:
        """x with the zeros between and around its elements; elements that no window has may be missing, and are where
        it is as little as is `needed`."""
        x = self._spread(x)
        sides = [list(self.attrs[side]) for side in ("low", "high")]
        for d, n in enumerate(self.places if needed else ()):
            reach = (n - 1) * self.attrs["strides"][d] + (self.window[d] - 1) * self.attrs["dilation"][d] + 1
            sides[1][d] = reach - sides[0][d] - x.shape[2 + d]
        low, high = ([max(n, 0) for n in side] for side in sides)
        if any(low) or any(high):
            zero = self.b.const(0, TensorType((), x.dtype))
            x = self.b.value("pad", x, zero, low=(0, 0, *low), high=(0, 0, *high))
        start = [max(-n, 0) for n in sides[0]]
        stop = [n - max(-cut, 0) for n, cut in zip(x.shape[2:], sides[1], strict=True)]
        if (*start, *stop) == (*[0] * len(start), *x.shape[2:]):
            return x
        step = (1,) * len(x.shape)
        return self.b.value("slice", x, start=(0, 0, *start), stop=(*x.shape[:2], *stop), step=step)

    def _spread(self, x: Value) -> Value:
        """With zeros between the elements: an axis of them behind each, which joins the elements' axis."""
        spread = self.attrs["spread"]
        if all(n == 1 for n in spread):
            return x
        zero = self.b.const(0, TensorType((), x.dtype))
        parted = self.b.value("reshape", x, shape=(*x.shape[:2], *[n for e in self.extents for n in (e, 1)]))
        high = (0, 0, *[n for each in spread for n in (0, each - 1)])
        wide = self.b.value("pad", parted, zero, low=(0,) * len(high), high=high)
        flat = self.b.value(
            "reshape", wide, shape=(*x.shape[:2], *[e * n for e, n in zip(self.extents, spread, strict=True)])
        )
        stop = [spread_extent(e, n) for e, n in zip(self.extents, spread, strict=True)]
        rank = len(x.shape)
        return self.b.value("slice", flat, start=(0,) * rank, stop=(*x.shape[:2], *stop), step=(1,) * rank)

    # the windows

    def _taken(self, order: Sequence[str]) -> _Taken:
        """The elements of all windows, with these axes: of `groups`, `channels`, `window`, `batch`, `places`, and
        `results`, along which they are the same."""
        dims = len(self.window)
        extents = {
            "groups": (self.groups,), "channels": (self.channels,), "window": self.window, "batch": (self.batch,),
            "places": self.places, "results": (self.results,),
        }  # fmt: skip
        shape = tuple([n for name in order for n in extents[name]])
        first, axes = {}, 0
        for name in order:
            first[name] = axes
            axes += len(extents[name])

        def at(name: str, d: int = 0, times: int = 1) -> Value:
            index = self.b.value("iota", type=TensorType(shape, int64), axis=first[name] + d)
            return index if times == 1 else self.b.value("mul", index, self._whole(times, shape))

        channel = at("channels")
        if self.groups > 1:
            channel = self.b.value("add", at("groups", 0, self.channels), channel)
        where = [
            self.b.value("add", at("places", d, self.attrs["strides"][d]), at("window", d, self.attrs["dilation"][d]))
            for d in range(dims)
        ]
        return _Taken(self.b.value("gather", self.x, at("batch"), channel, *where), first, where)

    def _whole(self, value: int, shape: tuple[int, ...]) -> Value:
        return self.b.const(value, TensorType(shape, int64))

    def _present(self, taken: _Taken) -> Value | None:
        """Which elements of the windows are elements of x, and not between or around them."""
        tests, shape = [], taken.elements.shape
        for d, where in enumerate(taken.where):
            low, spread = self.attrs["low"][d], self.attrs["spread"][d]
            at = self.b.value("add", where, self._whole(-low, shape)) if low else where
            end = spread_extent(self.extents[d], spread)
            if low > 0:
                tests.append(self.b.value("ge", at, self._whole(0, shape)))
            if self.attrs["high"][d] > 0:
                tests.append(self.b.value("lt", at, self._whole(end, shape)))
            if spread > 1:
                rest = self.b.value("mod", at, self._whole(spread, shape))
                tests.append(self.b.value("eq", rest, self._whole(0, shape)))
        found = None
        for test in tests:
            assert test.dtype is bool_
            found = test if found is None else self.b.value("and", found, test)
        return found

    # the two ways

    def _product(self, kernel: Value) -> Value:
        """(groups, results, C k) x (groups, C k, places) of each of the batch, which is as the results lie; of few
        places, for which copies of the kernel are no smaller, the places of all at once, with the batch brought to the
        front behind it."""
        depth, places = self.channels * prod(self.window), prod(self.places)
        weights = self.b.value("reshape", kernel, shape=(self.groups, self.results, depth))
        if places >= depth:
            copies = (self.batch, *weights.shape)
            rows = self._rows(("batch", "groups", "channels", "window", "places"), (*copies[:2], depth, places))
            return self.b.value("matmul", self.b.value("broadcast", weights, shape=copies, dims=(1, 2, 3)), rows)
        summed, kept = ("channels", "window"), ("batch", "places")
        if self.window[-1] > self.places[-1]:  # as in derivatives by kernels: neighbours of a window lie side by side
            rows = self._rows(("groups", *kept, *summed), (self.groups, self.batch * places, depth))
            rows = self.b.value("transpose", rows, perm=(0, 2, 1))
        else:
            rows = self._rows(("groups", *summed, *kept), (self.groups, depth, self.batch * places))
        found = self.b.value("matmul", weights, rows)
        apart = (self.groups, self.results, self.batch, places)
        return self.b.value("transpose", self.b.value("reshape", found, shape=apart), perm=(2, 0, 1, 3))

    def _rows(self, order: Sequence[str], shape: tuple[int, ...]) -> Value:
        """All windows; those of one element, one beside the other, are x."""
        whole = order[0] == "batch" and self.x.shape[2:] == self.places and set(self.window) == {1}
        return self.b.value("reshape", self.x if whole else self._taken(order).elements, shape=shape)

    def sums_by_places(self, kernel: Value) -> Value:
        """Of each place a sum over its window, which are sums of one kernel: what is at a place of one window is read
        once for all."""
        kept, dims = (self.batch, self.groups, self.results), range(len(self.window))
        shape = (*kept, self.channels, *self.window)
        own = (1, 2, 3, *[4 + d for d in dims])
        weights = self.b.value("reshape", kernel, shape=shape[1:])
        weights = self.b.cast(self.b.value("broadcast", weights, shape=shape, dims=own), sum_dtype(kernel.dtype))
        found = []
        for place in product(*map(range, self.places)):
            start = [at * n for at, n in zip(place, self.attrs["strides"], strict=True)]
            ends = zip(start, self.window, self.attrs["dilation"], strict=True)
            stop = [first + (n - 1) * step + 1 for first, n, step in ends]
            step = (1, 1, *self.attrs["dilation"])
            x = self.b.value("slice", self.x, start=(0, 0, *start), stop=(*self.x.shape[:2], *stop), step=step)
            x = self.b.value("reshape", x, shape=(*kept[:2], *shape[3:]))
            x = self.b.cast(self.b.value("broadcast", x, shape=shape, dims=(0, 1, *own[2:])), weights.dtype)
            total = self.b.value("reduce_sum", self.b.value("mul", x, weights), axes=own[2:])
            found.append(self.b.value("reshape", total, shape=(*kept, 1)))
        all_places = self.b.cast(self.b.value("concat", *found, axis=3), kernel.dtype)
        return self.b.value("reshape", all_places, shape=self.node.results[0].shape)

    def _sum(self, kernel: Value) -> Value:
        """What is added up lies in front where there are many results, each of a lane of its own, else behind; 16-bit
        floats are added up in float32."""
        kept, summed = ("batch", "groups", "results", "places"), ("channels", "window")
        many = prod(self.node.results[0].shape) >= SHORT_RESULT
        taken = self._taken((*summed, *kept) if many else (*kept, *summed))
        parted = self.b.value("reshape", kernel, shape=(self.groups, self.results, *kernel.shape[1:]))
        shape, first = taken.elements.shape, taken.first
        own = [first["groups"], first["results"], first["channels"]]
        own += [first["window"] + d for d in range(len(self.window))]
        order = sorted(range(len(own)), key=lambda j: own[j])
        turned = self.b.value("transpose", parted, perm=tuple(order))
        weights = self.b.value("broadcast", turned, shape=shape, dims=tuple(sorted(own)))
        terms = self.b.value("mul", *[self.b.cast(v, sum_dtype(v.dtype)) for v in (taken.elements, weights)])
        present = self._present(taken) if self.attrs["absent"] else None
        if present is not None:
            terms = self.b.value("select", present, terms, self.b.const(0, TensorType(shape, terms.dtype)))
        axes = sorted(own[2:])
        if not many and len(axes) > 1 and self.window[-1] >= LONG_ROW:
            terms = self.b.value("reduce_sum", terms, axes=(axes.pop(),))  # rows of x, which are read in order
        return self.b.cast(self.b.value("reduce_sum", terms, axes=tuple(axes)), kernel.dtype)
