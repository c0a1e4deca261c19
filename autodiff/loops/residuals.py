"""What the forward run of a body saves for the reverse run: the partition of a joint body.

Enters: a joint graph (`Joint`), in which everything that depends on a cotangent is *reverse* and the rest is
*forward*. Leaves: the values to save, chosen by a minimum cut (`loops.mincut`) so that reverse can be computed
from them and from what is free, and the two parts as graphs (`ForwardPart`, `ReversePart`).

- The price of a value is its bytes, so a branch decision is saved as one byte and not as the float it came
  from. Among equal prices fewer values, then those nearest the adjoint: sin(v) saves cos(v), not v.
- Free: constants, and inputs the caller declares free (trip index, captured values), and what elementwise
  work and movement make of free values. Everything that region nodes, pops and heavy primitives produce is
  computed once: it can be saved, not recomputed.
- What the policy of a function that is computed again saves (`loops.saveable`) is free, too, and saved where reverse
  reads it.
- Stacks that forward fills and reverse empties (those of inner loops) aren't saved but *threaded*: their
  `stack_new` becomes an input of both parts. So are those of saveable values that reverse doesn't read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Final, NamedTuple

from loopgrad.autodiff.loops.mincut import minimum_cut
from loopgrad.autodiff.loops.saveable import Saveable, is_marked, saveable_values, surfaced
from loopgrad.graph.build import inline
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import cse
from loopgrad.graph.primitives import KEEPING_SPLATS, PRIMITIVES, REDUCTIONS
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.regions import beginning, in_parts
from loopgrad.graph.signature import Signature
from loopgrad.graph.stacks import last_stack, uses_of_stack
from loopgrad.graph.types import StackType, TensorType

_SMALL_REDUCTION: Final = 16  # elements per result up to which a reduction is worth doing again


class JointValues(Signature):
    """What a body or branch and its pullback take in one graph: the inputs of the body, cotangents, and what has
    accumulated before; and what they give: the outputs of the body, cotangents, and what has accumulated then."""

    primal: Sequence[Value]
    cotangents: Sequence[Value]
    accumulators: Sequence[Value]


class Joint(NamedTuple):
    """A body or branch and its pullback."""

    graph: Graph
    inputs: JointValues
    outputs: JointValues


class Threads(NamedTuple):
    """Stacks between the two parts: where they are made, where forward leaves them, where reverse does."""

    made: tuple[Value, ...]
    filled: tuple[Value, ...]
    emptied: tuple[Value, ...]


class Split(NamedTuple):
    """A joint graph seen in two parts: `primal` are the outputs of the one, `adjoint` those of the other. `saveable`:
    what forward computes and a policy saves."""

    graph: Graph
    inputs: JointValues
    primal: Sequence[Value]
    adjoint: Sequence[Value]
    wanted: tuple[Value, ...]  # tensors that forward computes and reverse reads
    threads: Threads
    saveable: Saveable


class Chosen(NamedTuple):
    """What a body saves in each trip: for its own reverse, and what a policy saves besides."""

    saved: Sequence[Value] = ()
    unread: Sequence[Value] = ()

    @property
    def all(self) -> tuple[Value, ...]:
        return (*self.saved, *self.unread)


def split(inputs: JointValues, primal: Sequence[Value], adjoint: Sequence[Value]) -> Split:
    """Mark what depends on cotangents in the graph from `inputs` to these outputs, and find what crosses over."""
    joint = cse.run(extract((*primal, *adjoint), inputs.values))  # what both compute alike must not be saved twice
    joint = surfaced(joint)
    primal, adjoint = in_parts(joint.outputs, len(primal), len(adjoint))
    reverse = {*inputs.cotangents, *inputs.accumulators}
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
    for v in adjoint:
        if v not in reverse and not isinstance(v.type, StackType):
            wanted[v] = None
    for node in joint.nodes:
        if node.op == "stack_new" and is_marked(node.results[0]):
            uses = [after for _, _, after in uses_of_stack(joint, node.results[0])]
            if len(uses) == 1 and uses[0] not in reverse:  # filled for whoever computes again
                stacks[uses[0]] = None
    saveable = saveable_values(n for n in joint.nodes if n.results and n.results[0] not in reverse)
    made = tuple([beginning(v) for v in stacks])
    assert all(v.node is not None for v in made), "a primal stack reached the reverse part"
    emptied = tuple([last_stack(joint, v) for v in stacks])
    threads = Threads(made, tuple(stacks), emptied)
    return Split(joint, inputs, primal, adjoint, tuple(wanted), threads, saveable)


def recomputable(node: Node) -> bool:
    """Whether reverse may compute the node again instead of having its results saved."""
    if node.regions or PRIMITIVES[node.op].heavy:
        return False
    if node.op in REDUCTIONS:
        return nbytes(node.operands[0]) <= _SMALL_REDUCTION * max(nbytes(node.results[0]), 1)
    return True


def chosen(parts: Split, paid: Set[Value], near_sources: bool = False) -> Chosen:
    """The values to save: those that a policy saves and reverse reads, then the cheapest others; `paid` are the inputs
    of the joint graph that aren't free."""
    saveable = _saveable(parts, paid)
    cut = _cheapest(parts, paid, near_sources, saveable)
    if not saveable:
        return Chosen(cut)
    read = read_values(extract(parts.wanted, (*parts.graph.inputs, *saveable, *cut)))
    return Chosen([*(v for v in saveable if v in read), *cut], [v for v in saveable if v not in read])


