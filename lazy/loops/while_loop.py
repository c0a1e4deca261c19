"""`while_loop`, and what holds for all loops.

A loop becomes one region node. Where its condition or bound is an array of shape S the elements of S
are lanes: each runs until its own condition fails or its own count is reached, and keeps its carry from
then on. A carry then starts with S, with three exceptions: a scalar is stretched to S; a carry that the
body returns unchanged is one for all lanes; a carry that is only ever updated with `x.at[i].add` (min,
max, multiply, set) at per-lane positions is shared by all lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from loopgrad.graph import region_ops
from loopgrad.graph.errors import DTypeError, LoopgradError, explained
from loopgrad.graph.nodes import Graph
from loopgrad.graph.types import TensorType, bool_
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
from loopgrad.lazy.tensor.core import ArrayLike
from loopgrad.lazy.tensor.operands import Shape
from loopgrad.lazy.tensor.repeated_calls import traced_once
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten

PUBLIC: Final = "EndlessLoopError while_loop"


class EndlessLoopError(LoopgradError, ValueError):
    """A while loop whose condition can't change."""


@traced_once
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

    `init_val` is a tree of tensors and numbers. `body_fun` returns the same structure, shapes and dtypes; a Python
    number among the initial values takes those that the body gives it. `cond_fun` returns one bool, of shape () for a
    uniform loop, or of shape S for lanes: carries then start with S, save scalars (they are stretched to it) and arrays
    that lanes only scatter into. A lane whose condition fails keeps its values. NaN compares false, so it ends a loop.

    `max_steps` is asserted: a lane that would go further raises LoopLimitError. `memory_budget` bounds the bytes that
    the reverse pass saves: beyond it the loop is checkpointed (binomially: Griewank and Walther, Revolve, 2000). `name`
    is what plans and error messages call the loop. Gradients go through any number of trips, without a bound.

    Raises DTypeError or ShapeError for a carry whose type changes and for a condition that isn't bool, StructureError
    where the body returns another structure, EndlessLoopError for a condition that provably stays true.

    >>> lg.while_loop(lambda v: v < 100, lambda v: 3 * v, lg.asarray([1, 50, 200]))
    Tensor([243, 150, 200], dtype=int64)
    >>> lg.grad(lambda x: lg.while_loop(lambda v: v < 100.0, lambda v: 3.0 * v, x))(2.0)
    Tensor(81., dtype=float64)
    """
    limits = Limits(max_steps, memory_budget, name)
    limits.check("while_loop")
    check_function("while_loop condition", cond_fun)
    check_function("while_loop body", body_fun)
    inits, structure = flatten(init_val)

    def trip(kinds: list[LeafType]) -> tuple[tuple[Traced, Traced], list[LeafType]]:
        cond = trace_tree("while_loop condition", cond_fun, structure, kinds)
        lanes = _predicate_shape(cond)
        body = trace_tree("while_loop body", body_fun, structure, kinds)
        check_structure("while_loop body", structure, body)
        return (cond, body), kinds_after("while_loop body", structure, kinds, body, lanes, 0)

    (cond, body), kinds = settle("while_loop", [kind_of(x) for x in inits], trip)
    return _emit_while(cond, body, inits, kinds, structure, limits)


def _predicate_shape(cond: Traced) -> Shape:
    if len(cond.graph.outputs) != 1 or cond.structure.num_nodes != 1:
        fix = "combine them with & or |, and return that"
        raise DTypeError(explained("while_loop condition", "one bool", f"{len(cond.graph.outputs)} results", fix))
    value = cond.graph.outputs[0]
    if value.dtype is not bool_:
        fix = "compare with something, as in `x > 0`"
        raise DTypeError(explained("while_loop condition", "a bool (per lane)", value.type, fix))
    return value.shape


def _emit_while(
    cond: Traced, body: Traced, inits: list[Any], kinds: list[LeafType], structure: Any, limits: Limits
) -> Tree:
    body = with_output_types(body, [k.type for k in kinds])
    _refuse_endless(cond.graph, body.graph, len(kinds))
    values = initial_values(inits, kinds)
    (cond_graph, body_graph), captures = region_ops.share_captures(
        [(cond.graph, cond.captures), (body.graph, body.captures)]
    )
    lanes = _predicate_shape(cond)
    roles = carry_roles("while_loop", structure, kinds, body_graph, lanes, 0, cond_graph)
    results = region_ops.while_loop(
        [values[i] for i in roles.varying],
        roles.arrange(cond_graph, 0, outputs=False),
        roles.arrange(body_graph, 0),
        [*(values[i] for i in roles.invariant), *captures],
        shared=roles.shared, max_steps=limits.max_steps, name=limits.name, memory_budget=limits.memory_budget,
    )  # fmt: skip
    return final_carries(results, roles, values, kinds, structure)


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
