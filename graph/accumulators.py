"""Recognising accumulators: values that are only ever scattered into.

A carry is an accumulator when, in the body, its argument flows through a chain of scatters (inner
loops and branches included) to its own output and is read nowhere on the way:

    body(k, acc, i, x)
      %1 = gather(i, k);  %2 = gather(x, k)
      %3 = scatter(acc, %1, %2) {kind=add}
      return %3                              acc: a chain of one scatter

Such a carry lives in memory that every lane may update; it needn't be copied, masked or held in
registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from loopgrad.graph.nodes import Graph, Node, Value


class Chain(NamedTuple):
    """Where the chain from an input ends, and how many scatters it passes."""

    output: int
    scatters: int


Uses = Mapping[Value, list[tuple[Node | None, int]]]


def value_uses(graph: Graph) -> dict[Value, list[tuple[Node | None, int]]]:
    """value -> (node, operand position) of each use; an output is a use by None at its position."""
    uses: dict[Value, list[tuple[Node | None, int]]] = {}
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
    scatters = 0
    while True:
        readers = uses.get(value, [])
        if len(readers) != 1:
            return None
        node, operand = readers[0]
        if node is None:
            return Chain(operand, scatters)
        step = passed(node, operand)
        if step is None:
            return None
        value = node.results[step.output]
        scatters += step.scatters


def passed(node: Node, operand: int) -> Chain | None:
    """The result of `node` (as `output`) that continues a chain entering at `operand`; None where it reads it."""
    match node.op:
        case "scatter":
            return Chain(0, 1) if operand == 0 else None
        case "for" | "while":
            first = first_carry(node)
            carry = operand - first
            return carry_chain(node, carry) if 0 <= carry < node.attrs["carries"] else None
        case "switch":
            if operand == 0:
                return None
            chains = [chain_from(branch, operand - 1) for branch in node.regions]
            ends = {c.output if c else None for c in chains}
            if len(ends) != 1 or None in ends:
                return None
            return Chain(chains[0].output, max(c.scatters for c in chains if c))  # type: ignore[union-attr]
    return None


def first_carry(loop: Node) -> int:
    """Operand position of the first carry's init; also that of its argument in the last region."""
    return 1 if loop.op == "for" else 0


def carry_chain(loop: Node, carry: int) -> Chain | None:
    """The chain that carry `carry` of a loop forms around the body; None where it is read."""
    argument = first_carry(loop) + carry
    if loop.op == "while":
        condition = loop.regions[0]
        if condition.inputs[argument] in value_uses(condition):
            return None
    chain = chain_from(loop.regions[-1], argument)
    return chain if chain is not None and chain.output == carry else None


def is_accumulator(loop: Node, carry: int) -> bool:
    """Whether the carry is scattered into and never read in the loop."""
    chain = carry_chain(loop, carry)
    return chain is not None and chain.scatters > 0


def accumulator_operands(node: Node) -> list[int]:
    """Operand positions of what the region node declares as shared."""
    if node.op != "switch":
        return [first_carry(node) + j for j in node.attrs["shared"]]
    if not node.attrs["shared"]:
        return []
    chains = [(i, passed(node, i)) for i in range(1, len(node.operands))]
    return [i for i, chain in chains if chain is not None and chain.output in node.attrs["shared"]]
