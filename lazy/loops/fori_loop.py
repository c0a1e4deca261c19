"""`fori_loop`: counted loops, a count for all or one for each lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from loopgrad.graph import region_ops
from loopgrad.graph.nodes import Value
from loopgrad.lazy.loops.carry_roles import carry_roles, final_carries
from loopgrad.lazy.loops.carry_types import kinds_after, settle
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
from loopgrad.lazy.loops.trip_count import trip_count
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.repeated_calls import traced_once
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten

PUBLIC: Final = "fori_loop"


@traced_once
def fori_loop(
    lower: ArrayLike,
    upper: ArrayLike,
    body_fun: Callable[[Any, Any], Any],
    init_val: Tree,
    *,
    unroll: int | bool | None = None,
    memory_budget: int | None = None,
    name: str | None = None,
) -> Tree:
    """`for i in range(lower, upper): val = body_fun(i, val)`; array bounds give each element its own count.

    Bounds are integers: convert a float bound with `lg.floor(x).astype(lg.int64)`, where NaN becomes 0. `upper <=
    lower` means no trip. `i` has the bounds' dtype; of Python ints it is weak. Bounds broadcast: scalars make a uniform
    loop, a shape S makes lanes. Carries (`init_val`, a tree), `memory_budget` and `name` are as for `while_loop`;
    `unroll`, JAX's hint, changes nothing.

    Raises DTypeError for bounds that aren't integers, DTypeError, ShapeError or StructureError for a carry that
    changes.

    >>> lg.fori_loop(0, 5, lambda i, total: total + i, 0)
    Tensor(10, dtype=int64)
    >>> lg.fori_loop(0, lg.asarray([3, 0, 1]), lambda i, v: 2.0 * v, lg.ones(3))
    Tensor([8., 1., 2.], dtype=float64)
    """
    limits = Limits(None, memory_budget, name)
    limits.check("fori_loop")
    check_function("fori_loop body", body_fun)
    count, index = trip_count(lower, upper)
    inits, structure = flatten(init_val)

    def trip(kinds: list[LeafType]) -> tuple[Traced, list[LeafType]]:
        body = trace_tree("fori_loop body", lambda k, val: body_fun(index(k), val), structure, kinds, (count,))
        check_structure("fori_loop body", structure, body)
        return body, kinds_after("fori_loop body", structure, kinds, body, count.shape, 1)

    body, kinds = settle("fori_loop", [kind_of(x) for x in inits], trip)
    return _emit_for(count, with_output_types(body, [k.type for k in kinds]), inits, kinds, structure, limits)


def _emit_for(
    count: Value, body: Traced, inits: list[Any], kinds: list[LeafType], structure: Any, limits: Limits
) -> Tree:
    values = initial_values(inits, kinds)
    roles = carry_roles("fori_loop", structure, kinds, body.graph, count.shape, 1)
    results = region_ops.for_loop(
        count,
        [values[i] for i in roles.varying],
        roles.arrange(body.graph, 1),
        [*(values[i] for i in roles.invariant), *body.captures],
        shared=roles.shared, name=limits.name, memory_budget=limits.memory_budget,
    )  # fmt: skip
    return final_carries(results, roles, values, kinds, structure)
