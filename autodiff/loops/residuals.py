"""What the forward run of a body saves for the reverse run: the partition of a joint body.

Enters: a joint graph, (primal inputs, cotangent inputs) -> (primal outputs, cotangent outputs), in which
everything that depends on a cotangent is *reverse* and the rest is *forward*. Leaves: the values to save,
chosen by a minimum cut (`loops.mincut`) so that reverse can be computed from them and from what is free.

- The price of a value is its bytes, so a branch decision is saved as one byte and not as the float it came
  from. Among equal prices fewer values, then those nearest the adjoint: sin(v) saves cos(v), not v.
- Free: constants, and inputs the caller declares free (trip index, captured values), and what elementwise
  work and movement make of free values. Everything that region nodes, pops and heavy primitives produce is
  computed once: it can be saved, not recomputed.
- What the policy of a function that is computed again keeps (`loops.kept`) is free, too, and saved where reverse reads
  it.
- Stacks that forward fills and reverse empties (those of inner loops) aren't saved but *threaded*: their
  `stack_new` becomes an input of both parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from loopgrad.autodiff.loops.mincut import minimum_cut
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import cse
from loopgrad.graph.primitives import KEEPING_SPLATS, PRIMITIVES, REDUCTIONS
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.regions import beginning
from loopgrad.graph.stacks import last_stack
from loopgrad.graph.types import StackType, TensorType

_SMALL_REDUCTION: Final = 16  # elements per result up to which a reduction is worth doing again


class Threads(NamedTuple):
    """Stacks between the two parts: where they are made, where forward leaves them, where reverse does."""

    made: tuple[Value, ...]
    filled: tuple[Value, ...]
    emptied: tuple[Value, ...]


class Split(NamedTuple):
    """A joint graph seen in two parts."""

    joint: Graph
    primal_outputs: int
    wanted: tuple[Value, ...]  # tensors that forward computes and reverse reads
    threads: Threads


def split(joint: Graph, primal_inputs: int, primal_outputs: int) -> Split:
    """Mark what depends on cotangents, and find what crosses over."""
    joint = cse.run(joint)  # what both sides compute alike must not be saved twice
    reverse = set(joint.inputs[primal_inputs:])
    wanted: dict[Value, None] = {}
    stacks: dict[Value, None] = {}
    for node in joint.nodes:
        if any(v in reverse for v in node.operands):
            reverse.update(node.results)
    for node in joint.nodes:
        if not node.results or node.results[0] in reverse:
            for v in node.operands:
                if v not in reverse:
                    (stacks if isinstance(v.type, StackType) else wanted)[v] = None
    for v in joint.outputs[primal_outputs:]:
        if v not in reverse and not isinstance(v.type, StackType):
            wanted[v] = None
    made = tuple([beginning(v) for v in stacks])
    assert all(v.node is not None for v in made), "a primal stack reached the reverse part"
    emptied = tuple([last_stack(joint, v) for v in stacks])
    return Split(joint, primal_outputs, tuple(wanted), Threads(made, tuple(stacks), emptied))


def recomputable(node: Node) -> bool:
    """Whether reverse may compute the node again instead of having its results saved."""
    if node.regions or PRIMITIVES[node.op].heavy:
        return False
    if node.op in REDUCTIONS:
        return nbytes(node.operands[0]) <= _SMALL_REDUCTION * max(nbytes(node.results[0]), 1)
    return True


def forward_nodes(parts: Split) -> tuple[Node, ...]:
    """What forward computes."""
    return extract((*parts.joint.outputs[: parts.primal_outputs], *parts.wanted), parts.joint.inputs).nodes


def chosen(
    parts: Split, paid: Collection[Value], near_sources: bool = False, kept: Collection[Value] = ()
) -> list[Value]:
    """The values to save, those of the `kept` ones that reverse reads first; `paid` are the inputs of the joint graph
    that aren't free."""
    cut = _cheapest(parts, paid, near_sources, kept)
    if not kept:
        return cut
    read = read_values(extract(parts.wanted, (*parts.joint.inputs, *kept, *cut)))
    return [*[v for v in kept if v in read], *cut]


def _cheapest(parts: Split, paid: Collection[Value], near_sources: bool, kept: Collection[Value]) -> list[Value]:
    free: dict[Value, bool] = {}
    prices: dict[Value, int] = {}
    operands: dict[Value, Sequence[Value]] = {}
    sources: list[Value] = []
    cone = extract(parts.wanted, (*parts.joint.inputs, *kept))
    for v in cone.inputs:
        free[v] = v not in paid or v in kept
        if not free[v] and isinstance(v.type, TensorType):
            prices[v] = price(v)
            sources.append(v)
    for node in cone.nodes:
        again = recomputable(node)
        if again and all(free[v] for v in node.operands):
            free.update(dict.fromkeys(node.results, True))
            continue
        for r in node.results:
            free[r] = False
            if isinstance(r.type, StackType):
                continue
            prices[r] = price(r)
            if again:
                operands[r] = [v for v in node.operands if not free[v]]
            else:
                sources.append(r)
    wanted = [v for v in parts.wanted if not free[v]]
    if not wanted:
        return []
    cut = minimum_cut(prices, operands, sources, wanted, near_sources)
    return list(dict.fromkeys(_unmoved(v, prices) for v in cut))


def _unmoved(v: Value, prices: Mapping[Value, int]) -> Value:
    """What `v` is a rearrangement of: saving that needs no copy."""
    while (
        v.node is not None
        and v.node.op in KEEPING_SPLATS
        and prices.get(v.node.operands[0], prices[v] + 1) <= prices[v]
    ):
        v = v.node.operands[0]
    return v


def nbytes(v: Value) -> int:
    assert isinstance(v.type, TensorType)
    return v.type.nbytes


def price(v: Value) -> int:
    """Bytes, and a little for each value."""
    return (nbytes(v) << 12) + 1


def forward_part(parts: Split, primal_inputs: Sequence[Value], saved: Sequence[Value]) -> Graph:
    """(primal inputs, empty stacks) -> (primal outputs, filled stacks, saved values)"""
    threads = parts.threads
    outputs = (*parts.joint.outputs[: parts.primal_outputs], *threads.filled, *saved)
    return _closed(outputs, (*primal_inputs, *threads.made))


def reverse_part(parts: Split, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """(inputs, filled stacks) -> (outputs, emptied stacks)"""
    return _closed((*outputs, *parts.threads.emptied), (*inputs, *parts.threads.filled))


def _closed(outputs: Sequence[Value], inputs: Sequence[Value]) -> Graph:
    graph = extract(outputs, inputs)
    assert len(graph.inputs) == len(inputs), "the cut leaves out a value that this part needs"
    return graph
