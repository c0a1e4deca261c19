"""Carried values that needn't be carried.

Enters: a Graph. Leaves: a Graph in whose loops
  - a carry that every trip leaves as it is (its argument, or the constant or captured value it starts
    from) is a captured value, and its result the initial value;
  - a carry that nobody needs, neither outside nor for another carry or the condition, is gone; a stack
    that is pushed but never popped is one;
  - carries that start alike and stay alike are one;
and whose switches don't return an operand that all branches return.

    %1, %2 = for(%n, %x, %y) {carries=2}            %1 = for(%n, %x, %y) {carries=1}
      body(%k, %c, %d)                      ->        body(%k, %c, %d)
        %3 = mul(%c, %d)                                %3 = mul(%c, %d)
        return %3, %d                                   return %3
    return %1, %2                                   return %1, %y
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from loopgrad.graph.accumulators import first_carry
from loopgrad.graph.key import encode_attrs
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import cse, dce
from loopgrad.graph.rebuild import first_capture, read_values, renewed, substituted
from loopgrad.graph.types import StackType


def run(graph: Graph) -> Graph:
    """`graph` with fewer carries, innermost loops first."""
    read = read_values(graph)
    env: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = tuple([env.get(v, v) for v in node.operands]) if env else node.operands
        current = renewed(node, operands, tuple([run(r) for r in node.regions]))
        results: Sequence[Value] = current.results
        if current.op in ("for", "while"):
            wanted = {j for j, v in enumerate(node.results) if v in read}
            current, results = _fewer_carries(_cut(current, wanted), wanted)
        elif current.op == "switch":
            current, results = _passed_through(current)
        env.update([(old, new) for old, new in zip(node.results, results, strict=True) if old is not new])
        if current.results:  # a loop left with no carry would still count as a reader of what it captures
            nodes.append(current)
    if not env:
        return graph
    return Graph(graph.inputs, tuple(nodes), tuple([env.get(v, v) for v in graph.outputs]))


def _fewer_carries(loop: Node, wanted: Collection[int]) -> tuple[Node, list[Value]]:
    """The smaller loop, and what stands for each result of `loop` (an unread one may stand for itself)."""
    results = list(loop.results)
    origin = list(range(len(results)))  # carry of the current loop -> result of the first
    for find in (_constant_carries, _dead_carries, _twins):
        found = find(loop, {j for j, first in enumerate(origin) if first in wanted})
        if not found:
            continue
        smaller, kept = _without(loop, found)
        for j, first in enumerate(origin):
            if j not in found:
                results[first] = smaller.results[kept.index(j)]
        for j, twin in found.items():
            if isinstance(twin, int):
                results[origin[j]] = results[origin[twin]]
            elif twin is not None:
                results[origin[j]] = twin
        origin = [origin[j] for j in kept]
        loop = smaller
    return loop, results


# what becomes of a carry's argument and result: the Value (initial, becomes a capture), another carry, nothing
Fate = Value | int | None


def _without(loop: Node, fates: dict[int, Fate]) -> tuple[Node, list[int]]:
    """The loop without these carries, and the carries that remain."""
    first, start = first_carry(loop), first_capture(loop)
    kept = [j for j in range(loop.attrs["carries"]) if j not in fates]
    captured = [j for j, fate in fates.items() if isinstance(fate, Value) and not isinstance(fate.type, StackType)]
    regions = []
    for region in loop.regions:
        argument = [region.inputs[first + j] for j in range(loop.attrs["carries"])]
        inputs = (
            *region.inputs[:first],
            *[argument[j] for j in kept],
            *region.inputs[start:],
            *[argument[j] for j in captured],
        )
        twins = {argument[j]: argument[fate] for j, fate in fates.items() if isinstance(fate, int)}
        outputs = region.outputs
        if region is loop.regions[-1]:
            outputs = tuple([region.outputs[j] for j in kept])
        regions.append(dce.run(substituted(Graph(inputs, region.nodes, outputs), twins)))
    inits = loop.operands[first:start]
    operands = (
        *loop.operands[:first],
        *[inits[j] for j in kept],
        *loop.operands[start:],
        *[inits[j] for j in captured],
    )
    attrs = {
        **loop.attrs,
        "carries": len(kept),
        "shared": tuple([new for new, j in enumerate(kept) if j in loop.attrs["shared"]]),
    }
    types = tuple([loop.results[j].type for j in kept])
    return Node(loop.op, operands, types, attrs, tuple(regions), loop.loc), kept


def _constant_carries(loop: Node, wanted: Collection[int]) -> dict[int, Fate]:
    """Carries that keep their initial value -> that value."""
    first, start = first_carry(loop), first_capture(loop)
    body = loop.regions[-1]
    captured = dict(zip(body.inputs[start:], loop.operands[start:], strict=True))
    found: dict[int, Fate] = {}
    for j, output in enumerate(body.outputs):
        init = loop.operands[first + j]
        if output is body.inputs[first + j] or captured.get(output) is init or _same_constant(output, init):
            found[j] = init
    # a while whose condition reads nothing else never ends once it runs: it must still reach its max_steps
    return {} if loop.op == "while" and _tested(loop) <= found.keys() else found


def _tested(loop: Node) -> set[int]:
    """The carries that the condition of a while reads."""
    condition = loop.regions[0]
    read = _needed(condition, condition.outputs, inside=False)
    return {j for j in range(loop.attrs["carries"]) if condition.inputs[j] in read}


def _same_constant(a: Value, b: Value) -> bool:
    if a.node is None or b.node is None or a.node.op not in ("const", "literal") or a.node.op != b.node.op:
        return False
    return encode_attrs(a.node.attrs) == encode_attrs(b.node.attrs)


def _cut(loop: Node, wanted: Collection[int]) -> Node:
    """The loop, where a carry that only loops and switches in its body hand on to itself stays what it was, and where
    they no longer have it: an accumulator, say, whose sum nobody needs."""
    body, first = loop.regions[-1], first_carry(loop)
    if not any(node.regions for node in body.nodes):
        return loop
    dead = set(_dead_carries(loop, wanted, inside=True)) - set(_dead_carries(loop, wanted))
    cut = {first + j: j for j in dead if not isinstance(body.outputs[j].type, StackType)}
    if not cut:
        return loop
    outputs = list(body.outputs)
    for position, j in cut.items():
        outputs[j] = body.inputs[position]
    shorter = run(dce.run(Graph(body.inputs, body.nodes, tuple(outputs))))
    return renewed(loop, loop.operands, (*loop.regions[:-1], shorter))


def _dead_carries(loop: Node, wanted: Collection[int], inside: bool = False) -> dict[int, Fate]:
    """Carries that neither `wanted` results nor the condition depend on. `inside`: results of loops and switches in the
    body, too, depend on no more than they must."""
    body = loop.regions[-1]
    live = _live(loop, wanted, inside)[0]
    return {j: None for j in range(len(body.outputs)) if j not in live}


def _live(loop: Node, wanted: Collection[int], inside: bool) -> tuple[set[int], set[Value]]:
    """The carries that the wanted ones depend on, and what the body needs for them."""
    first = first_carry(loop)
    body = loop.regions[-1]
    position = {v: j for j, v in enumerate(body.inputs[first : first + loop.attrs["carries"]])}
    live = set(wanted)
    if loop.op == "while":
        live |= _tested(loop)
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
    return _read_for_switch(node, needed) if node.op == "switch" else _read_for_loop(node, needed)


def _read_for_switch(switch: Node, needed: set[Value]) -> list[Value]:
    wanted = [p for p, v in enumerate(switch.results) if v in needed]
    inner = [_needed(branch, [branch.outputs[p] for p in wanted], inside=True) for branch in switch.regions]
    read = [
        v
        for i, v in enumerate(switch.operands[1:])
        if any(branch.inputs[i] in found for branch, found in zip(switch.regions, inner, strict=True))
    ]
    return [switch.operands[0], *read]


def _read_for_loop(loop: Node, needed: set[Value]) -> list[Value]:
    first, start = first_carry(loop), first_capture(loop)
    live, inner = _live(loop, {j for j, v in enumerate(loop.results) if v in needed}, inside=True)
    inner = inner | {v for condition in loop.regions[:-1] for v in _needed(condition, condition.outputs, inside=True)}
    inits = [loop.operands[first + j] for j in sorted(live)]
    captures = [
        v for i, v in enumerate(loop.operands) if i >= start and any(r.inputs[i] in inner for r in loop.regions)
    ]
    return [*loop.operands[:first], *inits, *captures]


def _twins(loop: Node, wanted: Collection[int]) -> dict[int, Fate]:
    """Carries that always equal an earlier one -> that one's position.

    Assume that all carries which start alike are alike; where the body then returns different values
    for two of them, the assumption was wrong for those, and the next round assumes less.
    """
    first, n, shared = first_carry(loop), loop.attrs["carries"], loop.attrs["shared"]
    inits = loop.operands[first : first + n]
    excluded = [j for j in range(n) if isinstance(inits[j].type, StackType) or j in shared]
    groups = _grouped([("own", j) if j in excluded else ("init", _label(inits[j])) for j in range(n)])
    while len(set(groups)) < n:
        body = loop.regions[-1]
        arguments = body.inputs[first : first + n]
        merged = {arguments[j]: arguments[leader] for j, leader in enumerate(groups) if j != leader}
        outputs = cse.run(substituted(body, merged)).outputs
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


def _passed_through(switch: Node) -> tuple[Node, list[Value]]:
    """The switch without results that are the same operand in every branch, and what stands for each result."""
    results = list(switch.results)
    for p, result in enumerate(switch.results):
        sources = {_input_position(branch, branch.outputs[p]) for branch in switch.regions}
        (source,) = sources if len(sources) == 1 else (None,)
        if source is not None and switch.operands[1 + source].type == result.type:
            results[p] = switch.operands[1 + source]
    if results == list(switch.results):
        return switch, results
    # a stack passed through must lose this use at once: it may be consumed only once
    smaller, kept = dce.shrunk(switch, {v for v in switch.results if v in results})
    for new, p in enumerate(kept):
        results[p] = smaller.results[new]
    return smaller, results


def _input_position(graph: Graph, value: Value) -> int | None:
    return next((i for i, v in enumerate(graph.inputs) if v is value), None)
