"""Calls that a target may have a routine for: attention, where there are matrix units.

    call(q, k, v) {kind="routine", name="attention"} { ... }
                                    ->  attention(q, k, v): a step, where the target has it and it is made for such
                                        shapes
                                    ->  what the region says, elsewhere: products over blocks of keys

A batch may have given operands more axes, those of all calls alike; what isn't batched then is repeated. Rows are
padded with zeros to whole copies of the routine, which changes no product.

Keys and values that several heads of queries share are read as they are: what repeats them, `broadcast` or `reshape` of
one (as of `lg.repeat`), falls away, and the routine is told which ones each head has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from loopgrad.codegen.options import FULL_PRECISION
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.attention import OF
from loopgrad.graph.rebuild import GraphBuilder, read_anywhere, rebuild
from loopgrad.graph.region_flow import outside_lanes
from loopgrad.graph.regions import Call, in_parts
from loopgrad.graph.types import TensorType

CHUNK: Final = 8  # elements that rows are multiples of
MOST: Final = 1 << 31  # elements of one of many matrices, which are counted in 32 bits


class RoutineForm(NamedTuple):
    """So many operands come before masks and biases, and so many results are made: who wants more has blocks of keys.
    Operands at `rows` have rows of elements, at most so many of them, as registers and a workgroup's memory hold."""

    tensors: int
    results: int
    rows: tuple[int, ...]
    widest: int


FORMS: Final = {
    "attention": RoutineForm(3, 2, (0, 1, 2), 256),
    "attention_gradient": RoutineForm(6, 3, (0, 1, 2, 5), 128),
}


def has_routines(graph: Graph) -> bool:
    return any(_is_routine(node) or any(map(has_routines, node.regions)) for node in graph.nodes)


def rewrite_routines(graph: Graph, routines: frozenset[str], precision: str = FULL_PRECISION) -> Graph:
    """`graph` without such calls. Lanes have no routines: in their regions a call is what it says. `precision`: of the
    factors of products of float32."""
    outside, taken = outside_lanes(graph), read_anywhere(graph)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if not _is_routine(node):
            return None
        name, original = node.attrs["name"], builder.original
        assert original is not None
        made = original in outside and taken.isdisjoint(original.results[FORMS[name].results :])
        operands = _alike(node, builder, routines) if made and name in routines else None
        if operands is None:
            return builder.inline(Call.of(node).function, node.operands)
        how = {**dict(node.attrs["routine"]), "precision": precision}
        del how["rank"]
        operands, how["heads"] = _with_shared(operands)
        return _narrowed(builder.emit(name, operands, how), node, builder)

    return rebuild(graph, rewrite)


def _is_routine(node: Node) -> bool:
    return node.op == "call" and Call.of(node).kind == "routine"


def _alike(node: Node, builder: GraphBuilder, routines: frozenset[str]) -> list[Value] | None:
    """The operands with the same leading axes and rows of multiples of CHUNK; None where the routine isn't made for
    them."""
    form, how = FORMS[node.attrs["name"]], dict(node.attrs["routine"])
    types = [v.type for v in node.operands]
    if len(types) != form.tensors + len(how["sides"]) or not all(isinstance(t, TensorType) for t in types):
        return None
    ranks = [len(v.shape) - 2 for v in node.operands]
    rank = max(ranks)
    if not set(ranks) <= {how["rank"], rank} or len(node.results[0].shape) - 2 != rank:
        return None
    batch = node.results[0].shape[:-2]
    q, k, v = node.operands[:3]
    if (
        OF.format(node.attrs["name"], q.dtype) not in routines
        or not {k.dtype, v.dtype} <= {q.dtype}
        or not _fits(form, q, v)
    ):
        return None
    given, beside = in_parts(node.operands, form.tensors, len(how["sides"]))
    found = [_repeated(x, batch, builder) for x in given]
    sides = [_leading(x, rank, builder) for x in beside]
    if any(x is None for x in found) or not all(_spreads(x, batch) for x in sides):
        return None
    whole = [
        builder.extended(x, rank + 1, -(-x.shape[-1] // CHUNK) * CHUNK) if n in form.rows else x
        for n, x in enumerate(found)
        if x is not None
    ]
    return [*whole, *sides]


def _fits(form: RoutineForm, q: Value, v: Value) -> bool:
    (t, d), (s, e) = q.shape[-2:], v.shape[-2:]
    return max(d, e) <= form.widest and min(t, s, d, e) > 0 and max(t, s) * max(d, e, CHUNK) < MOST


def _narrowed(results: Sequence[Value], node: Node, builder: GraphBuilder) -> list[Value]:
    """Without the columns that were added; nobody takes what there isn't."""
    missing = [builder.const(0.0, v.type) for v in node.results[len(results) :] if isinstance(v.type, TensorType)]
    found = []
    for x, wanted in zip([*results, *missing], node.results, strict=True):
        start, step = (0,) * len(x.shape), (1,) * len(x.shape)
        same = x.shape == wanted.shape
        found.append(x if same else builder.value("slice", x, start=start, stop=wanted.shape, step=step))
    return found


def _with_shared(operands: list[Value]) -> tuple[list[Value], tuple[tuple[int, ...], ...]]:
    """The operands with keys and values that aren't repeated, where both are alike, and what the routine has to know of
    that. Derivatives by them are those of each head, which whoever repeated them adds up."""
    q, *others = operands[:3]
    keys, values = map(_before_repeats, others)
    if keys is None or values is None or (keys.leading, keys.wide) != (values.leading, values.wide):
        return operands, ()
    return [q, keys.source, values.source, *operands[3:]], (keys.wide, keys.leading)


class _Repeated(NamedTuple):
    """What is repeated along leading axes: the source, its leading axes with 1 where it is, and those afterwards."""

    source: Value
    leading: tuple[int, ...]
    wide: tuple[int, ...]


def _before_repeats(x: Value) -> _Repeated | None:
    """None where nothing is repeated, or not by whole matrices."""
    x = _of_matrices(x)
    node = x.node
    if node is None or node.op != "broadcast":
        return None
    source, dims, rank = node.operands[0], tuple(node.attrs["dims"]), len(x.shape)
    if dims[-2:] != (rank - 2, rank - 1) or source.shape[-2:] != x.shape[-2:]:
        return None
    leading = [1] * (rank - 2)
    for d, n in zip(dims[:-2], source.shape, strict=False):
        leading[d] = n
    return _Repeated(_of_matrices(source), tuple(leading), x.shape[:-2])


def _of_matrices(x: Value) -> Value:
    """The same matrices before they were arranged otherwise."""
    node = x.node
    same = node is not None and node.op == "reshape" and node.operands[0].shape[-2:] == x.shape[-2:]
    return node.operands[0] if node is not None and same else x


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
