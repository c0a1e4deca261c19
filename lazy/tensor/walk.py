"""One walk over what some values are computed from, up to what is known.

    y = sin(a) * b          walked((y,)):  nodes   sin, mul (operands first)
    a: known, b: a leaf                    inputs  a, b

An evaluation looks at these nodes several times: who still needs them, on which device they are, whether such a
program was compiled before. Where nothing among them replaces another (`Node.replaces`), no input is also a result of a
node that runs, and no two inputs have one leaf, the walk itself is the graph; elsewhere `graph.extract` cuts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.build import inline
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.lazy.tensor.core import TensorLeaf
from loopgrad.lazy.tensor.evaluator import known_leaf

REFUSED: Final = "refused"  # attribute of an `alias` whose value an evaluation tests (`lazy.tensor.refusals`)


class Walk:
    """`inputs`: values without a node, and known ones (`starts`), each with the leaf that holds its elements. `plain`:
    see above."""

    __slots__ = ("inputs", "nodes", "plain", "starts")

    def __init__(
        self, nodes: dict[Node, None], inputs: dict[Value, Value], starts: dict[Value, TensorLeaf], plain: bool
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.starts = starts
        self.plain = plain

    def marks(self) -> list[Node]:
        """The nodes whose values are tested."""
        return [node for node in self.nodes if node.op == "alias" and REFUSED in node.attrs]

    def cut(self, outputs: Sequence[Value]) -> tuple[Graph, list[Value]]:
        """The graph that computes `outputs`, which are results of what was walked to, or its inputs, and the leaves
        that are its inputs. Known elements may go while others look on: the walk holds them."""
        if self.plain:
            return Graph(tuple(self.inputs), tuple(self.nodes), tuple(outputs)), list(self.inputs.values())
        if self.starts:
            graph = extract(outputs, tuple(self.starts))
            outputs = inline(graph, [self.inputs.get(v, v) for v in graph.inputs])
        graph = extract(outputs)
        return graph, list(graph.inputs)


def walked(values: Sequence[Value], before: Walk | None = None) -> Walk:
    """See above; nodes and inputs come in the order that `extract` gives them. `before`: from other values, which come
    first."""
    nodes: dict[Node, None] = {} if before is None else {**before.nodes}
    inputs: dict[Value, Value] = {} if before is None else {**before.inputs}
    starts: dict[Value, TensorLeaf] = {} if before is None else {**before.starts}
    entered: set[Node] = {*nodes}
    pending: list[Node] = []
    plain = not any(node.replaces for node in nodes)
    for output in values:
        again: Sequence[Value] = (output,)
        while True:
            for value in again:
                made_by = value.node
                if made_by is None:
                    inputs[value] = value
                elif value.known is not None and (leaf := known_leaf(value)) is not None:
                    inputs[value] = starts[value] = leaf
                elif made_by not in nodes:
                    pending.append(made_by)
            while pending:
                node = pending[-1]
                if node not in entered:
                    break
                pending.pop()
                nodes[node] = None
            if not pending:
                break
            entered.add(node)
            if node.replaces is not None:
                plain = False
            again = node.operands[::-1]
    if starts and plain:
        plain = all(v.node not in nodes for v in starts) and len(set(inputs.values())) == len(inputs)
    return Walk(nodes, inputs, starts, plain)
