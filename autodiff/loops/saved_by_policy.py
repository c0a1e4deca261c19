"""What the policy of a checkpoint keeps inside the function that is computed again: in it, in its loops and branches.

The joint graphs of all of them are made under the policy (`Context.save`). What it keeps is free for the reverse part
of each: a loop pushes it on stacks, a branch returns it in slots. Both are marked `kept` where they come out, so that
the node around them keeps it as well, up to the call, which hands all of it from the augmented call to the reverse:

    for k < n:                                 v', h = for k < n: v, h = v + exp(v), push(h, exp(v))    forward
      h = exp(v) named h                 ->
      v = v + h                                v_adj = for ..: h, r = pop(h); v_adj = v_adj * (1 + r)   reverse
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from loopgrad.graph import ops
from loopgrad.graph.build import at, emit
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.stacks import stack_type
from loopgrad.graph.types import TensorType

Names = Mapping[Value, str | None]
"""Kept values, each with the name that it was given, if any."""


def saves(policy: Sequence[str], node: Node) -> bool:
    """Whether a policy keeps the results of a node: `only` these names, any name `except` these, those of `dots` or of
    `plain dots` (without batch dims), or what one of several joined by `or` keeps. Nothing, of no policy."""
    if "or" in policy:
        place = policy.index("or")
        return saves(policy[:place], node) or saves(policy[place + 1 :], node)
    if not policy:
        return False
    name = node.attrs.get("name") if node.op == "alias" else None
    match policy[0]:
        case "only":
            return name in policy[1:]
        case "except":
            return name is not None and name not in policy[1:]
        case "dots":
            return node.op == "matmul"
        case "plain dots":
            return node.op == "matmul" and all(len(v.shape) <= 2 for v in node.operands)
    return False


def saved_values(nodes: Iterable[Node], policy: Sequence[str], free: Collection[Value] = ()) -> Names:
    """What a policy keeps of the results of nodes, but for what is `free` anyway."""
    if not policy:
        return {}
    found: dict[Value, str | None] = {}
    for node in nodes:
        if is_marked(node) or saves(policy, node):
            (value,) = node.results
            if node.op == "alias":
                value, inner = node.operands[0], node.operands[0].node
                if inner is not None and (inner.regions or len(inner.results) > 1):
                    value = node.results[0]  # a result of several, which nobody but the program itself reads
                # else what is named itself: what computed it may read it for the derivative, and knows no name
            if value not in free and isinstance(value.type, TensorType):
                found.setdefault(value, node.attrs.get("name"))
    return found


def marked(value: Value, name: str | None) -> Value:
    """A value that comes out of a node which keeps it."""
    return emit("alias", (value,), {"name": name, "kept": True})[0]


def is_marked(node: Node) -> bool:
    """Whether a node is the mark of a kept value, or makes the stack of one."""
    return bool(node.attrs.get("kept"))


def is_kept(stack: Value) -> bool:
    """Whether a new stack is one of kept values."""
    return stack.node is not None and is_marked(stack.node)


def unmarked(graph: Graph) -> Graph:
    """`graph`, a second run, without marks, which mean something in the joint graph of the call alone."""
    return rebuild(graph, _unmarked)


def _unmarked(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    if not is_marked(node):
        return None
    if node.op == "alias":
        return node.operands
    attrs = {"element": node.attrs["element"], "name": f"{node.attrs['name']} again"}
    return builder.emit(node.op, node.operands, attrs)


def stack_like(made: Value, depth: Value | None, *, kept: bool | None = None) -> Value:
    """Another stack instead of one that a node inside made, with its line, name and mark, if not told otherwise."""
    assert made.node is not None
    with at(made.node.loc):
        mark = is_kept(made) if kept is None else kept
        return ops.stack_new(stack_type(made).element, depth, made.node.attrs["name"], kept=mark)
