"""Loops: `while_loop`, `fori_loop`, `scan`.

A loop becomes one region node. Where its condition or bound is an array of shape S the elements of S
are lanes: each runs until its own condition fails or its own count is reached, and keeps its carry from
then on. A carry then starts with S, with three exceptions: a scalar is stretched to S; a carry that the
body returns unchanged is one for all lanes; a carry that is only ever updated with `x.at[i].add` (min,
max, multiply, set) at per-lane positions is shared by all lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loopgrad.graph import ops, region_ops
from loopgrad.graph.accumulators import chain_from
from loopgrad.graph.build import inline, trace
from loopgrad.graph.errors import DTypeError, LoopgradError, ShapeError, explained
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, bool_, int64
from loopgrad.lazy.carries import (
    Kind,
    Traced,
    check_structure,
    initial_values,
    join_carries,
    kind_of,
    trace_tree,
    with_output_types,
)
from loopgrad.lazy.core import ArrayLike, as_tensor, constant, wrap
from loopgrad.lazy.operands import Shape
from loopgrad.lazy.trees import Tree, check_function, flatten, leaf_names, unflatten
from loopgrad.lazy.trips import note_span, trip_count

_ROUNDS = 8  # a carry's type settles in two or three; more means that its shape keeps growing


class EndlessLoopError(LoopgradError, ValueError):
    """A while loop whose condition can't change."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The keyword arguments of a loop."""

    max_steps: int | None = None
    memory_budget: int | None = None
    name: str | None = None

    def check(self, what: str) -> None:
        for text, value in (("max_steps", self.max_steps), ("memory_budget", self.memory_budget)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ValueError(explained(what, f"{text} to be a whole number or None", repr(value), "pass an int"))


# ---- while


def while_loop(
    cond_fun: Callable[[Any], ArrayLike],
    body_fun: Callable[[Any], Any],
    init_val: Tree,
    *,
    max_steps: int | None = None,
    memory_budget: int | None = None,
    name: str | None = None,
) -> Tree:
    """Repeat `val = body_fun(val)` while `cond_fun(val)`; an array condition runs each element by itself.

    `max_steps` is asserted: one more trip raises LoopLimitError. `memory_budget` bounds the bytes that
    the reverse pass saves; beyond it the loop is checkpointed.
    """
    limits = Limits(max_steps, memory_budget, name)
    limits.check("while_loop")
    check_function("while_loop condition", cond_fun)
    check_function("while_loop body", body_fun)
    inits, structure = flatten(init_val)
    kinds = [kind_of(x) for x in inits]
    for _ in range(_ROUNDS):
        cond = trace_tree("while_loop condition", cond_fun, structure, kinds)
        lanes = _predicate_shape(cond)
        body = trace_tree("while_loop body", body_fun, structure, kinds)
        check_structure("while_loop body", structure, body)
        settled = _settled("while_loop body", structure, kinds, body, lanes, 0)
        if settled == kinds:
            return _emit_while(cond, body, inits, kinds, structure, lanes, limits)
        kinds = settled
    raise _unsettled("while_loop")


def _predicate_shape(cond: Traced) -> Shape:
    if len(cond.graph.outputs) != 1 or cond.structure.num_nodes != 1:
        fix = "combine them with & or |, and return that"
        raise DTypeError(explained("while_loop condition", "one bool", f"{len(cond.graph.outputs)} results", fix))
    value = cond.graph.outputs[0]
    if value.dtype is not bool_:
        fix = "compare with something, as in `x > 0`"
        raise DTypeError(explained("while_loop condition", "a bool (per lane)", value.type, fix))
    return value.shape


def _unsettled(what: str) -> ShapeError:
    fix = "start from an array of the final shape"
    return ShapeError(explained(what, "carries whose type settles", f"growth for {_ROUNDS} rounds", fix))


def _emit_while(
    cond: Traced, body: Traced, inits: list[Any], kinds: list[Kind], structure: Any, lanes: Shape, limits: Limits
) -> Tree:
    body = with_output_types(body, [k.type for k in kinds])
    _refuse_endless(cond.graph, body.graph, len(kinds))
    values = initial_values(inits, kinds)
    (cond_graph, body_graph), captures = region_ops.share_captures(
        [(cond.graph, cond.captures), (body.graph, body.captures)]
    )
    layout = lane_layout("while_loop", structure, kinds, body_graph, lanes, 0, cond_graph)
    kept = layout.kept
    results = region_ops.while_loop(
        [values[i] for i in kept],
        layout.arrange(cond_graph, 0, outputs=False),
        layout.arrange(body_graph, 0),
        [*(values[i] for i in layout.invariant), *captures],
        shared=layout.shared, max_steps=limits.max_steps, name=limits.name, memory_budget=limits.memory_budget,
    )  # fmt: skip
    return _finish(results, layout, values, kinds, structure)


def _refuse_endless(cond: Graph, body: Graph, carries: int) -> None:
    """Raise where the condition reads nothing that a trip changes, and isn't false."""
    read = {v for node in cond.nodes for v in node.operands} | set(cond.outputs)
    if any(v in read and body.outputs[i] is not body.inputs[i] for i, v in enumerate(cond.inputs[:carries])):
        return
    if not any(v in read for v in cond.inputs):
        from loopgrad.graph.interpret import interpret  # late: only conditions of constants need it

        constants = [np.zeros(t.shape, t.dtype.np) for t in cond.input_types if isinstance(t, TensorType)]
        if not interpret(cond, constants)[0].any():
            return
        got = "one that is always True"
    else:
        got = "one that depends on nothing the body changes"
    fix = "make it depend on a carried value; for a fixed number of trips use lg.fori_loop"
    raise EndlessLoopError(explained("while_loop", "a condition that can become False", got, fix))


# ---- for


def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], Any],
    init_val: Tree,
    *,
    memory_budget: int | None = None,
    name: str | None = None,
) -> Tree:
    """`for i in range(lower, upper): val = body_fun(i, val)`; array bounds give each element its own count.

    Bounds are integers: convert a float bound with `lg.floor(x).astype(lg.int64)`, where NaN becomes 0.
    `upper <= lower` means no trip. `i` has the bounds' dtype; of Python ints it is weak.
    """
    limits = Limits(None, memory_budget, name)
    limits.check("fori_loop")
    check_function("fori_loop body", body_fun)
    count, index = trip_count(lower, upper)
    inits, structure = flatten(init_val)
    kinds = [kind_of(x) for x in inits]
    lanes = count.shape
    for _ in range(_ROUNDS):
        body = trace_tree("fori_loop body", lambda k, val: body_fun(index(k), val), structure, kinds, (count,))
        check_structure("fori_loop body", structure, body)
        settled = _settled("fori_loop body", structure, kinds, body, lanes, 1)
        if settled == kinds:
            body = with_output_types(body, [k.type for k in kinds])
            return _emit_for("fori_loop", count, body, inits, kinds, structure, limits)
        kinds = settled
    raise _unsettled("fori_loop")


