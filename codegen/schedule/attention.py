"""Calls that a target may have a routine for: attention of 16-bit floats, where there are matrix units.

    call(q, k, v) {kind="routine", name="attention"} { ... }
                                    ->  attention(q, k, v): a step, where the target has it and it is made for such
                                        shapes
                                    ->  what the region says, elsewhere: products over blocks of keys

A batch may have given operands more axes, those of all calls alike; what isn't batched then is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.regions import Call, Loop, Region, in_parts
from loopgrad.graph.types import TensorType, bfloat16, float16

WIDEST: Final = {"attention": 256, "attention_gradient": 128}  # rows of which registers hold enough
CHUNK: Final = 8  # elements that are copied at once
MOST: Final = 1 << 31  # elements of one of many matrices, which are counted in 32 bits
TENSORS: Final = {"attention": 3, "attention_gradient": 6}


def has_routines(graph: Graph) -> bool:
    return any(_is_routine(node) or any(map(has_routines, node.regions)) for node in graph.nodes)


def rewrite_routines(graph: Graph, routines: frozenset[str]) -> Graph:
    """`graph` without such calls. Lanes have no routines: in their regions a call is what it says."""
    outside = stepped(graph)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if not _is_routine(node):
            return None
        name = node.attrs["name"]
        operands = _alike(node, builder) if name in routines and builder.original in outside else None
        if operands is None:
            return builder.inline(Call.of(node).function, node.operands)
        how = dict(node.attrs["routine"])
        del how["rank"]
        return builder.emit(name, operands, how)

    return rebuild(graph, rewrite)


def _is_routine(node: Node) -> bool:
    return node.op == "call" and Call.of(node).kind == "routine"


def stepped(graph: Graph) -> set[Node]:
    """The nodes of the graph, and of loops over whole tensors in it: those outside of lanes."""
    found = set(graph.nodes)
    for node in graph.nodes:
        if node.regions and not Region.of(node).lanes and isinstance(Region.of(node), Loop):
            found = found.union(*[stepped(region) for region in Region.of(node).bodies])
    return found


def _alike(node: Node, builder: GraphBuilder) -> list[Value] | None:
    """The operands with the same leading axes; None where the routine isn't made for them."""
    name, how = node.attrs["name"], dict(node.attrs["routine"])
    tensors = TENSORS[name]
    types = [v.type for v in node.operands]
    if len(types) != tensors + len(how["sides"]) or not all(isinstance(t, TensorType) for t in types):
        return None
    ranks = [len(v.shape) - 2 for v in node.operands]
    rank = max(ranks)
    if not set(ranks) <= {how["rank"], rank} or len(node.results[0].shape) - 2 != rank:
        return None
    batch = node.results[0].shape[:-2]
    q, k, v = node.operands[:3]
    if q.dtype not in (bfloat16, float16) or not {k.dtype, v.dtype} <= {q.dtype} or not _fits(name, q, k, v):
        return None
    given, beside = in_parts(node.operands, tensors, len(how["sides"]))
    found = [_repeated(x, batch, builder) for x in given]
    sides = [_leading(x, rank, builder) for x in beside]
    if any(x is None for x in found) or not all(_spreads(x, batch) for x in sides):
        return None
    return [*[x for x in found if x is not None], *sides]


def _fits(name: str, q: Value, k: Value, v: Value) -> bool:
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    whole = d % CHUNK == 0 and e % CHUNK == 0
    return whole and 0 < max(d, e) <= WIDEST[name] and min(t, s, d, e) > 0 and max(t, s) * max(d, e) < MOST


def _repeated(x: Value, batch: tuple[int, ...], builder: GraphBuilder) -> Value | None:
    if x.shape[:-2] == batch:
        return x
    missing = len(batch) - (len(x.shape) - 2)
    if x.shape[:-2] != batch[missing:]:
        return None
    shape = (*batch, *x.shape[-2:])
    return builder.value("broadcast", x, shape=shape, dims=tuple(range(missing, len(shape))))


def _leading(x: Value, rank: int, builder: GraphBuilder) -> Value:
    """With axes of 1 in front."""
    missing = rank - (len(x.shape) - 2)
    return builder.value("reshape", x, shape=((1,) * missing + x.shape)) if missing else x


def _spreads(x: Value, batch: tuple[int, ...]) -> bool:
    return all(n in (1, m) for n, m in zip(x.shape[:-2], batch, strict=True))
