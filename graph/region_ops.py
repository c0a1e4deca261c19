"""Emitting region nodes, from closed graphs or by tracing functions.

The emitters take regions as `build.trace` returns them: graphs whose inputs are the arguments followed by
captured values. Regions of one node share one list of captures: `share_captures` makes them agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loopgrad.graph.build import emit, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.regions import Form

Function = Callable[..., Sequence[Value]]
Traced = tuple[Graph, tuple[Value, ...]]


def for_loop(
    count: Value,
    inits: Sequence[Value],
    body: Graph,
    captures: Sequence[Value] = (),
    *,
    shared: Sequence[int] = (),
    reverse: bool = False,
    name: str | None = None,
    memory_budget: int | None = None,
    replaces: Node | None = None,
) -> tuple[Value, ...]:
    """`body` maps (k, *carries, *captures) to carries; the lanes are the dims of `count`."""
    form = for_form(
        count, inits, body, captures, shared=shared, reverse=reverse, name=name, memory_budget=memory_budget
    )
    return emit(*form, replaces)


def for_form(
    count: Value,
    inits: Sequence[Value],
    body: Graph,
    captures: Sequence[Value] = (),
    *,
    shared: Sequence[int] = (),
    reverse: bool = False,
    name: str | None = None,
    memory_budget: int | None = None,
) -> Form:
    """What `for_loop` emits."""
    attrs = {
        "carries": len(inits),
        "lanes": len(count.shape),
        "shared": tuple(shared),
        "reverse": reverse,
        "name": name,
        "memory_budget": memory_budget,
    }
    return Form("for", (count, *inits, *captures), attrs, (body,))


def while_loop(
    inits: Sequence[Value],
    cond: Graph,
    body: Graph,
    captures: Sequence[Value] = (),
    *,
    shared: Sequence[int] = (),
    max_steps: int | None = None,
    name: str | None = None,
    memory_budget: int | None = None,
    replaces: Node | None = None,
) -> tuple[Value, ...]:
    """Both graphs take (*carries, *captures); the lanes are the dims of the condition's result."""
    attrs = {
        "carries": len(inits),
        "lanes": len(cond.outputs[0].shape),
        "shared": tuple(shared),
        "max_steps": max_steps,
        "name": name,
        "memory_budget": memory_budget,
    }
    return emit("while", (*inits, *captures), attrs, (cond, body), replaces)


def switch(
    index: Value,
    branches: Sequence[Graph],
    operands: Sequence[Value] = (),
    *,
    shared: Sequence[int] = (),
    replaces: Node | None = None,
) -> tuple[Value, ...]:
    """Every branch takes all operands; the lanes are the dims of `index`."""
    attrs = {"lanes": len(index.shape), "shared": tuple(shared)}
    return emit("switch", (index, *operands), attrs, tuple(branches), replaces)


def call(
    operands: Sequence[Value],
    regions: Sequence[Graph],
    kind: str = "plain",
    *,
    arguments: int = 0,
    name: str | None = None,
    save: Sequence[str] = (),
    shared: Sequence[int] = (),
    replaces: Node | None = None,
    linear: bool = False,
) -> tuple[Value, ...]:
    """The function `regions[0]` of all operands. Where it has rules, the first `arguments` are what they are about.
    `linear`: in these the function is linear, which says what a vjp rule doesn't."""
    attrs = {
        "kind": kind,
        "arguments": arguments,
        "name": name,
        "save": tuple(save),
        "lanes": 0,
        "shared": tuple(shared),
    }
    if linear:
        attrs["linear"] = True
    return emit("call", operands, attrs, tuple(regions), replaces)


def routine(name: str, how: Mapping[str, object], operands: Sequence[Value], function: Function) -> tuple[Value, ...]:
    """What `function` emits of the operands, and of nothing else, in a call that a device with a routine of that name
    may have in its place (`codegen.schedule.attention`). `how`: what the routine's node has as attributes."""
    graph, captures = trace(function, [v.type for v in operands])
    assert not captures, "a routine knows its operands only"
    attrs = {"kind": "routine", "arguments": 0, "name": name, "save": (), "lanes": 0, "shared": ()}
    return emit("call", operands, {**attrs, "routine": tuple(sorted(how.items()))}, (graph,))


def tied(values: Sequence[Value], to: Sequence[Value] = (), replaces: Node | None = None) -> tuple[Value, ...]:
    """`values` as results of one node: a graph that has one of them also has what makes `to`."""
    inputs = tuple([Value(v.type) for v in (*values, *to)])
    return call((*values, *to), [Graph(inputs, (), inputs[: len(values)])], replaces=replaces)


def share_captures(traced: Sequence[Traced]) -> tuple[tuple[Graph, ...], tuple[Value, ...]]:
    """Graphs of equal arguments whose captures differ, given inputs for the union of the captures."""
    union = tuple(dict.fromkeys(v for _, captures in traced for v in captures))
    graphs = []
    for graph, captures in traced:
        if captures == union:
            graphs.append(graph)
            continue
        arguments = graph.inputs[: len(graph.inputs) - len(captures)]
        known = dict(zip(captures, graph.inputs[len(arguments) :], strict=True))
        inputs = [known.get(v) or Value(v.type) for v in union]  # unused ones belong to no scope
        graphs.append(Graph((*arguments, *inputs), graph.nodes, graph.outputs))
    return tuple(graphs), union


def traced_for(
    count: Value,
    inits: Sequence[Value],
    function: Function,
    *,
    shared: Sequence[int] = (),
    reverse: bool = False,
    name: str | None = None,
    memory_budget: int | None = None,
    replaces: Node | None = None,
) -> tuple[Value, ...]:
    """`for_loop` over what `function(k, *carries)` emits."""
    body, captures = trace(function, [count.type, *(v.type for v in inits)])
    return for_loop(
        count, inits, body, captures,
        shared=shared, reverse=reverse, name=name, memory_budget=memory_budget, replaces=replaces,
    )  # fmt: skip


def traced_while(
    inits: Sequence[Value],
    cond_function: Callable[..., Value],
    body_function: Function,
    *,
    shared: Sequence[int] = (),
    max_steps: int | None = None,
    name: str | None = None,
    memory_budget: int | None = None,
    replaces: Node | None = None,
) -> tuple[Value, ...]:
    """`while_loop` over what `cond_function(*carries)` and `body_function(*carries)` emit."""
    types = [v.type for v in inits]
    (cond, body), captures = share_captures(
        [trace(lambda *carries: (cond_function(*carries),), types), trace(body_function, types)]
    )
    return while_loop(
        inits, cond, body, captures,
        shared=shared, max_steps=max_steps, name=name, memory_budget=memory_budget, replaces=replaces,
    )  # fmt: skip


def traced_switch(
    index: Value,
    functions: Sequence[Function],
    operands: Sequence[Value] = (),
    *,
    shared: Sequence[int] = (),
    replaces: Node | None = None,
) -> tuple[Value, ...]:
    """`switch` over what each `function(*operands)` emits."""
    types = [v.type for v in operands]
    branches, captures = share_captures([trace(f, types) for f in functions])
    return switch(index, branches, (*operands, *captures), shared=shared, replaces=replaces)