def _emit_for(
    what: str, count: Value, body: Traced, inits: list[Any], kinds: list[Kind], structure: Any, limits: Limits
) -> Tree:
    values = initial_values(inits, kinds)
    layout = lane_layout(what, structure, kinds, body.graph, count.shape, 1)
    results = region_ops.for_loop(
        count,
        [values[i] for i in layout.kept],
        layout.arrange(body.graph, 1),
        [*(values[i] for i in layout.invariant), *body.captures],
        shared=layout.shared, name=limits.name, memory_budget=limits.memory_budget,
    )  # fmt: skip
    return _finish(results, layout, values, kinds, structure)


def _finish(
    results: Sequence[Value], layout: LaneLayout, values: list[Value], kinds: list[Kind], structure: Any
) -> Tree:
    final = list(values)
    for i, v in zip(layout.kept, results, strict=True):
        final[i] = v
    return unflatten(structure, [wrap(v, k.weak) for v, k in zip(final, kinds, strict=True)])


# ---- lanes


@dataclass(frozen=True, slots=True)
class LaneLayout:
    """Which of `count` carries stay carries (`kept`), which are the same for every trip and read in the loop
    (`invariant`), and which positions among the kept ones are shared accumulators."""

    count: int

    kept: tuple[int, ...]
    invariant: tuple[int, ...]
    shared: tuple[int, ...]

    def arrange(self, graph: Graph, skip: int, outputs: bool = True) -> Graph:
        """The region with its inputs in the order (extra, kept, invariant, captures)."""
        if len(self.kept) == self.count:
            return graph
        carries = graph.inputs[skip : skip + self.count]
        rest = graph.inputs[skip + len(carries) :]
        order = [carries[i] for i in (*self.kept, *self.invariant)]
        results = tuple([graph.outputs[i] for i in self.kept]) if outputs else graph.outputs
        return Graph((*graph.inputs[:skip], *order, *rest), graph.nodes, results)


