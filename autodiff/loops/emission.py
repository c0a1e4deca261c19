"""Emitting the two loops of a reverse pass: the augmented forward loop and the reverse loop.

Enter: a loop in normal form and the two parts of its joint body. Leave: nodes in the ambient scope. Each
saved value gets a stack of its own, beside the stacks of inner loops that are threaded through; their depth is
given where `loops.sizes` can tell it before the loop runs. Stacks of a loop that is itself inside a joint body
get none: that body's loop threads them and sizes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from loopgrad.autodiff.loops.counters import Counter
from loopgrad.autodiff.loops.normal import NormalLoop
from loopgrad.autodiff.loops.residuals import Chosen, ForwardPart, ReverseInputs, ReversePart, Threads
from loopgrad.autodiff.loops.saveable import is_marked, marked, stack_for, stack_like
from loopgrad.autodiff.loops.sizes import depth_of
from loopgrad.autodiff.pullback import Context
from loopgrad.graph import ops
from loopgrad.graph.accumulators import chain_from, value_uses
from loopgrad.graph.build import emit
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import tensor_type
from loopgrad.graph.region_ops import for_form
from loopgrad.graph.regions import Loop
from loopgrad.graph.signature import Signature
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


@dataclass(frozen=True, slots=True)
class AdjointCarry:
    """A cotangent or accumulator as the joint graph takes it and gives it back, where it starts, and whose cotangent it
    is in the end (`continues`: with what had accumulated before)."""

    before: Value
    after: Value
    init: Value
    target: Value
    continues: bool = False


@dataclass(slots=True)
class ReverseCarries:
    """What the reverse loop carries. `fixed` cotangents are handed on unchanged: joint input -> outer value."""

    carried: list[AdjointCarry] = field(default_factory=list)
    fixed: dict[Value, Value] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Value]:
        return [c.before for c in self.carried]

    @property
    def outputs(self) -> list[Value]:
        return [c.after for c in self.carried]

    @property
    def inits(self) -> list[Value]:
        return [c.init for c in self.carried]


# ---- forward


class AugmentedCarries(Signature):
    """What the augmented loop carries: the loop's own state, trips where they are counted, stacks of inner loops, and
    one for each saved value."""

    state: Sequence[Value]
    trips: Sequence[Value]
    threaded: Sequence[Value]
    pushed: Sequence[Value]


class AugmentedInputs(Signature):
    """What the body of the augmented loop takes: what is carried, between the index and the captures."""

    index: Sequence[Value]
    state: Sequence[Value]
    trips: Sequence[Value]
    threaded: Sequence[Value]
    pushed: Sequence[Value]
    captures: Sequence[Value]


def emit_augmented(
    loop: NormalLoop, part: ForwardPart, threads: Threads, values: Chosen, context: Context, anyway: bool
) -> Saving:
    """Emit the loop again with what it must save; nothing where a for saves nothing, unless `anyway`: the functions
    that it calls are here as their rules compute them."""
    saved = values.all
    own = [Value(StackType(tensor_type("push", v))) for v in saved]
    if loop.count is not None and not threads.made and not own and not anyway:
        return Saving(loop.count, (), ())
    trips = [] if loop.count is not None else [Value(_counter_type(loop, saved))]
    carries = AugmentedCarries(loop.split(loop.body.inputs).carries, trips, threads.made, own)
    body = _augmented_body(loop, part, carries)
    threaded, pushed = _depths(loop, body, carries, context.nested)
    stacks = [stack_like(v, d) for v, d in zip(threads.made, threaded, strict=True)]
    owner = loop.node.attrs["name"] or _CALLED[loop.node.op]
    stacks += [stack_for(v, d, owner) for v, d in zip(part.outputs.saved, pushed, strict=True)]
    starts = [*(ops.full(0, tensor_type("trips", v)) for v in trips), *stacks]
    form = loop.rebuilt(
        inits=(*loop.inits, *starts),
        condition=None if loop.condition is None else loop.taking(loop.condition, starts),
        body=body,
        shared=scatter_chains(body, loop.first, loop.shared, loop.within),
    )
    results = carries.split(emit(*form, loop.original))
    count = results.trips[0] if results.trips else loop.decider
    if any(map(is_marked, stacks)) and not (loop.count is not None and context.is_free(loop.count)):
        count = marked(count, "trips")  # what was saved in so many trips is read in as many
    pushed_for_reverse = results.pushed[: len(values.saved)]
    return Saving(count, results.threaded, pushed_for_reverse, () if starts else results.state[:1])


def _augmented_body(loop: Loop, part: ForwardPart, carries: AugmentedCarries) -> Graph:
    index, state, captures = loop.split(loop.body.inputs)

    def function(given: AugmentedInputs) -> Sequence[Value]:
        made = part.inlined((*given.index, *given.state, *given.captures), given.threaded)
        pushed = [ops.push(s, v) for s, v in zip(given.pushed, made.saved, strict=True)]
        return AugmentedCarries(made.primal, [ops.add(t, 1) for t in given.trips], made.filled, pushed).values

    inputs = AugmentedInputs(index, state, carries.trips, carries.threaded, carries.pushed, captures)
    return inputs.traced(function)


def _depths(
    loop: Loop, body: Graph, carries: AugmentedCarries, nested: bool
) -> tuple[list[Value | None], list[Value | None]]:
    """The depth of each stack of a for loop, threaded ones and own ones, which all get one value a trip."""
    threaded, own = len(carries.threaded), len(carries.pushed)
    if nested or loop.count is None:
        return [None] * threaded, [None] * own
    unread = [loop.count] * (threaded + own)  # stand for the stacks, which counting never reads
    augmented = Loop.of(loop.rebuilt(inits=(*loop.inits, *unread), body=body).node(loop.node.loc))
    found = [depth_of(augmented, augmented.position(loop.width + i)) for i in range(threaded + min(own, 1))]
    return found[:threaded], found[threaded:] * own


def _counter_type(loop: Loop, saved: Sequence[Value]) -> TensorType:
    """Trips of lanes that save something each time are counted in 32 bits, which loops of many lanes take half the time
    with: the targets refuse stacks with more rows. Loops inside may save nothing."""
    lanes = loop.lane_shape
    dtype: DType = int32 if lanes and saved else int64
    return TensorType(lanes, dtype)


# ---- reverse


class Emptied(Signature):
    """What the reverse loop carries: cotangents and accumulators, and the stacks."""

    adjoint: Sequence[Value]
    threaded: Sequence[Value]
    popped: Sequence[Value]


class ReverseBodyInputs(Signature):
    """What the body of the reverse loop takes: what is emptied, between the index and the captures."""

    index: Sequence[Value]
    adjoint: Sequence[Value]
    threaded: Sequence[Value]
    popped: Sequence[Value]
    captures: Sequence[Value]


def emit_reverse(
    loop: NormalLoop,
    part: ReversePart,
    carries: ReverseCarries,
    saving: Saving,
    outer: dict[Value, Value],
    counted: Mapping[Value, Counter],
    nested: bool,
) -> Sequence[Value]:
    """Emit the reverse loop and return the final values of `carries`. What the part reads from outside is the index of
    the trip, stands for a value of `outer`, or is a counter; counters come last."""
    part = part.taking(part.read)
    captures = [v for v in part.inputs.outside if v in outer]  # of a counter what it starts from
    reads_index = len(captures) < len(part.inputs.outside)
    starts = Emptied(carries.inits, saving.threaded, saving.pushed)

    def function(given: ReverseBodyInputs) -> Sequence[Value]:
        popped = [ops.pop(s) for s in given.popped]
        read = zip(captures, given.captures, strict=True)
        there = [counted[v].in_trip(given.index[0], value) if v in counted else value for v, value in read]
        outside = (*(given.index if reads_index else ()), *there)
        made = part.inlined(ReverseInputs(outside, given.adjoint, [v for _, v in popped], given.threaded))
        return Emptied(made.adjoint, made.emptied, [s for s, _ in popped]).values

    given = ReverseBodyInputs([saving.count], carries.inputs, saving.threaded, saving.pushed, captures)
    body = given.traced(function)
    form = for_form(
        saving.count, starts.values, body, [outer[v] for v in captures],
        shared=scatter_chains(body, 1, range(len(carries.carried)), loop.within),
        reverse=not loop.node.attrs.get("reverse", False),
        name=loop.node.attrs["name"],
    )  # fmt: skip
    reverse = Loop.of(form.node(loop.node.loc))
    if not nested:
        depths = [depth_of(reverse, reverse.position(j)) if _is_new(v) else None for j, v in enumerate(reverse.inits)]
        form = reverse.rebuilt(inits=[_sized(v, depth) for v, depth in zip(reverse.inits, depths, strict=True)])
    return starts.split(emit(*form)).adjoint


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
