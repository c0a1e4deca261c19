"""One kernel from the roots that the scheduler grouped.

Enters: a KernelRequest: how many lanes, which values are in memory already, which nodes may be computed
inside, and the roots. Leaves: a Kernel and the buffers behind its parameters.

The domain starts as one dim. Where an access divides the lane number (a broadcast along rows, an iota),
the kernel is lowered again with a dim boundary there, so a contiguous program stays one-dimensional and
no kernel divides what its domain can give it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, Reduction, RunningTotal, Shards
from loopgrad.codegen.lower import arrays, control, elementwise, indexing, linalg, movement, reduction
from loopgrad.codegen.lower.context import (
    AccumulatorRef,
    CannotPredict,
    Frame,
    Lowering,
    NotLaneLocal,
    Settings,
    Stored,
    leading_dims,
)
from loopgrad.codegen.lower.emitter import Index, Part
from loopgrad.codegen.lower.indexing import scatter_into
from loopgrad.codegen.lower.liveness import Live
from loopgrad.codegen.lower.movement import digit
from loopgrad.codegen.lower.reduction import Fold, tree
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import COMBINES
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType, int64

RULES: Final = {**elementwise.RULES, **movement.RULES, **reduction.RULES, **indexing.RULES, **linalg.RULES}


@dataclass(frozen=True, slots=True)
class Store:
    """Write the value, every element."""

    value: Value
    buffer: Any


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction over lanes. One buffer per kept trailing position (see Stored)."""

    node: Node
    buffers: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ScatterUpdates:
    """Combine a top-level scatter's updates into the buffer."""

    node: Node
    buffer: Any
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """Write a running total along one axis. The lanes are the elements, and the kernel has no other root; or they are
    the other axes, where each makes a whole row of the operand."""

    node: Node
    buffer: Any


@dataclass(frozen=True, slots=True)
class Accumulate:
    """A region's result that its lanes scatter into."""

    value: Value
    buffer: Any
    exclusive: bool


Root = Store | Reduce | ScatterUpdates | Scan | Accumulate


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """`nodes`: what may be computed inside, in topological order; `stored`: what is loaded. `rolled`: values of many
    elements are kept in arrays of the lane."""

    name: str
    lanes: int
    lane_loops: bool
    nodes: Sequence[Node]
    stored: Mapping[Value, Stored]
    roots: Sequence[Root]
    rolled: bool = False


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    kernel: Kernel
    buffers: tuple[Any, ...]


def build_kernel(request: KernelRequest, settings: Settings) -> BuiltKernel:
    """Lower until the domain has every boundary that the accesses ask for, and lanes compute nothing beforehand that
    others read."""
    boundaries = set(_fixed(request)) - {1, request.lanes}
    unlike: frozenset[Value] = frozenset()
    while True:
        dims = _dims(request, boundaries)
        builder = _Builder(request, settings, dims, unlike)
        builder.run()
        missing = builder.ctx.split - boundaries
        if missing and _dims(request, boundaries | missing) != dims:
            boundaries |= missing
            continue
        others = builder.ctx.beforehand.intersection(builder.ctx.mismatched)
        if not others:
            break
        unlike |= others
    if builder.ctx.mismatched:
        raise NotLaneLocal(builder.ctx.mismatched[0])
    return builder.finish()