def _settled(what: str, structure: Any, kinds: list[Kind], body: Traced, lanes: Shape, skip: int) -> list[Kind]:
    """The kinds for the next round; the same ones when nothing is left to change."""
    stretched = _with_lanes(kinds, body, lanes, skip)
    return stretched if stretched != kinds else join_carries(what, structure, kinds, body)


def _with_lanes(kinds: list[Kind], body: Traced, lanes: Shape, skip: int) -> list[Kind]:
    """Scalars that the body changes, stretched to the lanes."""
    if not lanes:
        return kinds
    result = []
    for i, kind in enumerate(kinds):
        unchanged = body.graph.outputs[i] is body.graph.inputs[skip + i]
        stretch = not kind.type.shape and not unchanged
        result.append(replace(kind, type=TensorType(lanes, kind.type.dtype)) if stretch else kind)
    return result


def lane_layout(
    what: str, structure: Any, kinds: Sequence[Kind], body: Graph, lanes: Shape, skip: int, cond: Graph | None = None
) -> LaneLayout:
    """How the carries of a settled loop are held; refuses one that is neither per lane nor shared."""
    regions = [(body, skip)] if cond is None else [(body, skip), (cond, 0)]
    kept: list[int] = []
    invariant: list[int] = []
    shared: list[int] = []
    for i, kind in enumerate(kinds):
        if body.outputs[i] is body.inputs[skip + i]:
            if any(_reads(region, at + i, i) for region, at in regions):
                invariant.append(i)
            continue
        if not lanes:
            kept.append(i)
            continue
        per_lane = kind.type.shape[: len(lanes)] == lanes
        if is_shared(body, skip + i, i, lanes, per_lane):
            shared.append(len(kept))
        elif not per_lane:
            name = leaf_names(structure, "carry")[i]
            fix = (
                "give every lane its own (stretch it to the lanes and return it so), or only update it at per-lane "
                "positions with .at[i].add and read it after the loop"
            )
            raise ShapeError(explained(what, f"{name} with a shape that starts with the lanes {lanes}", kind.type, fix))
        kept.append(i)
    return LaneLayout(len(kinds), tuple(kept), tuple(invariant), tuple(shared))


def _reads(region: Graph, argument: int, own: int) -> bool:
    """Whether a region does anything with an input but hand it on as its own result `own`."""
    value = region.inputs[argument]
    used = any(value in node.operands for node in region.nodes)
    return used or any(v is value and j != own for j, v in enumerate(region.outputs))


def is_shared(graph: Graph, argument: int, output: int, lanes: Shape, per_lane: bool) -> bool:
    """Whether an input is only scattered into, at positions that each lane chooses."""
    chain = chain_from(graph, argument)
    if chain is None or chain.output != output or not chain.scatters or not chain.over(lanes):
        return False
    value = graph.inputs[argument]
    for node in graph.nodes:
        if not node.operands or node.operands[0] is not value or node.op != "scatter":
            continue
        indices = node.operands[1:-1]
        if per_lane and (node.attrs["kind"] == "set" or _own_row(indices, lanes)):
            return False
        value = node.results[0]
    return True


def _own_row(indices: Sequence[Value], lanes: Shape) -> bool:
    """Whether the leading indices are each lane's own position."""
    return len(indices) >= len(lanes) and all(
        v.node is not None and v.node.op == "iota" and v.node.attrs["axis"] == d
        for d, v in enumerate(indices[: len(lanes)])
    )


