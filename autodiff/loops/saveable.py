"""What the policy of a checkpoint saves inside the function that is computed again: in it, in its loops and branches.

Before such a function is pulled back, what its policy wants is marked in it (`marked_by`): `alias` nodes say so, and
nobody but this file reads or writes marks. What is marked is free for the reverse part of the loop or branch that it
is in (`loops.residuals`): the loop pushes it on a stack, the branch returns it in a slot. A result of a region that
gives a marked value, and the stack of one, are marked again for the node around them, up to the call, which hands all
of it from the augmented call to the reverse (`loops.recompute`):

    for k < n:                                 v', h = for k < n: v, h = v + exp(v), push(h, exp(v))    forward
      h = exp(v) named h                 ->
      v = v + h                                v_adj = for ..: h, r = pop(h); v_adj = v_adj * (1 + r)   reverse

The names of JAX are used: a value is saveable where the policy says so; whether it is saved depends on who reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from loopgrad.graph.build import at, emit
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.rebuild import GraphBuilder, rebuild, renewed
from loopgrad.graph.regions import Call, Region
from loopgrad.graph.stacks import stack_type
from loopgrad.graph.types import TensorType

Saveable = Mapping[Value, Value]
"""Values that a policy saves where they are read, each with its mark, which has its name."""

_MARK: Final = "saveable"
_TURNED: Final = "turned"  # of a stack that holds what another one held, the other way round


# ---- what a policy says


def marked_by(policy: Sequence[str], graph: Graph) -> Graph:
    """`graph` with marks on what a policy saves, in regions too. A function inside that is itself computed again has
    its own policy."""
    if not policy:
        return graph
    builder, env = GraphBuilder(), dict[Value, Value]()
    for node in graph.nodes:
        own = node.op == "call" and Call.of(node).computed_again
        regions = node.regions if own else tuple([marked_by(policy, r) for r in node.regions])
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), regions)
        results: Sequence[Value] = current.results
        builder.loc = node.loc
        if not _saves(policy, current):
            builder.nodes.append(current)
        elif node.op == "alias":
            results = builder.emit("alias", current.operands, {**node.attrs, _MARK: True})
        else:
            builder.nodes.append(current)
            results = builder.emit("alias", results, {_MARK: True})
        env.update(zip(node.results, results, strict=True))
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


def marked_reads(graph: Graph, given: Collection[Value]) -> Graph:
    """`graph` with marks on what is popped from stacks that are `given`, or were turned round inside: a function that
    is computed again can't pop it once more, so it must be saved."""
    builder, env, given = GraphBuilder(), dict[Value, Value](), set(given)
    for node in graph.nodes:
        handed = [i for i, v in enumerate(node.operands) if v in given]
        regions = node.regions
        if regions:
            region = Region.of(node)
            inside = {v for i in handed if i >= region.first for v in region.inputs_of(i)}
            own = isinstance(region, Call) and region.computed_again
            regions = regions if own else tuple([marked_reads(r, inside) for r in regions])
            given.update(node.results[j] for j, i in region.threaded.items() if i in handed)
        elif node.attrs.get(_TURNED) or (handed and node.op in ("push", "pop")):
            given.add(node.results[0])
        current = renewed(node, tuple([env.get(v, v) for v in node.operands]), regions)
        builder.loc = node.loc
        builder.nodes.append(current)
        results = list(current.results)
        if handed and node.op == "pop":
            results[1:] = builder.emit("alias", results[1:], {_MARK: True})
        env.update(zip(node.results, results, strict=True))
    return Graph(graph.inputs, tuple(builder.nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _saves(policy: Sequence[str], node: Node) -> bool:
    """Whether a policy saves the results of a node: `only` these names, any name `except` these, those of `dots` or of
    `plain dots` (without batch dims), or what one of several joined by `or` saves."""
    if "or" in policy:
        place = policy.index("or")
        return _saves(policy[:place], node) or _saves(policy[place + 1 :], node)
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


# ---- marks


def saveable_values(nodes: Iterable[Node]) -> Saveable:
    """What is marked among the results of nodes."""
    found: dict[Value, Value] = {}
    for node in nodes:
        if node.op == "alias" and is_marked(node.results[0]):
            (value,), (mark,) = node.operands, node.results
            alone = value.node is None or not (value.node.regions or len(value.node.results) > 1)
            # what computed it may read it itself for the derivative, and knows no mark; not so one of several
            found.setdefault(value if alone else mark, mark)
    return found


def surfaced(graph: Graph) -> Graph:
    """`graph` with marks on the results of regions that end with marks."""
    if not any(_ends_marked(r) for node in graph.nodes if node.regions for r in node.results):
        return graph
    return rebuild(graph, _surfacing, inner=False)


def _surfacing(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    marks = [_ends_marked(r) for r in node.results] if node.regions else ()
    if not any(marks):
        return None
    builder.nodes.append(node)
    return [
        r if mark is None else builder.value("alias", r, **_passing(mark.attrs.get("name")))
        for r, mark in zip(node.results, marks, strict=True)
    ]


def _ends_marked(result: Value) -> Node | None:
    """The mark with which a region ends that gives a tensor."""
    if result.node is None or not isinstance(result.type, TensorType):
        return None
    ends = [body.outputs[result.index] for body in Region.of(result.node).bodies]
    return next((v.node for v in ends if v.node is not None and is_marked(v)), None)


def _passing(name: str | None) -> dict[str, object]:
    """The attributes of a mark that isn't the program's own: it goes when the others lose their marks."""
    return {"name": name, _MARK: "passing"}


def marked(value: Value, name: str) -> Value:
    """`value`, emitted with a mark."""
    return emit("alias", (value,), _passing(name))[0]


def is_marked(value: Value) -> bool:
    """Whether a value is a mark, or the new stack of marked values."""
    return value.node is not None and bool(value.node.attrs.get(_MARK))


def stack_for(value: Value, depth: Value | None, owner: str | None = None) -> Value:
    """A new stack for values like this one, under the name of who saves it and its own, which the plan shows and
    messages; marked as the value is."""
    node, mark = value.node, is_marked(value)
    name = node.attrs.get("name") if mark and node is not None else None
    if name is None:
        while node is not None and node.op == "alias":
            node = node.operands[0].node
        name = "carry" if node is None else node.op
    attrs = {"element": tensor_type("push", value), "name": f"{owner}/{name}"}
    return emit("stack_new", () if depth is None else (depth,), {**attrs, _MARK: True} if mark else attrs)[0]


def stack_like(made: Value, depth: Value | None, *, marked: bool = True) -> Value:
    """Another stack instead of one that a node inside made, with its line and name, and its mark if that is to stay."""
    assert made.node is not None
    attrs = {name: value for name, value in made.node.attrs.items() if marked or name != _MARK}
    with at(made.node.loc):
        return emit("stack_new", () if depth is None else (depth,), attrs)[0]


def turned_stack(made: Value) -> Value:
    """A new stack for what another one holds, the other way round."""
    assert made.node is not None
    name = f"{made.node.attrs['name']} turned"
    return emit("stack_new", (), {"element": stack_type(made).element, "name": name, _TURNED: True})[0]


def unmarked(graph: Graph, again: bool = False) -> Graph:
    """`graph` without marks, which mean something in the joint graph of one call alone. The stacks of marked values say
    in their names where the graph runs `again`."""
    return rebuild(graph, lambda node, builder: _unmarked(node, builder, " again" if again else ""))


def _unmarked(node: Node, builder: GraphBuilder, addition: str) -> Sequence[Value] | None:
    if not node.attrs.get(_MARK):
        return None
    attrs = {name: value for name, value in node.attrs.items() if name != _MARK}
    if node.op == "alias":
        own = attrs.get("gathered") or (node.attrs[_MARK] != "passing" and attrs.get("name"))
        return builder.emit("alias", node.operands, attrs) if own else node.operands
    return builder.emit(node.op, node.operands, {**attrs, "name": attrs["name"] + addition})
