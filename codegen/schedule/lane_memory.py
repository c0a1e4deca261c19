"""What lanes hold of a region's values, and how many bytes of it in arrays where the region is rolled.

Arrays that are needed at different times share memory (`codegen.kernel.passes.share_arrays`): what counts is the most
that is needed at one time. It is estimated before there is a kernel: an array is needed from the node that makes it to
the last one that reads it, or reads what is computed of it as it is read. What is kept in arrays
`codegen.lower.arrays` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.lower.arrays import FEW, kept_values
from loopgrad.codegen.lower.context import leading_dims
from loopgrad.codegen.lower.control import memory_source
from loopgrad.codegen.lower.factorisations.table import ROUTINES
from loopgrad.graph.accumulators import is_accumulator
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import STACKS
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import StackType, TensorType


def scalars(value: Value, lanes: int) -> int:
    """Elements of a value that belong to one lane."""
    type = value.type.element if isinstance(value.type, StackType) else value.type
    assert isinstance(type, TensorType)
    if lanes > 1 and leading_dims(type.shape, lanes) is not None:
        return type.size // lanes
    return type.size


def memory_operand(region: Region, result: int) -> int | None:
    """The operand of a top-level region whose memory a result is: one that scatters combine into."""
    if not isinstance(region, Loop):
        return memory_source(region, result) if result in region.shared else None
    if result in region.shared or (not region.lanes and is_accumulator(region, result)):
        return region.source(result)
    return None


def kept_in_registers(node: Node) -> bool:
    """Whether a region of a rolled kernel isn't rolled itself."""
    return len(node.regions) == 1 and not isinstance(Region.of(node), Loop) and bool(node.attrs.get("unrolled"))


def most_bytes(node: Node, lanes: int) -> int:
    """Of the arrays of one lane that are needed at one time, roughly."""
    return _Memory(lanes).region(node)


class _Memory:
    def __init__(self, lanes: int) -> None:
        self.lanes = lanes

    def of(self, value: Value) -> int:
        """Bytes of the array that a value gets where it is kept."""
        if not isinstance(value.type, TensorType):
            return 0
        count = scalars(value, self.lanes)
        return count * value.dtype.itemsize if count > FEW else 0

    def region(self, node: Node) -> int:
        """While it runs: its carries or results, and what there is inside."""
        region = Region.of(node)
        held = {j: self.of(r) for j, r in enumerate(node.results) if memory_operand(region, j) is None}
        if kept_in_registers(node):
            return sum(held.values())
        made = [[g.outputs[j] for j in held] if g in region.bodies else [] for g in region.running]
        if len(made) == 1 and not isinstance(region, Loop):  # what is in an array stays there
            (branch,) = region.running
            return self.graph(branch, made[0])
        again = made if isinstance(region, Loop) else [[]] * len(made)  # carries, while what they become is computed
        return sum(held.values()) + max([self.graph(*pair) for pair in zip(region.running, again, strict=True)])

    def graph(self, graph: Graph, outputs: Sequence[Value]) -> int:
        """`outputs`: those that get arrays in the end."""
        nodes = graph.nodes
        kept = kept_values(nodes, graph.outputs, lambda v: scalars(v, self.lanes))
        made = {v: i for i, node in enumerate(nodes) for v in self._arrays(node, kept)}
        last = self._last_reads(graph, made, kept)
        needed = [0] * (len(nodes) + 1)
        for i, node in enumerate(nodes):
            needed[i] += self._meanwhile(node)
        for value, first in made.items():
            for i in range(first, last.get(value, first) + 1):
                needed[i] += self.of(value)
        needed[-1] += sum(self.of(v) for v in dict.fromkeys(outputs) if v not in made)
        return max(needed)

    def _arrays(self, node: Node, kept: dict[Value, bool]) -> Sequence[Value]:
        """The results that get arrays."""
        if node.regions or node.op in ROUTINES:
            return node.results
        if node.op in STACKS:
            return node.results[1:]
        return [r for r in node.results if kept.get(r)]

    def _meanwhile(self, node: Node) -> int:
        """Beside the results, while they are computed."""
        if node.regions:
            return self.region(node) - sum(self.of(r) for r in node.results)
        if node.op in ROUTINES:
            return ROUTINES[node.op].scratch * max(self.of(v) for v in (node.operands[0], *node.results))
        return 0

    def _last_reads(self, graph: Graph, made: dict[Value, int], kept: dict[Value, bool]) -> dict[Value, int]:
        """Where each value is read last: its reader, or that of what is computed as it is read."""
        last = dict.fromkeys(graph.outputs, len(graph.nodes))
        for i, node in reversed(list(enumerate(graph.nodes))):
            settled = node.regions or node.op in STACKS or any(r in made or r in kept for r in node.results)
            at = i if settled else max([last.get(r, i) for r in node.results], default=i)
            for v in node.operands:
                last[v] = max(last.get(v, 0), at)
        return last
