"""`scan`: a counted loop over the rows of tables, which stacks a row of results each trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import index
from typing import Any, Final

from loopgrad.graph import ops, region_ops
from loopgrad.graph.build import inline, trace
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.loops.carry_roles import CarryRoles
from loopgrad.lazy.loops.carry_types import join_carries, settle
from loopgrad.lazy.loops.limits import Limits
from loopgrad.lazy.loops.traced_functions import (
    LeafType,
    Traced,
    check_structure,
    initial_values,
    kind_of,
    trace_tree,
    with_output_types,
)
from loopgrad.lazy.loops.trip_count import note_span
from loopgrad.lazy.tensor.core import as_tensor, constant, wrap
from loopgrad.lazy.tensor.errors import TracedValueError
from loopgrad.lazy.tensor.repeated_calls import traced_once
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, unflatten

PUBLIC: Final = "scan"


@traced_once
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Tree,
    xs: Tree = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    *,
    memory_budget: int | None = None,
    name: str | None = None,
) -> tuple[Tree, Tree]:
    """`carry, y = f(carry, x)` for each row x of `xs`; returns the last carry, and the rows y stacked.

    `xs` is a tree of arrays that share the extent n of their first axis; `length` is n where there are none. The
    results' second part has f's structure of y, each leaf with a first axis of n. `reverse` goes from the last row to
    the first; y of row k stands in row k nonetheless. `unroll`, JAX's hint, changes nothing: the compiler decides. The
    carry, `memory_budget` and `name` are as for `while_loop`.

    Raises ShapeError where the first axes differ or n isn't given, DTypeError where f returns no pair, changes the type
    of a carry, or `length` isn't whole.

    >>> last, sums = lg.scan(lambda total, x: (total + x, total + x), 0.0, lg.asarray([1.0, 2.0, 4.0]))
    >>> last, sums
    (Tensor(7., dtype=float64), Tensor([1., 3., 7.], dtype=float64))
    """
    limits = Limits(None, memory_budget, name)
    limits.check("scan")
    check_function("scan body", f)
    rows, rows_structure = flatten(xs)
    tables = [as_tensor(x)._value for x in rows]
    trips = _scan_length(tables, length)
    inits, structure = flatten(init)
    count = constant(trips, TensorType((), int64))

    def step(k: Value, carry: Any) -> Any:
        note_span(k, 0, trips)
        result = f(carry, unflatten(rows_structure, [wrap(ops.gather(t, k)) for t in tables]))
        if not isinstance(result, tuple) or len(result) != 2:
            raise DTypeError(explained("scan body", "a pair (carry, y)", type(result).__name__, "return both"))
        return result

    def trip(kinds: list[LeafType]) -> tuple[Traced, list[LeafType]]:
        body = trace_tree("scan body", step, structure, kinds, (count,))
        return body, join_carries("scan body", structure, kinds, _carried_part(body, structure))

    body, kinds = settle("scan", [kind_of(x) for x in inits], trip)
    return _emit_scan(count, trips, body, inits, kinds, structure, reverse, limits)


def _scan_length(tables: Sequence[Value], length: int | None) -> int:
    if any(not t.shape for t in tables):
        raise ShapeError(explained("scan", "xs with at least one axis", "a scalar", "pass it through the carry"))
    extents = {t.shape[0] for t in tables}
    if length is not None:
        extents.add(max(_whole(length), 0))
    if len(extents) != 1:
        fix = "give xs equal first axes, and length that extent" if extents else "pass xs or length"
        raise ShapeError(explained("scan", "one length", sorted(extents) or "none", fix))
    return extents.pop()


def _whole(length: Any) -> int:
    try:
        return index(length)
    except TracedValueError:
        raise  # which says what to do
    except TypeError:
        fix = "convert it to an int"
        raise DTypeError(explained("scan", "a whole number as length", repr(length), fix)) from None


def _carried_part(body: Traced, structure: Any) -> Traced:
    """The body's results without the stacked ones."""
    carry_structure = body.structure.child(0)
    if carry_structure != structure:
        check_structure("scan body", structure, replace(body, structure=carry_structure))
    n = structure.num_leaves
    graph = Graph(body.graph.inputs, body.graph.nodes, body.graph.outputs[:n])
    return replace(body, graph=graph, weak=body.weak[:n], structure=carry_structure)


def _emit_scan(
    count: Value, trips: int, body: Traced, inits: list[Any], kinds: list[LeafType], structure: Any, reverse: bool,
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
    region = CarryRoles(len(values), kept, unchanged, ()).arrange(graph, 1)
    captures = [*(values[i] for i in unchanged), *body.captures]
    made = region_ops.for_loop(
        count, [values[i] for i in kept], region, captures,
        reverse=reverse, name=limits.name or "scan", memory_budget=limits.memory_budget,
    )  # fmt: skip
    changed = dict(zip(kept, made, strict=True))
    results = [changed.get(i, v) for i, v in enumerate(values)]
    carry = unflatten(structure, [wrap(v, k.weak) for v, k in zip(results[:n], kinds, strict=True)])
    return carry, unflatten(body.structure.child(1), [wrap(v) for v in results[n:]])
