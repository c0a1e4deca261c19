"""A second run of a loop reads what the first one kept, where it would compute it again.

Stacks give back last what was pushed first, and a second run wants it first. So the reverse of the call turns such a
stack round before it runs the loop again, which pops one value where it made and pushed one, and goes on with that:

    first run                      turned round                   second run
    for k < n:                     for k < n:                     for k < n:
      h = exp(v)                     s, h = pop(s)                  q, h = pop(q)
      s = push(s, h)                 q = push(q, h)                 s = push(s, h)
      v = v + h                                                     v = v + h

How many trips a while makes is counted in the first run, for each lane. Only what one loop pushes is turned round, not
what a loop in another one does: lanes that stop at different trips of the inner loop would have their rows mixed up
where all lanes run in step. There the second run computes once more, and the reverse loops pop what was kept, as they
do wherever the second run, if there is one, doesn't read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopgrad.graph import ops
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, renewed
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.stacks import stack_type, uses_of_stack
from loopgrad.graph.types import StackType, TensorType, int64

Type = TensorType | StackType
Step = Callable[[GraphBuilder, Value], tuple[Value, Value | None]]
"""What becomes of the value beside the stack where a value is pushed, and what is pushed instead, if anything."""


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


def beside_counter(graph: Graph, stack: Value, lanes: tuple[int, ...]) -> Graph:
    """`graph` with one more input and output: a counter, before and after what is pushed on `stack`."""

    def step(builder: GraphBuilder, counter: Value) -> tuple[Value, None]:
        one = builder.const(1, TensorType(counter.shape, int64))
        return builder.value("add", counter, one), None

    return _beside(graph, stack, TensorType(lanes, int64), step)


def beside_queue(graph: Graph, stack: Value) -> Graph:
    """`graph` with one more input and output: a stack before and after popping what is pushed on `stack`."""

    def step(builder: GraphBuilder, queue: Value) -> tuple[Value, Value]:
        rest, value = builder.emit("pop", (queue,))
        return rest, value

    return _beside(graph, stack, stack.type, step)


def turned(stack: Value, count: Value) -> tuple[Value, ...]:
    """The stack when it is empty, and one that holds its `count` values the other way round."""
    made = ops.stack_new(stack_type(stack).element, None, "turned")

    def body(_: Value, given: Value, taken: Value) -> Sequence[Value]:
        rest, value = ops.pop(given)
        return rest, ops.push(taken, value)

    return traced_for(count, [stack, made], body, reverse=True, name="turned")


def _first_use(graph: Graph, stack: Value) -> tuple[Node | None, int]:
    return next(((node, operand) for node, operand, _ in uses_of_stack(graph, stack)), (None, 0))


def _beside(graph: Graph, stack: Value, type: Type, step: Step) -> Graph:
    """`graph` with a value that goes the way of `stack` beside it, up to where the stack is full."""
    use, operand = _first_use(graph, stack)
    before, builder, env = Value(type), GraphBuilder(), dict[Value, Value]()
    after, instead = before, dict[Value, Value]()
    if use is not None and use.op == "push":
        builder.loc = use.loc
        after, pushed = step(builder, before)
        if pushed is not None:
            instead[use.operands[1]] = pushed
            env.update(instead)
    for node in graph.nodes:
        operands = tuple([env.get(v, v) for v in node.operands])
        if node is use and node.regions:
            builder.loc = node.loc
            *results, after = _loop_beside(renewed(node, operands, node.regions), operand, before, step, builder)
        else:
            current = renewed(node, operands, node.regions)
            builder.nodes.append(current)
            results = list(current.results)
        env.update([(old, new) for old, new in zip(node.results, results, strict=True) if old is not new])
        env.update(instead)
    outputs = tuple([env.get(v, v) for v in graph.outputs])
    return Graph((*graph.inputs, before), tuple(builder.nodes), (*outputs, after))


def _loop_beside(node: Node, operand: int, before: Value, step: Step, builder: GraphBuilder) -> Sequence[Value]:
    """The results of the loop with the value beside its stack, which comes last."""
    loop = Loop.of(node)
    body = _beside(loop.body, loop.body.inputs[operand], before.type, step)
    *own, extra = body.inputs
    lead, carries, captures = loop.split(own)
    body = Graph((*lead, *carries, extra, *captures), body.nodes, body.outputs)
    condition = None if loop.condition is None else loop.taking(loop.condition, [before])
    form = loop.rebuilt(inits=(*loop.inits, before), condition=condition, body=body)
    return builder.emit(form.op, form.operands, form.attrs, form.regions)