# ---- scan


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Tree,
    xs: Tree = None,
    length: int | None = None,
    reverse: bool = False,
    *,
    memory_budget: int | None = None,
    name: str | None = None,
) -> tuple[Tree, Tree]:
    """`carry, y = f(carry, x)` for each row of `xs` in order (or backwards); returns the last carry and
    the rows `y`, stacked. Without `xs`, `length` says how often."""
    limits = Limits(None, memory_budget, name)
    limits.check("scan")
    check_function("scan body", f)
    rows, rows_structure = flatten(xs)
    tables = [as_tensor(x)._value for x in rows]
    trips = _scan_length(tables, length)
    inits, structure = flatten(init)
    kinds = [kind_of(x) for x in inits]
    count = constant(trips, TensorType((), int64))

    def step(k: Value, carry: Any) -> Any:
        note_span(k, 0, trips)
        result = f(carry, unflatten(rows_structure, [wrap(ops.gather(t, k)) for t in tables]))
        if not isinstance(result, tuple) or len(result) != 2:
            raise DTypeError(explained("scan body", "a pair (carry, y)", type(result).__name__, "return both"))
        return result

    for _ in range(_ROUNDS):
        body = trace_tree("scan body", step, structure, kinds, (count,))
        carried = _carried_part(body, structure)
        settled = join_carries("scan body", structure, kinds, carried)
        if settled == kinds:
            return _emit_scan(count, trips, body, inits, kinds, structure, reverse, limits)
        kinds = settled
    raise _unsettled("scan")


def _scan_length(tables: Sequence[Value], length: int | None) -> int:
    if any(not t.shape for t in tables):
        raise ShapeError(explained("scan", "xs with at least one axis", "a scalar", "pass it through the carry"))
    extents = {t.shape[0] for t in tables}
    if length is not None:
        extents.add(max(int(length), 0))
    if len(extents) != 1:
        fix = "give xs equal first axes, and length that extent" if extents else "pass xs or length"
        raise ShapeError(explained("scan", "one length", sorted(extents) or "none", fix))
    return extents.pop()


def _carried_part(body: Traced, structure: Any) -> Traced:
    """The body's results without the stacked ones."""
    carry_structure = body.structure.child(0)
    if carry_structure != structure:
        check_structure("scan body", structure, replace(body, structure=carry_structure))
    n = structure.num_leaves
    graph = Graph(body.graph.inputs, body.graph.nodes, body.graph.outputs[:n])
    return replace(body, graph=graph, weak=body.weak[:n], structure=carry_structure)


def _emit_scan(
    count: Value, trips: int, body: Traced, inits: list[Any], kinds: list[Kind], structure: Any, reverse: bool,
    limits: Limits,
) -> tuple[Tree, Tree]:  # fmt: skip
    n = len(kinds)
    row_types = [TensorType(v.shape, v.dtype) for v in body.graph.outputs[n:]]
    body = with_output_types(body, [*(k.type for k in kinds), *row_types])
    stacks = [ops.full(0, TensorType((trips, *t.shape), t.dtype)) for t in row_types]

    def step(k: Value, *rest: Value) -> list[Value]:
        carry, buffers, captured = rest[:n], rest[n : n + len(stacks)], rest[n + len(stacks) :]
        results = inline(body.graph, (k, *carry, *captured))
        written = [ops.scatter("set", b, (k,), y) for b, y in zip(buffers, results[n:], strict=True)]
        return [*results[:n], *written]

    values = [*initial_values(inits, kinds), *stacks]
    types = [count.type, *(v.type for v in values), *(v.type for v in body.captures)]
    graph, captured = trace(step, types)
    assert not captured
    unchanged = tuple([i for i in range(n) if graph.outputs[i] is graph.inputs[1 + i]])
    kept = tuple([i for i in range(len(values)) if i not in unchanged])
    region = LaneLayout(len(values), kept, unchanged, ()).arrange(graph, 1)
    captures = [*(values[i] for i in unchanged), *body.captures]
    made = region_ops.for_loop(
        count, [values[i] for i in kept], region, captures,
        reverse=reverse, name=limits.name or "scan", memory_budget=limits.memory_budget,
    )  # fmt: skip
    changed = dict(zip(kept, made, strict=True))
    results = [changed.get(i, v) for i, v in enumerate(values)]
    carry = unflatten(structure, [wrap(v, k.weak) for v, k in zip(results[:n], kinds, strict=True)])
    return carry, unflatten(body.structure.child(1), [wrap(v) for v in results[n:]])
