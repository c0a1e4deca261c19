"""Recognising accumulators: values that are only ever scattered into.

A carry is an accumulator when, in the body, its argument flows through a chain of scatters (inner
loops and branches included) to its own output and is read nowhere on the way:

    body(k, acc, i, x)
      %1 = gather(i, k);  %2 = gather(x, k)
      %3 = scatter(acc, %1, %2) {kind=add}
      return %3                              acc: a chain of one scatter

Such a carry lives in memory that every lane may update; it needn't be copied, masked or held in
registers. What reads it for nothing (a node no output needs, a loop that captures it and doesn't look)
doesn't count: whether it is an accumulator mustn't depend on the order of the passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple
from weakref import WeakKeyDictionary

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Loop, Region


class Chain(NamedTuple):
    """Where the chain from an input ends, how many scatters it passes, and the shapes of their indices."""

    output: int
    scatters: int
    indexed: frozenset[Shape] = frozenset()

    def over(self, lanes: Shape) -> bool:
        """Whether each lane contributes at positions of its own: only such scatters can be dropped lane by lane."""
        return all(shape[: len(lanes)] == lanes for shape in self.indexed)


Shape = tuple[int, ...]
Use = tuple[Node | None, int]
Uses = Mapping[Value, list[Use]]


_uses: WeakKeyDictionary[Graph, Uses] = WeakKeyDictionary()  # a loop asks for each of its carries
_needed: WeakKeyDictionary[Graph, Set[Value]] = WeakKeyDictionary()


def value_uses(graph: Graph) -> Uses:
    """value -> (node, operand position) of each use; an output is a use by None at its position."""
    known = _uses.get(graph)
    if known is None:
        known = _uses[graph] = _find_uses(graph)
    return known


def _find_uses(graph: Graph) -> Uses:
    uses: dict[Value, list[Use]] = {}
    for node in graph.nodes:
        for i, v in enumerate(node.operands):
            uses.setdefault(v, []).append((node, i))
    for i, v in enumerate(graph.outputs):
        uses.setdefault(v, []).append((None, i))
    return uses


def chain_from(graph: Graph, position: int, uses: Uses | None = None) -> Chain | None:
    """The chain of scatters from input `position` to an output; None where the value is also read."""
    uses = value_uses(graph) if uses is None else uses
    value = graph.inputs[position]
    scatters, indexed = 0, set[Shape]()
    while True:
        found = readers(graph, value, uses)
        if len(found) != 1:
            return None
        node, operand = found[0]
        if node is None:
            return Chain(operand, scatters, frozenset(indexed))
        step = passed(node, operand)
        if step is None:
            return None
        value = node.results[step.output]
        scatters += step.scatters
        indexed |= step.indexed


def readers(graph: Graph, value: Value, uses: Uses) -> list[Use]:
    """The uses of `value` on which an output of `graph` depends, where there are several."""
    found = uses.get(value, [])
    return found if len(found) < 2 else _in_earnest(graph, found)


def _in_earnest(graph: Graph, found: Sequence[Use]) -> list[Use]:
    known = _needed.get(graph)
    needed = known if known is not None else _find_needed(graph)
    return [
        (node, i) for node, i in found if node is None or (not needed.isdisjoint(node.results) and _looks_at(node, i))
    ]


def _find_needed(graph: Graph) -> Set[Value]:
    """What the outputs depend on."""
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.results):
            needed.update(node.operands)
    _needed[graph] = needed
    return needed


def _looks_at(node: Node, operand: int) -> bool:
    """False where `node` captures the operand and no region of it needs it."""
    if not node.regions:
        return True
    region = Region.of(node)
    if operand not in region.captured:
        return True
    inputs = zip(region.running, region.inputs_of(operand), strict=True)
    return any(_in_earnest(r, value_uses(r).get(v, [])) for r, v in inputs)


def passed(node: Node, operand: int) -> Chain | None:
    """The result of `node` (as `output`) that continues a chain entering at `operand`; None where it reads it."""
    if node.op == "scatter":
        return Chain(0, 1, frozenset([node.operands[1].shape])) if operand == 0 else None
    if not node.regions:
        return None
    region = Region.of(node)
    if isinstance(region, Loop):
        carry = region.carry_at(operand)
        return None if carry is None else carry_chain(region, carry)
    if operand not in region.captured:  # of a call with rules none: they needn't do the same with it
        return None
    found = [chain_from(body, operand - region.offset) for body in region.bodies]
    chains = [c for c in found if c is not None]
    if len(chains) < len(found) or len({c.output for c in chains}) != 1:
        return None
    indexed = frozenset[Shape]().union(*[c.indexed for c in chains])
    return Chain(chains[0].output, max(c.scatters for c in chains), indexed)


def carry_chain(loop: Loop, carry: int) -> Chain | None:
    """The chain that carry `carry` of a loop forms around the body; None where it is read."""
    argument, condition = loop.position(carry), loop.condition
    if condition is not None and condition.inputs[argument] in value_uses(condition):
        return None
    chain = chain_from(loop.body, argument)
    return chain if chain is not None and chain.output == carry else None


def is_accumulator(loop: Loop, carry: int) -> bool:
    """Whether the carry is scattered into and never read in the loop."""
    chain = carry_chain(loop, carry)
    return chain is not None and chain.scatters > 0
