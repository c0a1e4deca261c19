"""Rows that are put together of single elements: coordinates of points, parts of complex numbers, entries of matrices.

    stack([x * c - y * s, x * s + y * c], axis=-1)

A lane for each row makes all elements of one; a lane for each element would choose among the ways to make it, or read
it where another kernel has stored it. On a CPU rotations of points by quaternions take 4.8 times as long by the latter.
Short rows that are put together of several elements at a time, as colours and their opacity, are taken apart to them,
and so are on GPUs results of few elements a row that need something expensive of all the row, as unit vectors do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from loopgrad.codegen.schedule.access import keeps_lanes
from loopgrad.codegen.schedule.cost import EXPENSIVE, own_cost
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, REDUCTIONS
from loopgrad.graph.rebuild import GraphBuilder, readers_of, rebuild

LONGEST: Final = 16  # elements of a row
FEW: Final = 4  # elements of a row that are computed side by side, whatever they are made of
MOST_LOOKED_AT: Final = 64  # values
MANY_ROWS: Final = 1 << 8  # fewer are chosen where they are read, which saves a launch


def made_by_rows(node: Node, stored: bool, readers: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether a concat is such rows, and `stored` anyway or read by what goes on row by row."""
    return all(v.shape[-1:] == (1,) for v in node.operands) and _are_rows(node, stored, readers)


def in_single_elements(graph: Graph, in_order: bool = False) -> Graph:
    """Concats of computed pieces of such rows as concats of their elements; so are results of few elements a row, but
    on a CPU, whose vectors make elements side by side in less time (0.6 times, of unit vectors)."""
    readers = readers_of(graph)
    joined = [node for node in graph.nodes if node.op == "concat" and any(map(_is_computed_piece, node.operands))]
    chosen = {node for node in joined if _are_rows(node, node.results[0] in graph.outputs, readers)}

    results = {v.node for v in graph.outputs if not in_order and _needs_its_row(v) and _ends_in_results(v, readers)}

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        if builder.original in chosen:
            return builder.emit("concat", [x for v in node.operands for x in _elements(v, builder)], node.attrs)
        if builder.original in results:
            pieces = zip(*[_elements(v, builder) for v in node.operands], strict=True)
            made = [builder.emit(node.op, operands, node.attrs)[0] for operands in pieces]
            return builder.emit("concat", made, {"axis": len(made[0].shape) - 1})
        return None

    return rebuild(graph, rewrite, inner=False) if chosen or results else graph


def _needs_its_row(value: Value) -> bool:
    """Whether it has few elements a row, made one by one, of something expensive too that a row has once: on an H200
    interpolation between quaternions takes 2.4 times as long where that is stored for them."""
    if value.node is None or value.node.op not in ELEMENTWISE or not value.shape or not 1 < value.shape[-1] <= FEW:
        return False
    rows, pending, seen = prod(value.shape[:-1]), [value], {value}
    while pending and len(seen) <= MOST_LOOKED_AT and rows >= MANY_ROWS:
        node = pending.pop().node
        if node is None:
            continue
        if node.op == "broadcast" and prod(node.operands[0].shape) == rows:
            if _is_expensive(node.operands[0]):
                return True
        elif node.op in ELEMENTWISE:
            fresh = [v for v in node.operands if v not in seen]
            seen.update(fresh)
            pending.extend(fresh)
    return False


def _ends_in_results(value: Value, readers: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether all that is made of it is made element by element."""
    pending, seen = [value], {value}
    while pending and len(seen) <= MOST_LOOKED_AT:
        for node in readers.get(pending.pop(), ()):
            if node.op not in ELEMENTWISE:
                return False
            fresh = [v for v in node.results if v not in seen]
            seen.update(fresh)
            pending.extend(fresh)
    return not pending


def _is_expensive(value: Value) -> bool:
    """To compute again for each element of a row."""
    spent, pending, seen = 0.0, [value], {value}
    while pending and spent < EXPENSIVE and len(seen) <= MOST_LOOKED_AT:
        node = pending.pop().node
        if node is not None and (node.op in ELEMENTWISE or node.op in ("reshape", "slice") or node.op in REDUCTIONS):
            spent += own_cost(node) if node.op in ELEMENTWISE else 0.0
            fresh = [v for v in node.operands if v not in seen]
            seen.update(fresh)
            pending.extend(fresh)
    return spent >= EXPENSIVE


def _is_computed_piece(value: Value) -> bool:
    return value.shape[-1] > 1 and value.node is not None and value.node.op in ELEMENTWISE


def _elements(value: Value, builder: GraphBuilder) -> Sequence[Value]:
    """Those of each row."""
    *outer, count = value.shape
    if count == 1:
        return [value]
    firsts = [((*[0] * len(outer), i), (*outer, i + 1)) for i in range(count)]
    return [builder.value("slice", value, start=start, stop=stop, step=(1,) * len(start)) for start, stop in firsts]


def _are_rows(node: Node, stored: bool, readers: Mapping[Value, Sequence[Node]]) -> bool:
    whole = node.results[0]
    last, rows = len(whole.shape) - 1, prod(whole.shape[:-1])
    if node.attrs["axis"] != last or not 1 < whole.shape[last] <= LONGEST:
        return False
    if stored:
        return True
    return rows >= MANY_ROWS and all(_goes_on(reader, whole, rows, readers) for reader in readers.get(whole, ()))


def _goes_on(reader: Node, value: Value, rows: int, readers: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether it computes row by row; or computes nothing, and what reads it doesn't put it among others."""
    if not all(keeps_lanes(reader, i, rows) for i, v in enumerate(reader.operands) if v is value):
        return False
    (result, *_) = reader.results
    after = readers.get(result, ()) if reader.op == "reshape" else ()
    return all(_goes_on(node, result, rows, readers) for node in after if node.op in ("concat", "reshape"))
