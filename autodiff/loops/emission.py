"""Emitting the two loops of a reverse pass: the augmented forward loop and the reverse loop.

Enter: a loop in normal form and the two parts of its joint body. Leave: nodes in the ambient scope. Each
saved value gets a stack of its own, beside the stacks of inner loops that are threaded through; their depth is
given where `loops.sizes` can tell it before the loop runs. Stacks of a loop that is itself inside a joint body
get none: that body's loop threads them and sizes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from loopgrad.autodiff.loops.kept import Names, is_kept, marked, stack_like
from loopgrad.autodiff.loops.normal import NormalLoop, without_inputs
from loopgrad.autodiff.loops.residuals import Threads
from loopgrad.autodiff.loops.sizes import depth_of
from loopgrad.graph import ops
from loopgrad.graph.accumulators import chain_from, value_uses
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.rebuild import read_values
from loopgrad.graph.region_ops import for_form
from loopgrad.graph.regions import Loop, in_parts
from loopgrad.graph.stacks import stack_type
from loopgrad.graph.types import DType, StackType, TensorType, int32, int64

_CALLED: Final = {"for": "fori_loop", "while": "while_loop"}  # what the user called


@dataclass(frozen=True, slots=True)
class Saving:
    """What the forward run leaves for the reverse run: its trip count, threaded stacks, own stacks. `anchor`: a result
    of the run where it leaves nothing else, and must stand for the original nonetheless."""

    count: Value
    threaded: Sequence[Value]
    pushed: Sequence[Value]
    anchor: Sequence[Value] = ()


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


def emit_augmented(
    loop: NormalLoop, part: Graph, threads: Threads, saved: Sequence[Value], nested: bool, anyway: bool,
    kept: Names = MappingProxyType({}),
) -> Saving:  # fmt: skip
    """Emit the loop again with what it must save; nothing where a for saves nothing, unless `anyway`: the functions
    that it calls are here as their rules compute them. `kept`: those of `saved` that a policy keeps, with names."""
    made = [stack_type(v) for v in threads.made]
    own = [StackType(tensor_type("push", v)) for v in saved]
    if loop.count is not None and not made and not own and not anyway:
        return Saving(loop.count, (), ())
    counter = [] if loop.count is not None else [_counter_type(loop, saved)]
    body = _augmented_body(loop, part, counter, made, own)
    depths = [None] * (len(made) + len(own)) if nested else _depths(loop, body, len(made), len(own))
    stacks = [stack_like(v, d) for v, d in zip(threads.made, depths, strict=False)]
    for v, t, d in zip(saved, own, depths[len(made) :], strict=True):
        stacks.append(ops.stack_new(t.element, d, _origin(loop.node, v, kept.get(v)), kept=v in kept))
    starts = [*(ops.full(0, t) for t in counter), *stacks]
    form = loop.rebuilt(
        inits=(*loop.inits, *starts),
        condition=None if loop.condition is None else loop.taking(loop.condition, starts),
        body=body,
        shared=scatter_chains(body, loop.first, loop.shared, loop.within),
    )
    results = emit(*form, loop.original)
    _, trips, threaded, pushed = in_parts(results, loop.width, len(counter), len(made), len(own))
    count = trips[0] if counter else loop.decider
    if counter and any(is_kept(v) for v in stacks):
        count = marked(count, None)  # what was kept in so many trips is read in as many
    return Saving(count, threaded, pushed, () if starts else results[:1])


def _depths(loop: Loop, body: Graph, threaded: int, own: int) -> list[Value | None]:
    """The depth of each stack of a for loop, threaded ones first; the own ones all get one value a trip."""
    if loop.count is None:
        return [None] * (threaded + own)
    unread = [loop.count] * (threaded + own)  # stand for the stacks, which counting never reads
    augmented = Loop.of(loop.rebuilt(inits=(*loop.inits, *unread), body=body).node(loop.node.loc))
    found = [depth_of(augmented, augmented.position(loop.width + i)) for i in range(threaded + min(own, 1))]
    return [*found[:threaded], *found[threaded:] * own]


def _counter_type(loop: Loop, saved: Sequence[Value]) -> TensorType:
    """Trips of lanes that save something each time are counted in 32 bits, which loops of many lanes take half the time
    with: the targets refuse stacks with more rows. Loops inside may save nothing."""
    lanes = loop.lane_shape
    dtype: DType = int32 if lanes and saved else int64
    return TensorType(lanes, dtype)


def _augmented_body(
    loop: Loop, part: Graph, counter: Sequence[TensorType], made: Sequence[StackType], own: Sequence[StackType]
) -> Graph:
    lead, carries, captured = loop.split(loop.body.input_types)
    segments = (lead, carries, counter, made, own, captured)

    def function(*arguments: Value) -> list[Value]:
        index, state, trips, empty, stacks, captures = in_parts(arguments, *map(len, segments))
        outputs = inline(part, (*index, *state, *captures, *empty))
        following, filled, values = in_parts(outputs, loop.width, len(made), len(own))
        pushed = [ops.push(s, v) for s, v in zip(stacks, values, strict=True)]
        return [*following, *(ops.add(t, 1) for t in trips), *filled, *pushed]

    return trace(function, [type for segment in segments for type in segment])[0]


def _origin(loop: Node, value: Value, name: str | None) -> str:
    """The loop and what it saves, for the plan and for error messages, which name the loop alone."""
    return stack_name(loop, name or ("carry" if value.node is None else value.node.op))


def stack_name(loop: Node, saved: str) -> str:
    """The user's name of the loop, else that of the function that makes one, a slash, and what is saved."""
    name: str = loop.attrs["name"] or _CALLED[loop.op]
    return f"{name}/{saved}"


