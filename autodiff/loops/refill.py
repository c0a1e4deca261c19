"""A second run of a loop reads what the first one kept, where it would compute it again.

Stacks give back last what was pushed first, and a second run wants it first. So the reverse of the call turns such a
stack round before it runs the loop again, which pops one value where it made and pushed one, and goes on with that:

    first run                      turned round                   second run
    for k < n:                     for k < n:                     for k < n:
      h = exp(v)                     s, h = pop(s)                  q, h = pop(q)
      s = push(s, h)                 q = push(q, h)                 s = push(s, h)
      v = v + h                                                     v = v + h

That is done in functions whose loops are counted by what the function is given, and hold no others (`known_trips`). A
stack that turns out too small gives zeros until it has grown, and what is computed from them must end; and lanes that
stop at different trips of an inner loop would have their rows mixed up where all lanes run in step. In other functions
the second run computes once more, and the reverse loops pop what was kept, as they do wherever no second run reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.graph import ops
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.stacks import stack_type, uses_of_stack
from loopgrad.graph.types import StackType, TensorType

Type = TensorType | StackType
def known_trips(function: Graph) -> bool:
    """Whether every loop runs as often as the inputs say, whatever the others compute."""
    for node in function.nodes:
        if node.regions:
            region = Region.of(node)
            if any(map(_has_loops, node.regions)):
                return False
            if isinstance(region, Loop) and (region.count is None or _has_regions(extract(region.lead))):
                return False
    return True


def _has_loops(graph: Graph) -> bool:
    regions = [Region.of(node) for node in graph.nodes if node.regions]
    return any(isinstance(r, Loop) or any(map(_has_loops, r.node.regions)) for r in regions)


def _has_regions(graph: Graph) -> bool:
    return any(node.regions or node.op == "pop" for node in graph.nodes)


def filling(graph: Graph, stack: Value) -> Loop | None:
    """The loop of `graph` whose trips push on `stack`, one value each; None where it is filled in another way."""
    node, operand = _first_use(graph, stack)
    if node is None or not node.regions:
        return None
    loop = Region.of(node)
    if not isinstance(loop, Loop):
        return None
    push, _ = _first_use(loop.body, loop.body.inputs[operand])
    alike = stack_type(stack).element.shape[: loop.lanes] == loop.lane_shape
    return loop if push is not None and push.op == "push" and alike else None


def turned(stack: Value, count: Value) -> tuple[Value, ...]:
    """The stack when it is empty, and one that holds its `count` values the other way round."""
    made = ops.stack_new(stack_type(stack).element, None, "turned")

    def body(_: Value, given: Value, taken: Value) -> Sequence[Value]:
        rest, value = ops.pop(given)
        return rest, ops.push(taken, value)

    return traced_for(count, [stack, made], body, reverse=True, name="turned")


def _first_use(graph: Graph, stack: Value) -> tuple[Node | None, int]:
    return next(((node, operand) for node, operand, _ in uses_of_stack(graph, stack)), (None, 0))


def beside_queue(graph: Graph, stack: Value) -> Graph:
    """`graph` with one more input and output: a stack before and after popping, in place of computing them, the values
    that are pushed on `stack`."""
    use, operand = _first_use(graph, stack)
    before, builder, env = Value(stack.type), GraphBuilder(), dict[Value, Value]()
    after, instead = before, dict[Value, Value]()
    if use is not None and use.op == "push":
        builder.loc = use.loc
        after, instead[use.operands[1]] = builder.emit("pop", (before,))
        env.update(instead)
    for node in graph.nodes:
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), node.regions)
        if node is use and node.regions:
            builder.loc = node.loc
            *results, after = _loop_beside(current, operand, before, builder)
        else:
            builder.nodes.append(current)
            results = list(current.results)
        env.update([(old, new) for old, new in zip(node.results, results, strict=True) if old is not new])
        env.update(instead)
    outputs = tuple([env.get(v, v) for v in graph.outputs])
    return Graph((*graph.inputs, before), tuple(builder.nodes), (*outputs, after))


def _loop_beside(node: Node, operand: int, before: Value, builder: GraphBuilder) -> Sequence[Value]:
    """The results of the loop with a stack beside the one that it fills, which comes last."""
    loop = Loop.of(node)
    body = beside_queue(loop.body, loop.body.inputs[operand])
    *own, extra = body.inputs
    lead, carries, captures = loop.split(own)
    body = Graph((*lead, *carries, extra, *captures), body.nodes, body.outputs)
    form = loop.rebuilt(inits=(*loop.inits, before), body=body)
    return builder.emit(form.op, form.operands, form.attrs, form.regions)
