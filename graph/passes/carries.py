"""Carried values that needn't be carried.

Enters: a Graph. Leaves: a Graph in whose loops
  - a carry that every trip leaves as it is (its argument, or the constant or captured value it starts
    from) is a captured value, and its result the initial value;
  - a carry that nobody needs, neither outside nor for another carry or the condition, is gone; a stack
    that is pushed but never popped is one;
  - carries that start alike and stay alike are one;
and whose switches and calls don't return an operand that all branches return.

    %1, %2 = for(%n, %x, %y) {carries=2}            %1 = for(%n, %x, %y) {carries=1}
      body(%k, %c, %d)                      ->        body(%k, %c, %d)
        %3 = mul(%c, %d)                                %3 = mul(%c, %d)
        return %3, %d                                   return %3
    return %1, %2                                   return %1, %y
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loopgrad.graph.key import encode_attrs
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import cse, dce
from loopgrad.graph.rebuild import read_values, renewed, substituted
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import StackType


def run(graph: Graph) -> Graph:
    """`graph` with fewer carries, innermost loops first."""
    if not any(node.regions for node in graph.nodes):
        return graph
    read = read_values(graph)
    env: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple([env.get(v, v) for v in node.operands]) if env else node.operands
        current = renewed(node, operands, tuple([run(r) for r in node.regions]))
        results: Sequence[Value] = current.results
        if current.regions:
            region = Region.of(current)
            if isinstance(region, Loop):
                wanted = {j for j, v in enumerate(node.results) if v in read}
                current, results = _fewer_carries(_cut(region, wanted), wanted)
            elif region.optional:
                current, results = _passed_through(region)
        env.update([(old, new) for old, new in zip(node.results, results, strict=True) if old is not new])
        if current.results:  # a loop left with no carry would still count as a reader of what it captures
            nodes.append(current)
    if not env:
        return graph
    return Graph(graph.inputs, tuple(nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _fewer_carries(loop: Loop, wanted: Collection[int]) -> tuple[Node, list[Value]]:
    """The smaller loop, and what stands for each result of `loop` (an unread one may stand for itself)."""
    results = list(loop.node.results)
    origin = list(range(len(results)))  # carry of the current loop -> result of the first
    for find in (_constant_carries, _dead_carries, _twins):
        found = find(loop, {j for j, first in enumerate(origin) if first in wanted})
        if not found:
            continue
        smaller, kept = _without(loop, found)
        for j, first in enumerate(origin):
            if j not in found:
                results[first] = smaller.node.results[kept.index(j)]
        for j, twin in found.items():
            if isinstance(twin, int):
                results[origin[j]] = results[origin[twin]]
            elif twin is not None:
                results[origin[j]] = twin
        origin = [origin[j] for j in kept]
        loop = smaller
    return loop.node, results


# what becomes of a carry's argument and result: the Value (initial, becomes a capture), another carry, nothing
Fate = Value | int | None


def _without(loop: Loop, fates: dict[int, Fate]) -> tuple[Loop, list[int]]:
    """The loop without these carries, and the carries that remain."""
    kept = [j for j in range(loop.width) if j not in fates]
    captured = [j for j, fate in fates.items() if isinstance(fate, Value) and not isinstance(fate.type, StackType)]

    def rest(region: Graph, outputs: Sequence[Value]) -> Graph:
        lead, arguments, captures = loop.split(region.inputs)
        inputs = (*lead, *[arguments[j] for j in kept], *captures, *[arguments[j] for j in captured])
        twins = {arguments[j]: arguments[fate] for j, fate in fates.items() if isinstance(fate, int)}
        return dce.run(substituted(Graph(inputs, region.nodes, tuple(outputs)), twins))

    smaller = loop.rebuilt(
        inits=[loop.init(j) for j in kept],
        captures=[*loop.captures, *[loop.init(j) for j in captured]],
        condition=None if loop.condition is None else rest(loop.condition, loop.condition.outputs),
        body=rest(loop.body, [loop.body.outputs[j] for j in kept]),
        shared=[new for new, j in enumerate(kept) if j in loop.shared],
    )
    return Loop.of(smaller.node(loop.node.loc)), kept


def _constant_carries(loop: Loop, wanted: Collection[int]) -> dict[int, Fate]:
    """Carries that keep their initial value -> that value."""
    _, arguments, inside = loop.split(loop.body.inputs)
    captured = dict(zip(inside, loop.captures, strict=True))
    found: dict[int, Fate] = {}
    for j, (output, argument, init) in enumerate(zip(loop.body.outputs, arguments, loop.inits, strict=True)):
        if output is argument or captured.get(output) is init or _same_constant(output, init):
            found[j] = init
    # a while whose condition reads nothing else never ends once it runs: it must still reach its max_steps
    return {} if loop.condition is not None and _tested(loop, loop.condition) <= found.keys() else found


def _tested(loop: Loop, condition: Graph) -> set[int]:
    """The carries that the condition of a while reads."""
    read = _needed(condition, condition.outputs, inside=False)
    return {j for j, v in enumerate(loop.split(condition.inputs).carries) if v in read}


def _same_constant(a: Value, b: Value) -> bool:
    if a.node is None or b.node is None or a.node.op not in ("const", "literal") or a.node.op != b.node.op:
        return False
    return encode_attrs(a.node.attrs) == encode_attrs(b.node.attrs)


def _cut(loop: Loop, wanted: Collection[int]) -> Loop:
    """The loop, where a carry that only loops and switches in its body hand on to itself stays what it was, and where
    they no longer have it: an accumulator, say, whose sum nobody needs."""
    body = loop.body
    if not any(node.regions for node in body.nodes):
        return loop
    dead = set(_dead_carries(loop, wanted, inside=True)) - set(_dead_carries(loop, wanted))
    cut = [j for j in dead if not isinstance(body.outputs[j].type, StackType)]
    if not cut:
        return loop
    outputs = list(body.outputs)
    for j in cut:
        outputs[j] = loop.argument(j)
    shorter = run(dce.run(Graph(body.inputs, body.nodes, tuple(outputs))))
    return Loop.of(loop.rebuilt(body=shorter).node(loop.node.loc))


def _dead_carries(loop: Loop, wanted: Collection[int], inside: bool = False) -> dict[int, Fate]:
    """Carries that neither `wanted` results nor the condition depend on. `inside`: results of loops and switches in the
    body, too, depend on no more than they must."""
    live = _live(loop, wanted, inside)[0]
    return {j: None for j in range(loop.width) if j not in live}


def _live(loop: Loop, wanted: Collection[int], inside: bool) -> tuple[set[int], set[Value]]:
    """The carries that the wanted ones depend on, and what the body needs for them."""
    body = loop.body
    position = {v: j for j, v in enumerate(loop.split(body.inputs).carries)}
    live = set(wanted)
    if loop.condition is not None:
        live |= _tested(loop, loop.condition)
    while True:
        needed = _needed(body, [body.outputs[j] for j in live], inside)
        grown = live | {position[v] for v in needed if v in position}
        if grown == live:
            return live, needed
        live = grown


def _needed(graph: Graph, outputs: Sequence[Value], inside: bool) -> set[Value]:
    """Everything that `outputs` depend on."""
    needed = set(outputs)
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.results):
            needed.update(_read_for(node, needed) if inside and node.regions else node.operands)
    return needed


def _read_for(node: Node, needed: set[Value]) -> list[Value]:
    """The operands of a region node on which those of its results depend that are needed."""
    region = Region.of(node)
    wanted = [j for j, v in enumerate(node.results) if v in needed]
    read = list(region.always_read)
    if isinstance(region, Loop):
        live, inner = _live(region, wanted, inside=True)
        read += [region.init(j) for j in sorted(live)]
        if region.condition is not None:
            inner = inner | _needed(region.condition, region.condition.outputs, inside=True)
    else:
        inner = set[Value]().union(*[_needed(b, [b.outputs[j] for j in wanted], True) for b in region.bodies])
    captured = [i for i in region.captured if not inner.isdisjoint(region.inputs_of(i))]
    return [*read, *[node.operands[i] for i in captured]]


def _twins(loop: Loop, wanted: Collection[int]) -> dict[int, Fate]:
    """Carries that always equal an earlier one -> that one's position.

    Assume that all carries which start alike are alike; where the body then returns different values
    for two of them, the assumption was wrong for those, and the next round assumes less.
    """
    n, inits, shared = loop.width, loop.inits, loop.shared
    excluded = [j for j in range(n) if isinstance(inits[j].type, StackType) or j in shared]
    groups = _grouped([("own", j) if j in excluded else ("init", _label(inits[j])) for j in range(n)])
    while len(set(groups)) < n:
        arguments = loop.split(loop.body.inputs).carries
        merged = {arguments[j]: arguments[leader] for j, leader in enumerate(groups) if j != leader}
        outputs = cse.run(substituted(loop.body, merged)).outputs
        refined = _grouped([(leader, outputs[j]) for j, leader in enumerate(groups)])
        if refined == groups:
            return {j: leader for j, leader in enumerate(groups) if j != leader}
        groups = refined
    return {}


def _label(init: Value) -> object:
    if init.node is not None and init.node.op in ("const", "literal"):
        return encode_attrs(init.node.attrs)
    return init


def _grouped(labels: Sequence[object]) -> list[int]:
    """For each position the first position with the same label."""
    first_with: dict[object, int] = {}
    return [first_with.setdefault(label, j) for j, label in enumerate(labels)]


def _passed_through(switch: Region) -> tuple[Node, list[Value]]:
    """The switch or call without results that are the same operand in every branch, and what stands for each result."""
    node, results = switch.node, list(switch.node.results)
    for p, result in enumerate(node.results):
        sources = {_input_position(branch, branch.outputs[p]) for branch in switch.bodies}
        (source,) = sources if len(sources) == 1 else (None,)
        if source is not None and switch.arguments[source].type == result.type:
            results[p] = switch.arguments[source]
    if results == list(node.results):
        return node, results
    # a stack passed through must lose this use at once: it may be consumed only once
    smaller, kept = dce.shrunk(node, {v for v in node.results if v in results})
    for new, p in enumerate(kept):
        results[p] = smaller.results[new]
    return smaller, results


def _input_position(graph: Graph, value: Value) -> int | None:
    return next((i for i, v in enumerate(graph.inputs) if v is value), None)