def demanded(parts: Split, paid: Set[Value]) -> tuple[Split, Chosen]:
    """The values that a policy saves, whatever reverse may compute again; and the parts, of whose stacks only those of
    such values are handed over."""
    saveable = _saveable(parts, paid)
    read = read_values(extract(parts.wanted, (*parts.graph.inputs, *saveable))) if saveable else ()
    staying = [t for t in zip(*parts.threads, strict=True) if is_marked(t[0])]
    threads = Threads(*zip(*staying, strict=True)) if staying else Threads((), (), ())
    values = Chosen([v for v in saveable if v in read], [v for v in saveable if v not in read])
    return parts._replace(threads=threads), values


def _saveable(parts: Split, paid: Set[Value]) -> list[Value]:
    free = set(parts.graph.inputs) - paid
    return [v for v in parts.saveable if v not in free]


def _cheapest(parts: Split, paid: Collection[Value], near_sources: bool, saveable: Collection[Value]) -> list[Value]:
    free: dict[Value, bool] = {}
    prices: dict[Value, int] = {}
    operands: dict[Value, Sequence[Value]] = {}
    sources: list[Value] = []
    cone = extract(parts.wanted, (*parts.graph.inputs, *saveable))
    for v in cone.inputs:
        free[v] = v not in paid or v in saveable
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


# ---- the two parts


class ForwardOutputs(Signature):
    """Results of the body, stacks of inner loops with what they pushed, and what is to be saved (as it is marked, where
    a policy saves it)."""

    primal: Sequence[Value]
    filled: Sequence[Value]
    saved: Sequence[Value]


class ForwardPart(NamedTuple):
    """(inputs of the body, empty stacks) -> outputs"""

    graph: Graph
    outputs: ForwardOutputs

    def inlined(self, primal: Sequence[Value], empty: Sequence[Value]) -> ForwardOutputs:
        """What it gives, emitted into the current scope."""
        return self.outputs.split(inline(self.graph, (*primal, *empty)))


class ReverseInputs(Signature):
    """Values that reverse may read as they are (of the body's inputs, and cotangents that no trip changes), cotangents
    and accumulators, what was saved, and the stacks of inner loops as forward leaves them."""

    outside: Sequence[Value]
    adjoint: Sequence[Value]
    saved: Sequence[Value]
    filled: Sequence[Value]


class ReverseOutputs(Signature):
    """Cotangents and accumulators, and the stacks that were popped from."""

    adjoint: Sequence[Value]
    emptied: Sequence[Value]


class ReversePart(NamedTuple):
    """inputs -> outputs"""

    graph: Graph
    inputs: ReverseInputs
    outputs: ReverseOutputs

    @property
    def read(self) -> list[int]:
        """The positions of the values outside that are read."""
        read = read_values(self.graph)
        return [i for i, v in enumerate(self.inputs.outside) if v in read]

    def taking(self, outside: Sequence[int]) -> ReversePart:
        """The part that takes, of the values outside, only those at these positions; it reads no others."""
        inputs = self.inputs.replaced(outside=[self.inputs.outside[i] for i in outside])
        return ReversePart(Graph(inputs.values, self.graph.nodes, self.graph.outputs), inputs, self.outputs)

    def inlined(self, inputs: ReverseInputs) -> ReverseOutputs:
        """What it gives, emitted into the current scope."""
        return self.outputs.split(inline(self.graph, inputs.values))


def forward_part(parts: Split, saved: Sequence[Value]) -> ForwardPart:
    threads = parts.threads
    outputs = ForwardOutputs(parts.primal, threads.filled, [parts.saveable.get(v, v) for v in saved])
    return ForwardPart(_closed(outputs.values, (*parts.inputs.primal, *threads.made)), outputs)


def reverse_part(
    parts: Split, outside: Sequence[Value], adjoint: Sequence[Value], saved: Sequence[Value]
) -> ReversePart:
    inputs = ReverseInputs(outside, adjoint, saved, parts.threads.filled)
    outputs = ReverseOutputs(parts.adjoint, parts.threads.emptied)
    return ReversePart(_closed(outputs.values, inputs.values), inputs, outputs)


def _closed(outputs: Sequence[Value], inputs: Sequence[Value]) -> Graph:
    graph = extract(outputs, inputs)
    assert len(graph.inputs) == len(inputs), "the cut leaves out a value that this part needs"
    return graph
