"""Emitting the two loops of a reverse pass: the augmented forward loop and the reverse loop.

Enter: a loop in normal form and the two parts of its joint body. Leave: nodes in the ambient scope. Each
saved value gets a stack of its own, beside the stacks of inner loops that are threaded through; their depth is
given where `loops.sizes` can tell it before the loop runs. Stacks of a loop that is itself inside a joint body
get none: that body's loop threads them and sizes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from loopgrad.autodiff.loops.normal import Loop, with_inputs, without_inputs
from loopgrad.autodiff.loops.residuals import Threads, stack_type
from loopgrad.autodiff.loops.sizes import loop_depth
from loopgrad.graph import ops
from loopgrad.graph.accumulators import chain_from, value_uses
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.region_ops import for_loop
from loopgrad.graph.regions import lane_shape
from loopgrad.graph.types import DType, StackType, TensorType, int32, int64

_CALLED: Final = {"for": "fori_loop", "while": "while_loop"}  # what the user called


@dataclass(frozen=True, slots=True)
class Saving:
    """What the forward run leaves for the reverse run: its trip count, threaded stacks, own stacks."""

    count: Value
    threaded: tuple[Value, ...]
    pushed: tuple[Value, ...]


@dataclass(slots=True)
class ReverseCarries:
    """What the reverse loop carries, as equally long lists: a cotangent or accumulator as the joint graph
    takes it and gives it back, where it starts, and whose cotangent it is in the end (`continues`: with what
    had accumulated before). `fixed` cotangents are handed on unchanged: joint input -> outer value."""

    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    inits: list[Value] = field(default_factory=list)
    targets: list[Value] = field(default_factory=list)
    continues: list[bool] = field(default_factory=list)
    fixed: dict[Value, Value] = field(default_factory=dict)

    def carry(self, before: Value, after: Value, init: Value, target: Value, continues: bool = False) -> None:
        self.inputs.append(before)
        self.outputs.append(after)
        self.inits.append(init)
        self.targets.append(target)
        self.continues.append(continues)


# ---- forward


def emit_augmented(loop: Loop, part: Graph, threads: Threads, saved: Sequence[Value], nested: bool) -> Saving:
    """Emit the loop again with what it must save; nothing where a for saves nothing."""
    node, n = loop.node, loop.carries
    elements = [*(stack_type(v) for v in threads.made), *(StackType(tensor_type("push", v)) for v in saved)]
    if node.op == "for" and not elements:
        return Saving(node.operands[0], (), ())
    counter = [] if node.op == "for" else [_counter_type(loop, saved)]
    body = _augmented_body(loop, part, len(threads.made), counter, elements)
    depths = [None] * len(elements) if nested else _depths(loop, body, len(threads.made), len(saved))
    names = [*(_name(v) for v in threads.made), *(_origin(node, v) for v in saved)]
    stacks = [ops.stack_new(t.element, d, name) for t, d, name in zip(elements, depths, names, strict=True)]
    extra_inits = [*(ops.full(0, t) for t in counter), *stacks]
    regions = (*[with_inputs(r, n, extra_inits) for r in loop.normal.regions[:-1]], body)
    operands = (*node.operands[: loop.first], *loop.inits, *extra_inits, *loop.captures)
    shared = scatter_chains(body, loop.first, node.attrs["shared"], loop.lanes)
    attrs = {**node.attrs, "carries": n + len(extra_inits), "shared": shared}
    results = emit(node.op, operands, attrs, regions, node)[n:]
    count = results[0] if counter else node.operands[0]
    filled = results[len(counter) :]
    return Saving(count, filled[: len(threads.made)], filled[len(threads.made) :])


def _depths(loop: Loop, body: Graph, threaded: int, own: int) -> list[Value | None]:
    """The depth of each stack of a for loop, threaded ones first; the own ones all get one value a trip."""
    node = loop.node
    if node.op != "for":
        return [None] * (threaded + own)
    unread = [node.operands[0]] * (threaded + own)  # stand for the stacks, which counting never reads
    inits = [*loop.inits, *unread]

    def depth(stack: int) -> Value | None:
        return loop_depth(node.operands[0], body, inits, loop.captures, loop.carries + stack)

    found = [depth(i) for i in range(threaded)]
    return [*found, *([depth(threaded)] * own if own else [])]


def _counter_type(loop: Loop, saved: Sequence[Value]) -> TensorType:
    """Trips of lanes that save something each time are counted in 32 bits, which loops of many lanes take half the time
    with: the targets refuse stacks with more rows. Loops inside may save nothing."""
    lanes = lane_shape(loop.node)
    dtype: DType = int32 if lanes and saved else int64
    return TensorType(lanes, dtype)


def _augmented_body(
    loop: Loop, part: Graph, threaded: int, counter: Sequence[TensorType], elements: Sequence[StackType | TensorType]
) -> Graph:
    own, n = loop.first + loop.carries, loop.carries
    types = [*loop.body.input_types[:own], *counter, *elements, *loop.body.input_types[own:]]

    def function(*arguments: Value) -> list[Value]:
        trips = arguments[own : own + len(counter)]
        stacks = arguments[own + len(counter) : own + len(counter) + len(elements)]
        captures = arguments[own + len(counter) + len(elements) :]
        outputs = inline(part, (*arguments[:own], *captures, *stacks[:threaded]))
        values = outputs[n + threaded :]
        pushed = [ops.push(s, v) for s, v in zip(stacks[threaded:], values, strict=True)]
        return [*outputs[:n], *(ops.add(t, 1) for t in trips), *outputs[n : n + threaded], *pushed]

    return trace(function, types)[0]


def _name(stack: Value) -> str | None:
    return None if stack.node is None else stack.node.attrs["name"]


def _origin(loop: Node, value: Value) -> str:
    """The loop and what it saves, for the plan and for error messages, which name the loop alone."""
    return stack_name(loop, "carry" if value.node is None else value.node.op)


def stack_name(loop: Node, saved: str) -> str:
    """The user's name of the loop, else that of the function that makes one, a slash, and what is saved."""
    name: str = loop.attrs["name"] or _CALLED[loop.op]
    return f"{name}/{saved}"