def _dims(request: KernelRequest, boundaries: set[int]) -> tuple[int, ...]:
    """Domain dims with a boundary above each suffix size in a chain of divisors."""
    ordered = [*_fixed(request), *sorted(boundaries, reverse=True)]
    chain: list[int] = []
    for b in ordered:
        if 1 < b < request.lanes and b not in chain and all(b % c == 0 or c % b == 0 for c in [*chain, request.lanes]):
            chain.append(b)
    sizes = [request.lanes, *sorted(chain, reverse=True), 1]
    dims = tuple([a // b for a, b in pairwise(sizes)])
    return dims if dims != (1,) else ()


def _fixed(request: KernelRequest) -> list[int]:
    """The suffix sizes at which roots need a boundary."""
    found = []
    for root in request.roots:
        if isinstance(root, Reduce):
            found.append(_reduced_size(root.node, request.lanes))
        elif isinstance(root, Scan) and _by_element(root.node, request.lanes):
            _, extent, inner = _scanned(root.node)
            found += [extent * inner, inner]
    return found


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Along which a reduction across lanes combines, all of them or those of a shard."""
    axes: tuple[int, ...] = node.attrs.get("axes", (0,))
    return axes


def combine_of(node: Node) -> str:
    combine: str = node.attrs.get("combine") or COMBINES[node.op]
    return combine


def _scanned(node: Node) -> tuple[int, int, int]:
    """A running total's operand as (outer, extent, inner)."""
    shape, axis = node.operands[0].shape, node.attrs["axis"]
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _by_element(node: Node, lanes: int) -> bool:
    return lanes == prod(node.operands[0].shape)


def _reduced_size(node: Node, lanes: int) -> int:
    """How many consecutive lanes a reduction combines: the lanes of the operand over the kept lanes."""
    shape, axes = node.operands[0].shape, reduced_axes(node)
    size, below = 1, prod(shape) // lanes
    for d in range(len(shape) - 1, -1, -1):
        if below > 1:
            below //= shape[d]
        elif d in axes or shape[d] == 1:
            size *= shape[d]
        else:
            break
    return size


class _Builder:
    def __init__(
        self, request: KernelRequest, settings: Settings, dims: tuple[int, ...], unlike: frozenset[Value]
    ) -> None:
        self.request = request
        self.ctx = Lowering(settings, RULES, dims, request.lane_loops)
        self.ctx.rolled, self.ctx.unlike = request.rolled, unlike
        self.frame = Frame(dict(request.stored))
        self.reductions: list[Reduction] = []
        self.running: RunningTotal | None = None
        self.counts: list[Value] = []

    def run(self) -> None:
        live = self._live()
        self._bind_accumulators()
        regions = [Region.of(n) for n in live.needed if n.regions]
        self.counts = [r.count for r in regions if isinstance(r, Loop) and r.count is not None]
        control.emit_effects(self.ctx, self.frame, live, None)
        for root in self.request.roots:
            match root:
                case Store():
                    self._store(root)
                case Reduce():
                    self._reduce(root)
                case ScatterUpdates():
                    param = self.ctx.params.number(root.buffer, _type(root.node.results[0]), "accumulate")
                    target = AccumulatorRef(param, root.exclusive)
                    scatter_into(self.ctx, self.frame, root.node, target, self.ctx.lane_index)
                case Scan() if _by_element(root.node, self.ctx.lanes):
                    self._running(root)
                case Scan():
                    self._scan(root)

    def _live(self) -> Live:
        wanted: list[Value] = []
        for root in self.request.roots:
            match root:
                case Store() | Accumulate():
                    wanted.append(root.value)
                case Reduce() | Scan():
                    wanted.append(root.node.operands[0])
                case ScatterUpdates():
                    wanted.extend(root.node.operands[1:])
        return self.ctx.settings.liveness.slice(self.request.nodes, wanted, self.request.stored)

    def _bind_accumulators(self) -> None:
        for root in self.request.roots:
            if isinstance(root, Accumulate):
                param = self.ctx.params.number(root.buffer, _type(root.value), "accumulate")
                self.ctx.accumulators[root.value] = AccumulatorRef(param, root.exclusive)

    # ---- roots

    def _store(self, root: Store) -> None:
        ctx, type = self.ctx, _type(root.value)
        param = ctx.params.number(root.buffer, type, "write")
        if leading_dims(type.shape, ctx.lanes) is None:
            self._store_once(root.value, param)
            return
        if arrays.keeps(ctx, root.value):
            self._store_all(root.value, param)
            return
        for t in range(type.size // ctx.lanes):
            index = ctx.lane_at(type.shape, t)
            x = ctx.pull(self.frame, root.value, index)
            ctx.emitter.effect("store", (ctx.emitter.value(ctx.emitter.linear(index)), x), (), {"param": param})

    def _store_all(self, value: Value, param: int) -> None:
        ctx, e = self.ctx, self.ctx.emitter

        def store(parts: Index) -> None:
            index = (*ctx.lane_index, *parts)
            x = ctx.pull(self.frame, value, index)
            e.effect("store", (e.value(e.linear(index)), x), (), {"param": param})

        arrays.nest(e, arrays.own_dims(ctx, value), store)

    def _store_once(self, value: Value, param: int) -> None:
        """A value that every lane holds whole: the first lane writes it."""
        ctx, e = self.ctx, self.ctx.emitter
        scalars = ctx.pull_all(self.frame, value)
        first = e.compare("eq", e.value(e.linear(ctx.lane_index)), e.const(0, int64))
        places = [e.const(t, int64) for t in range(len(scalars))]
        e.open((), fence=True)
        for place, x in zip(places, scalars, strict=True):
            e.effect("store", (place, x), (), {"param": param})
        then = e.close()
        e.open((), fence=True)
        e.effect("if", (first,), (), {}, (then, e.close()))

    def _reduce(self, root: Reduce) -> None:
        """The lane's trailing elements are combined first, separately for each kept position."""
        ctx, operand, axes = self.ctx, root.node.operands[0], reduced_axes(root.node)
        kind, shape = combine_of(root.node), operand.shape
        first = leading_dims(shape, ctx.lanes) or 0
        sizes = shape[first:]
        kept = [d for d in range(first, len(shape)) if d not in axes]
        groups: list[list[KValue]] = [[] for _ in root.buffers]
        for t in range(prod(sizes)):
            groups[_kept_position(t, sizes, [d - first for d in kept])].append(
                ctx.pull(self.frame, operand, (*ctx.lane_index, *digit(prod(sizes), t)))
            )
        rank = self._rank(_reduced_size(root.node, ctx.lanes))
        attrs = {name: value for name, value in root.node.attrs.items() if name != "combine"}
        shards = Shards(**attrs) if "roots" in attrs else None
        for buffer, values in zip(root.buffers, groups, strict=True):
            part = TensorType((_type(root.node.results[0]).size // len(root.buffers),), operand.dtype)
            param = ctx.params.number(buffer, part, "write")
            self.reductions.append(Reduction(kind, operand.dtype, param, rank, shards))
            ctx.emitter.effect("reduce", (tree(ctx, kind, values),), (), {"slot": len(self.reductions) - 1})

    def _rank(self, reduced: int) -> int:
        """The number of trailing domain dims that hold `reduced` lanes."""
        rank, size = 0, 1
        while size < reduced:
            rank += 1
            size *= self.ctx.dims[-rank]
        return rank

    def _running(self, root: Scan) -> None:
        ctx, node = self.ctx, root.node
        assert len(self.request.roots) == 1, "a running total has a kernel of its own"
        param = ctx.params.number(root.buffer, _type(node.results[0]), "write")
        term = ctx.pull(self.frame, node.operands[0], ctx.lane_index)
        ctx.emitter.effect("scan", (term,), (), {})
        kind, reverse = COMBINES[node.op], node.attrs["reverse"]
        self.running = RunningTotal(kind, term.dtype, param, _scanned(node), reverse)

    def _scan(self, root: Scan) -> None:
        """A lane walks a row of its own."""
        ctx, node, e = self.ctx, root.node, self.ctx.emitter
        operand, axis, reverse = node.operands[0], node.attrs["axis"], node.attrs["reverse"]
        shape, dtype, kind = operand.shape, operand.dtype, COMBINES[node.op]
        lead, below = ctx.cuts(ctx.lane_index, (prod(shape[:axis]), prod(shape[axis + 1 :])))
        param = ctx.params.number(root.buffer, _type(node.results[0]), "write")

        def element(at: Any) -> Index:
            return (*lead, *((Part(shape[axis], at),) if shape[axis] != 1 else ()), *below)

        def put(at: Any, total: KValue) -> None:
            e.effect("store", (e.value(e.linear(element(at))), total), (), {"param": param})

        how = Fold(e, kind, dtype)
        start = e.value(shape[axis] - 1 if reverse else 0)
        first = ctx.pull(self.frame, operand, element(start))
        put(start, first)
        carried = how.of_term(first)
        dtypes = tuple([v.dtype for v in carried])
        k, *inner = e.open((int64, *dtypes))
        at = e.sub(shape[axis] - 2, k) if reverse else e.add(k, 1)
        totals = how.add(tuple(inner), ctx.pull(self.frame, operand, element(at)))
        put(at, how.result(totals))
        e.effect("for", (e.const(shape[axis] - 1, int64), *carried), dtypes, {"reverse": False}, (e.close(totals),))

    # ---- the result

    def finish(self) -> BuiltKernel:
        ctx = self.ctx
        key = self._order_key()
        kernel = Kernel(
            self.request.name,
            ctx.dims,
            tuple(ctx.params.params),
            ctx.emitter.blocks[0].block,
            tuple(ctx.stacks),
            tuple(self.reductions),
            tuple(ctx.errors),
            key,
            running=self.running,
            arrays=tuple(ctx.arrays),
        )
        return BuiltKernel(kernel, tuple(ctx.params.buffers))

    def _order_key(self) -> Block | None:
        """The sum of the trip counts, where they vary by lane and need no region."""
        key = Lowering(self.ctx.settings, RULES, self.ctx.dims, self.request.lane_loops)
        key.params = self.ctx.params
        frame = Frame({v: b for v, b in self.frame.bindings.items() if isinstance(b, Stored)})
        e = key.emitter
        known = len(self.ctx.params.params)
        total: KValue | None = None
        for count in self.counts:
            if prod(count.shape) != key.lanes or key.lanes == 1:
                continue
            try:
                n = e.cast(key.pull(frame, count, key.lane_index), int64)
            except CannotPredict:
                return None
            total = n if total is None else e.op("add", (total, n), int64)
        block = e.blocks[0].block
        if total is None or key.mismatched or not _reads(block.ops, block.arguments):
            return None
        assert len(self.ctx.params.params) == known, "the kernel has read every count already"
        if any(op.blocks or op.opcode == "check" for op in block.ops):
            return None
        block.yields = (total,)
        return block


def _kept_position(t: int, sizes: Sequence[int], kept: Sequence[int]) -> int:
    """The row-major position, among the kept dims, of point t of `sizes`."""
    position = 0
    for d in kept:
        position = position * sizes[d] + t // prod(sizes[d + 1 :]) % sizes[d]
    return position


def _reads(ops: Sequence[KOp], values: Sequence[KValue]) -> bool:
    return any(v in values for op in ops for v in op.operands)


def _type(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type
