"""What comes behind a kernel whose lanes are reduced by shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, Reduction
from loopgrad.codegen.targets.gpu.emit.context import SIZE, memory_type
from loopgrad.codegen.targets.gpu.interface import PARAM, SCRATCH, Dispatch
from loopgrad.codegen.targets.gpu.lanes.plan import LaneMapping, Support, Tiles, at_once, parts, sharded_tiles
from loopgrad.codegen.targets.gpu.lanes.shard_plan import shard_pieces
from loopgrad.codegen.targets.gpu.lanes.shard_tiles import ShardRoots
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.types import int64


def shard_folds(
    kernel: Kernel, number: int, slots: Sequence[int], tiles: Tiles | None, scratch: list[int], support: Support
) -> list[Dispatch]:
    """From what the kernel leaves in a scratch block (what pieces of shards make, or a contribution per lane) to the
    result, for alike reductions."""
    group = support.geometry.group
    reductions = [kernel.reductions[slot] for slot in slots]
    r, source = reductions[0], (SCRATCH, number)
    targets = [(PARAM, r.param) for r in reductions]
    assert r.shards is not None
    passes = []
    if tiles is None or tiles.shards is None:
        terms = terms_kernel(reductions, prod(kernel.domain))
        tiles = sharded_tiles(terms, shard_pieces(terms, r.shards, group), support.options, support.geometry)
        assert tiles is not None
        module = support.add(terms, LaneMapping(group=group, tiles=tiles))
        block = (SCRATCH, len(scratch))
        assert tiles.shards is not None
        scratch.append(len(slots) * tiles.shards.count * SIZE[memory_type(r.dtype)] * parts(r))
        passes.append(Dispatch(module, tiles.shards.lanes, (source, *targets, block), tiles.count))
        source = block
    assert tiles.shards is not None
    if at_once(tiles, r.shards):
        return passes
    program = ShardRoots(replace(r, param=1), tiles.shards, len(slots))
    roots = support.add(roots_kernel(program), LaneMapping(group=group, program=program))
    count = len(slots) * len(r.shards.roots)
    return [*passes, Dispatch(roots, count, (source, *targets), count)]


def terms_kernel(reductions: Sequence[Reduction], lanes: int) -> Kernel:
    """Params 1 ... are what the lanes of param 0 make, which has those of one reduction after those of another."""
    lane, body, params = KValue(int64), Body(), [BufferParam(reductions[0].dtype, lanes * len(reductions), "read")]
    found = []
    for slot, r in enumerate(reductions):
        term = body.one("load", r.dtype, body.integer("add", lane, slot * lanes), param=0)
        body.ops.append(KOp("reduce", (term,), (), {"slot": slot}))
        params.append(BufferParam(r.dtype, result_size(r), "write"))
        found.append(replace(r, param=slot + 1, rank=1))
    return Kernel("shards", (lanes,), tuple(params), Block((lane,), body.ops), (), tuple(found))


def roots_kernel(program: ShardRoots) -> Kernel:
    """Without a body: `program` is what workgroups do."""
    r, pieces = program.reduction, program.pieces
    assert r.shards is not None
    source = BufferParam(r.dtype, program.sums * pieces.count * parts(r), "read")
    results = [BufferParam(r.dtype, result_size(r), "write")] * program.sums
    domain = (program.sums * len(r.shards.roots),)
    return Kernel(f"roots_{r.kind}", domain, (source, *results), Block((KValue(int64),), []))


def result_size(r: Reduction) -> int:
    assert r.shards is not None
    return len(r.shards.roots) * (1 if r.shards.rounded else parts(r))
