"""Sums into zeros that are added to an array are sums into that array.

    %1 = scatter(zeros, %i, %j, %u) {kind=add}
    %2 = add(%1, %x)                              ->      %2 = scatter(add(0, %x), %i, %j, %u) {kind=add}
    %3 = reduce_sum(%1) {axes=(1,)}               ->      %3 = scatter(zeros, %i, %u) {kind=add}

So is the gradient of what is read at a few places and as a whole, as scores by a loss: the array is written once, and
a few of its elements again, where zeros had to be written, read and added to it. Differences alike; nobody else may
read those sums. For devices that round a sum into a table once: in order it would be another sum. Where nothing is
added, 0 is: -0.0 becomes 0.0, in the kernel that makes the array.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from loopgrad.graph.nodes import Graph, Node, Value, is_zero
from loopgrad.graph.passes import dce
from loopgrad.graph.ranges import bounds
from loopgrad.graph.rebuild import GraphBuilder, rebuild, renewed
from loopgrad.graph.types import TensorType, int64


def rewrite_scatter_bases(graph: Graph) -> Graph:
    """The sums of `graph` itself; its regions stay."""
    fewer = rebuild(graph, _fewer_axes, inner=False)
    graph = graph if fewer is graph else dce.run(fewer)
    found = _found(graph)
    if not found:
        return graph
    left_out = {scatter for chain in found.values() for scatter in chain}
    builder, env = GraphBuilder(), dict[Value, Value]()
    for node in graph.nodes:
        if node in left_out:
            continue
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), node.regions)
        builder.loc = node.loc
        if node in found:
            env[node.results[0]] = _onto(node, found[node], env, builder)
            continue
        builder.nodes.append(current)
        env.update([(old, new) for old, new in zip(node.results, current.results, strict=True) if old is not new])
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _fewer_axes(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """What stands for a sum along axes of what was scattered: those aren't made."""
    if node.op != "reduce_sum":
        return None
    (total,), negated = node.operands, False
    if total.node is not None and total.node.op == "neg":
        (total,), negated = total.node.operands, True
    scatter, axes = total.node, node.attrs["axes"]
    if scatter is None or not _adds(scatter) or not is_zero(scatter.operands[0]):
        return None
    indices, updates = scatter.operands[1:-1], scatter.operands[-1]
    if not set(axes) < set(range(len(indices))):
        return None
    for axis in axes:
        updates = _inside(indices[axis], total.shape[axis], updates, builder)
    left = [index for axis, index in enumerate(indices) if axis not in axes]
    made = node.results[0]
    zeros = builder.const(0.0 if made.dtype.is_float else 0, TensorType(made.shape, made.dtype))
    sums = builder.value("scatter", zeros, *left, updates, kind="add")
    return [builder.value("neg", sums) if negated else sums]


def _inside(index: Value, extent: int, updates: Value, builder: GraphBuilder) -> Value:
    """The updates that have a place on this axis, zeros for the others."""
    low, high = bounds(index)
    if low >= 0 and high < extent:
        return updates
    wide = builder.cast(index, int64)  # what only uint64 can hold becomes negative
    least, most = (builder.const(n, TensorType(wide.shape, int64)) for n in (0, extent))
    mask = builder.value("and", builder.value("ge", wide, least), builder.value("lt", wide, most))
    mask = builder.value("broadcast", mask, shape=updates.shape, dims=tuple(range(len(mask.shape))))
    return builder.value("select", mask, updates, builder.const(0, TensorType(updates.shape, updates.dtype)))


def _adds(node: Node) -> bool:
    return node.op == "scatter" and bool(node.attrs["kind"] == "add")


def _found(graph: Graph) -> dict[Node, list[Node]]:
    """Sums and differences, each with the scatters that are made onto its other operand, the last first."""
    if not any(node.op == "scatter" for node in graph.nodes):
        return {}
    uses = Counter(v for node in graph.nodes for v in node.operands)
    uses.update(graph.outputs)
    found: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.op in ("add", "sub"):
            chains = [_chain(operand, uses) for operand in node.operands]
            chain = next((c for c in chains if c), None)
            if chain is not None:
                found[node] = chain
    return found


def _chain(value: Value, uses: Mapping[Value, int]) -> list[Node]:
    """The scatters that make the value of zeros, if it is made so and only read once."""
    chain = []
    while (node := value.node) is not None and _adds(node):
        if uses[value] != 1:
            return []
        chain.append(node)
        value = node.operands[0]
    return chain if is_zero(value) else []


def _onto(node: Node, chain: list[Node], env: Mapping[Value, Value], builder: GraphBuilder) -> Value:
    """The sum or the difference as scatters."""
    first = chain[0].results[0] is node.operands[0]
    total = node.operands[1 if first else 0]
    total = env.get(total, total)
    if (node.op == "sub" and first) or (total.dtype.is_float and node.op == "add" and not _begins_with_zero(total)):
        zeros = builder.const(0.0 if total.dtype.is_float else 0, TensorType(total.shape, total.dtype))
        total = builder.value(node.op, zeros, total)
    for scatter in reversed(chain):
        *indices, updates = [env.get(v, v) for v in scatter.operands[1:]]
        if node.op == "sub" and not first:
            updates = builder.value("neg", updates)
        total = builder.value("scatter", total, *indices, updates, **scatter.attrs)
    return total


def _begins_with_zero(value: Value) -> bool:
    """Whether all elements are sums that do, which aren't -0.0 unless they underflow: a library's take another pass."""
    while (node := value.node) is not None and _adds(node):
        value = node.operands[0]
    if node is None or node.op == "matmul" or is_zero(value):
        return node is not None
    return node.op == "add" and any(map(is_zero, node.operands))