# ---- reverse


def emit_reverse(
    loop: Loop, part: Graph, carries: ReverseCarries, saving: Saving, saved: int, outer: dict[Value, Value],
    nested: bool,
) -> tuple[Value, ...]:  # fmt: skip
    """Emit the reverse loop and return the final values of `carries`. The part's inputs are: what comes from
    `outer`, the carries, the saved values, the threaded stacks."""
    c, stacks = len(carries.inputs), (*saving.threaded, *saving.pushed)
    outside = len(part.inputs) - c - saved - len(saving.threaded)
    read = read_values(part)
    pruned = without_inputs(part, {i for i, v in enumerate(part.inputs[:outside]) if v not in read})
    has_index = loop.first == 1 and part.inputs[0] in read
    captures = [v for v in part.inputs[loop.first : outside] if v in read]
    types = [saving.count.type, *(v.type for v in (*carries.inputs, *stacks, *captures))]

    def function(k: Value, *arguments: Value) -> list[Value]:
        adjoint, rest = arguments[:c], arguments[c:]
        threaded, own = rest[: len(saving.threaded)], rest[len(saving.threaded) : len(stacks)]
        popped = [ops.pop(s) for s in own]
        given = ((k,) if has_index else ()) + rest[len(stacks) :]
        outputs = inline(pruned, (*given, *adjoint, *(v for _, v in popped), *threaded))
        return [*outputs, *(s for s, _ in popped)]

    body, _ = trace(function, types)
    given = [outer[v] for v in captures]
    inits = [*carries.inits, *stacks]
    if not nested:
        inits = [_sized(v, loop_depth(saving.count, body, inits, given, p)) if _is_new(v) else v
                 for p, v in enumerate(inits)]  # fmt: skip
    results = for_loop(
        saving.count, inits, body, given,
        shared=scatter_chains(body, 1, range(c), loop.lanes),
        reverse=not loop.node.attrs.get("reverse", False),
        name=loop.node.attrs["name"],
    )  # fmt: skip
    return results[:c]


def _is_new(value: Value) -> bool:
    """Whether this is a stack of cotangents that nobody has pushed on."""
    return isinstance(value.type, StackType) and value.node is not None and value.node.op == "stack_new"


def _sized(stack: Value, depth: Value | None) -> Value:
    return stack if depth is None else ops.stack_new(stack_type(stack).element, depth, _name(stack))


def may_scatter(graph: Graph) -> bool:
    """Whether looking for chains of scatters is worth the while."""
    return any(node.op == "scatter" or node.regions for node in graph.nodes)


def scatter_chains(body: Graph, first: int, carries: Iterable[int], lanes: tuple[int, ...]) -> tuple[int, ...]:
    """Those of `carries` that the body only scatters into, each lane at positions that it chooses; they are its
    inputs from `first` on."""
    if not may_scatter(body):
        return ()
    uses = value_uses(body)
    chains = [(j, chain_from(body, first + j, uses)) for j in carries]
    return tuple([j for j, c in chains if c is not None and c.scatters > 0 and c.output == j and c.over(lanes)])
