"""What an evaluation should keep beside what was asked for.

A script that evaluates one tensor of a growing graph must not compute the rest again next time:

    for _ in range(n):
        loss, g = value_and_grad(f)(x);  x = x - 0.1 * g;  print(loss)

Printing computes the old `x` on the way to `loss`; the new `x`, which the script holds, needs it. So an
evaluation also keeps (1) tensors of the user that get computed on the way, and (2) values on the way
that unevaluated tensors of the user read. The latter are noted in `Value.known`, and later evaluations
start there. Derivatives don't look at `known`: the graph itself never changes.

So a state that is never asked for itself (`x` above) would hold its whole past, elements included. After
some evaluations that each started from what the one before had noted, (3) tensors that still wait for such
values are computed too: they become leaves, and the past goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import ref

from loopgrad.graph.build import inline
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Leaf, Node, Value
from loopgrad.graph.primitives import KEEPING_SPLATS, NULLARY
from loopgrad.graph.types import TensorType
from loopgrad.lazy.tensor.core import LIVE, TensorCore, TensorLeaf
from loopgrad.lazy.tensor.evaluator import known_leaf

# Elements that cost nothing to compute again, or more to keep than to compute: what they are made of is kept.
_NOT_KEPT: Final = NULLARY | KEEPING_SPLATS

# Keeping is worth a bounded effort per evaluation: so many tensors, and so many nodes behind them (beside
# twice as many as are computed), so that a list of lazy tensors evaluated one by one stays linear.
_TENSOR_LIMIT: Final = 256
_NODE_LIMIT: Final = 1000
GENERATIONS: Final = 4  # evaluations in a row that a tensor may wait


Held = tuple[TensorCore, Value]
"""A tensor and the value that it referred to: another thread may give it elements meanwhile."""


class Needed(NamedTuple):
    """`along`: tensors computed on the way. `read`: values on the way that unevaluated tensors read.
    `generation`: evaluations in a row that started from noted values. `waiting`: tensors that read such
    values for too long."""

    along: list[Held]
    read: list[Value]
    generation: int
    waiting: list[Held]


def still_needed(values: Sequence[Value]) -> Needed:
    """What an evaluation of `values` should give beside them."""
    held = _held_tensors()
    if not held:
        return Needed([], [], 0, [])
    computed: set[Node] = set()
    starts: dict[Value, None] = {}
    _reach(values, computed, None, starts=starts)
    generation = max([leaf.generation + 1 for v in starts if (leaf := known_leaf(v)) is not None], default=0)
    for node in list(computed):
        if node.replaces is not None:
            computed.add(node.replaces)
    along: list[Held] = []
    outside: list[Held] = []
    for t, value in held:
        made_by = value.node
        if made_by is not None and made_by in computed and made_by.op not in _NOT_KEPT:
            along.append((t, value))
        else:
            outside.append((t, value))
    outside.reverse()  # the latest tensors are the likeliest to be read again
    read = _values_read([value for _, value in outside], computed)
    waiting = [h for h in outside if _values_read([h[1]], computed)] if read and generation >= GENERATIONS else []
    return Needed(along, read, generation, waiting)


def _values_read(values: Sequence[Value], computed: set[Node]) -> list[Value]:
    """Results of `computed` nodes on which `values` depend."""
    met: dict[Value, None] = {}
    _reach(values, computed.copy(), met, budget=_NODE_LIMIT + 2 * len(computed))
    return [v for v in met if isinstance(v.type, TensorType)]


def _held_tensors() -> list[Held]:
    """The latest unevaluated tensors that somebody holds; forgets all others."""
    held: dict[int, tuple[ref[TensorCore], TensorCore, Value]] = {}
    for reference in reversed(LIVE.tensors):
        t = reference()
        if t is not None and (value := t._value).node is not None:
            held.setdefault(id(t), (reference, t, value))
            if len(held) == _TENSOR_LIMIT:
                break
    LIVE.tensors = [reference for reference, _, _ in reversed(held.values())]
    return [(t, value) for _, t, value in reversed(held.values())]


def _reach(
    values: Sequence[Value],
    visited: set[Node],
    met: dict[Value, None] | None,
    budget: int = -1,
    starts: dict[Value, None] | None = None,
) -> None:
    """Walk to the operands of `values`, up to known values (they go to `starts`) and to nodes in `visited`, and
    add what was walked. The values at which the walk met nodes that were in `visited` go to `met`."""
    border = frozenset(visited)
    passed: set[Node] = set()
    pending = list(reversed(values))
    while pending and budget != 0:
        value = pending.pop()
        node = value.node
        if node is None or node in passed:
            continue
        if known_leaf(value) is not None:
            if starts is not None:
                starts[value] = None
            continue
        if node in border and node.op not in _NOT_KEPT:
            if met is not None:
                met[value] = None
            continue
        passed.add(node)
        visited.add(node)
        budget -= 1
        pending.extend(reversed(node.operands))


def without_known(values: Sequence[Value]) -> list[Value]:
    """The values computed from leaves wherever elements are known already."""
    known: dict[Value, TensorLeaf] = {}
    visited: set[Node] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        node = value.node
        if node is None or value in known:
            continue
        leaf = known_leaf(value)
        if leaf is not None:
            known[value] = leaf
        elif node not in visited:
            visited.add(node)
            pending.extend(node.operands)
    if not known:
        return list(values)
    graph = extract(values, list(known))
    leaves = [v for v in graph.inputs[len(known) :] if isinstance(v, Leaf)]
    return list(inline(graph, [*known.values(), *leaves]))