# ---- reverse


def emit_reverse(
    loop: NormalLoop, part: Graph, carries: ReverseCarries, saving: Saving, outer: dict[Value, Value], nested: bool
) -> tuple[Value, ...]:
    """Emit the reverse loop and return the final values of `carries`. The part's inputs are: what comes from
    `outer`, the carries, the saved values, the threaded stacks."""
    c, stacks = len(carries.inputs), (*saving.threaded, *saving.pushed)
    outside = part.inputs[: len(part.inputs) - c - len(stacks)]
    read = read_values(part)
    pruned = without_inputs(part, {i for i, v in enumerate(outside) if v not in read})
    has_index = loop.first == 1 and outside[0] in read
    captures = [v for v in outside[loop.first :] if v in read]
    segments = ([saving.count], carries.inputs, saving.threaded, saving.pushed, captures)

    def function(*arguments: Value) -> list[Value]:
        index, adjoint, threaded, own, given = in_parts(arguments, *map(len, segments))
        popped = [ops.pop(s) for s in own]
        outputs = inline(pruned, (*(index if has_index else ()), *given, *adjoint, *(v for _, v in popped), *threaded))
        return [*outputs, *(s for s, _ in popped)]

    body, _ = trace(function, [v.type for segment in segments for v in segment])
    form = for_form(
        saving.count, (*carries.inits, *stacks), body, [outer[v] for v in captures],
        shared=scatter_chains(body, 1, range(c), loop.within),
        reverse=not loop.node.attrs.get("reverse", False),
        name=loop.node.attrs["name"],
    )  # fmt: skip
    reverse = Loop.of(form.node(loop.node.loc))
    if not nested:
        depths = [depth_of(reverse, reverse.position(j)) if _is_new(v) else None for j, v in enumerate(reverse.inits)]
        form = reverse.rebuilt(inits=[_sized(v, depth) for v, depth in zip(reverse.inits, depths, strict=True)])
    return emit(*form)[:c]


def _is_new(value: Value) -> bool:
    """Whether this is a stack of cotangents that nobody has pushed on."""
    return isinstance(value.type, StackType) and value.node is not None and value.node.op == "stack_new"


def _sized(stack: Value, depth: Value | None) -> Value:
    return stack if depth is None else stack_like(stack, depth)


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
