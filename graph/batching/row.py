"""What a batching row is, and what rows share.

A row gets a node of the graph being batched and the values that stand for its operands, and emits the node
for all batch elements at once: one value per result. A batched value carries the batch axis in front; which
values are batched `graph.batching.analysis` has decided beforehand. Rows of plain primitives are called only
where some operand is batched, and then all their results are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loopgrad.graph import ops
from loopgrad.graph.batching.analysis import BatchAnalysis, Flags
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.types import StackType, TensorType


@dataclass(frozen=True, slots=True, eq=False)
class BatchContext:
    """One run over one graph.

    size: batch elements.  batched: the batched values of the graph.  mask: rank of the largest lane mask that
    the emitted code runs under (the batch axis counts).  inside: whether the graph is a region of the one
    given to `batch`.  shared: the values whose stand-ins are shared accumulators.  emitted: node -> the one
    that stands for it.
    """

    size: int
    rows: Mapping[str, Row]
    flow: BatchAnalysis
    batched: frozenset[Value]
    mask: int = 0
    inside: bool = False
    shared: set[Value] = field(default_factory=set)
    emitted: dict[Node, Node] = field(default_factory=dict)

    def flags(self, values: Sequence[Value]) -> Flags:
        """Which of these values of the graph are batched."""
        return tuple([v in self.batched for v in values])

    def region(self, graph: Graph, flags: Flags, mask: int, shared: Sequence[int]) -> BatchContext:
        """For a region with these inputs batched, run under this mask, with accumulators at these inputs."""
        accumulators = {graph.inputs[p] for p in shared}
        batched = self.flow.batched(graph, flags, mask > 0)
        return BatchContext(self.size, self.rows, self.flow, batched, mask, True, accumulators)


Row = Callable[[Node, Sequence[Value], BatchContext], Sequence[Value]]


def expanded(value: Value, batched: bool, size: int) -> Value:
    """`value` with the batch axis in front, repeated along it where it has none yet."""
    if batched:
        return value
    shape = (size, *value.shape)
    if value.node is not None and value.node.op == "const":
        return ops.full(value.node.attrs["value"], TensorType(shape, value.dtype))
    return ops.broadcast(value, shape, range(1, len(shape)))


def all_expanded(node: Node, operands: Sequence[Value], context: BatchContext) -> list[Value]:
    """All operands of `node` with the batch axis."""
    flags = context.flags(node.operands)
    return [expanded(v, b, context.size) for v, b in zip(operands, flags, strict=True)]


def in_front(node: Node, operands: Sequence[Value], context: BatchContext) -> Sequence[Value]:
    """The row of a primitive whose record has a batched form: the batch axis is in front of all operands."""
    batched = PRIMITIVES[node.op].batched
    assert batched is not None
    return emit(node.op, all_expanded(node, operands, context), batched(node.attrs, context.size))


def batched_type(type: TensorType | StackType, batched: bool, size: int) -> TensorType | StackType:
    """The type that stands for `type`; a stack's elements get the batch axis."""
    if not batched:
        return type
    if isinstance(type, StackType):
        return StackType(TensorType((size, *type.element.shape), type.element.dtype))
    return TensorType((size, *type.shape), type.dtype)
