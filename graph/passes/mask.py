"""Lane loops and lane switches as uniform ones, with masks.

Enters: a Graph. Leaves: a Graph in which lane loops and switches that can't run one lane at a time (some
operation in them looks at other lanes) are loops over whole tensors, in masked lockstep, just as the
interpreter runs them:

    %1 = for(%n: int64[4], %x) {lanes=1}            %m = reduce_max(%n)
      body(%k: int64[4], %c)                        %1 = for(%m, %x, %n) {lanes=0}
        %2 = reduce_sum(%c)                           body(%j: int64[], %c, %count)
        %3 = broadcast(%2)                  ->          %k = broadcast(%j)
        return %3                                       %active = lt(%k, %count)
                                                        %2 = reduce_sum(%c);  %3 = broadcast(%2)
                                                        %4 = select(%active, %3, %c)
                                                        return %4

  - `for` runs to the largest count; `while` carries which lanes are active and runs while any is;
  - carries change in active lanes only; stacks are pushed and popped whole; scatters into shared
    accumulators get index -1 in inactive lanes, which drops the update;
  - loops inside run no longer than the active lanes need: counts become 0 and conditions False elsewhere;
  - every branch of a switch is computed and the results selected; a branch with loops or stacks in it
    only runs if some active lane chose it.

Nodes that are local stay as they are. Loops inside what was rewritten are judged by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopgrad.graph.lanes import lane_report
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.mask_region import Mask, chosen_lanes, under_mask
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.regions import Loop, Region, Switch, in_parts
from loopgrad.graph.types import StackType, TensorType, bool_


def crosses_lanes(node: Node) -> bool:
    """Whether a lane loop or switch can't run one lane at a time."""
    return not lane_report(node, Region.of(node).decider.shape).local


def run(graph: Graph, wanted: Callable[[Node], bool] = crosses_lanes, apart: bool = False) -> Graph:
    """`graph` with the lane loops and switches that are `wanted` in uniform, masked form. `apart`: what lanes push
    while they aren't active has no derivative."""
    return _Masker(wanted, apart).graph(graph)


class _Masker:
    def __init__(self, wanted: Callable[[Node], bool], apart: bool) -> None:
        self.wanted = wanted
        self.apart = apart

    def graph(self, graph: Graph) -> Graph:
        builder = GraphBuilder()
        env: dict[Value, Value] = {v: v for v in graph.inputs}
        for node in graph.nodes:
            operands = [env[v] for v in node.operands]
            builder.loc = node.loc
            env.update(zip(node.results, self.node(node, operands, builder), strict=True))
        return Graph(graph.inputs, tuple(builder.nodes), tuple([env[v] for v in graph.outputs]))

    def node(self, node: Node, operands: Sequence[Value], builder: GraphBuilder) -> Sequence[Value]:
        if not node.regions:
            return builder.emit(node.op, operands, node.attrs)
        region = Region.of(node)
        if not region.lanes:
            return builder.emit(node.op, operands, node.attrs, tuple([self.graph(r) for r in node.regions]))
        if not self.wanted(node):
            return builder.emit(node.op, operands, node.attrs, node.regions)
        if isinstance(region, Switch):
            return self.masked_switch(region, operands, builder)
        loop = Loop.of(node)
        if loop.condition is None:
            return self.masked_for(loop, operands, builder)
        return self.masked_while(loop, loop.condition, operands, builder)

    def masked_for(self, loop: Loop, operands: Sequence[Value], builder: GraphBuilder) -> Sequence[Value]:
        (count,), inits, captures = loop.split(operands)
        scalar = TensorType((), count.dtype)
        axes = tuple(range(len(count.shape)))
        empty = 0 in count.shape
        trips = builder.const(0, scalar) if empty else builder.value("reduce_max", count, axes=axes)

        inner = GraphBuilder()
        inner.loc = loop.node.loc
        index, lanes = Value(scalar), Value(count.type)
        arguments = [Value(v.type) for v in (*inits, *captures)]
        k = inner.splat(index, count.shape)
        active = Mask(inner.value("lt", k, lanes))
        outputs = under_mask(inner, loop.body, [k, *arguments], [active], loop.accumulators, self.apart)
        carries = merged(inner, loop, active, arguments, outputs)
        body = self.graph(Graph((index, *arguments, lanes), tuple(inner.nodes), tuple(carries)))
        form = loop.rebuilt(count=trips, inits=inits, captures=(*captures, count), body=body, lanes=0, shared=())
        return builder.emit(*form)

    def masked_while(
        self, loop: Loop, cond: Graph, operands: Sequence[Value], builder: GraphBuilder
    ) -> Sequence[Value]:
        _, inits, outer = loop.split(operands)
        mask_type = loop.decider.type
        (started,) = under_mask(builder, cond, operands, [], (), self.apart)

        n = loop.width
        tested = [Value(v.type) for v in (*inits, started, *outer)]
        test = GraphBuilder()
        any_active = test.value("reduce_or", tested[n], axes=tuple(range(len(loop.decider.shape))))
        condition = Graph(tuple(tested), tuple(test.nodes), (any_active,))

        inner = GraphBuilder()
        inner.loc = loop.node.loc
        carries, captures = [Value(v.type) for v in inits], [Value(v.type) for v in outer]
        alive = Value(mask_type)
        active = Mask(alive)
        outputs = under_mask(inner, loop.body, [*carries, *captures], [active], loop.accumulators, self.apart)
        after = merged(inner, loop, active, carries, outputs)
        (holds,) = under_mask(inner, cond, [*after, *captures], [active], (), self.apart)
        still = inner.value("and", alive, holds)
        stepped = self.graph(Graph((*carries, alive, *captures), tuple(inner.nodes), (*after, still)))
        form = loop.rebuilt(
            inits=(*inits, started), captures=outer, condition=condition, body=stepped, lanes=0, shared=()
        )
        return builder.emit(*form)[:n]

    def masked_switch(self, switch: Switch, operands: Sequence[Value], builder: GraphBuilder) -> Sequence[Value]:
        lead, inputs = in_parts(operands, switch.first, len(operands) - switch.first)
        state = _Branches(switch, list(inputs))
        for number, branch in enumerate(switch.branches):
            active = Mask(chosen_lanes(builder, lead[0], number, len(switch.branches)))
            if _is_heavy(branch):
                state.begin(builder)
                results = self._guarded(builder, state, branch, active)
            else:
                found = under_mask(builder, branch, state.inputs, [active], state.sources, self.apart)
                results = state.selected(builder, active, found, state.results)
            state.follow(results)
        return state.results

    def _guarded(self, builder: GraphBuilder, state: _Branches, branch: Graph, active: Mask) -> list[Value]:
        """The branch inside a uniform switch on whether any lane chose it."""
        inputs, results = state.inputs, state.results
        passed = {p: i for p, v in enumerate(results) for i, w in enumerate(inputs) if v is w}
        given = [v for p, v in enumerate(results) if p not in passed]
        run = GraphBuilder()
        run.loc = state.switch.node.loc
        arguments = [Value(v.type) for v in inputs]
        before = [Value(v.type) for v in given]
        rest = iter(before)
        olds = [arguments[passed[p]] if p in passed else next(rest) for p in range(len(results))]
        mask = Value(active.value.type)
        found = under_mask(run, branch, arguments, [Mask(mask)], state.sources, self.apart)
        new = state.selected(run, Mask(mask), found, olds)
        interface = (*arguments, *before, mask)
        taken = self.graph(Graph(interface, tuple(run.nodes), tuple(new)))
        skipped = Graph(interface, (), tuple(olds))
        axes = tuple(range(len(active.value.shape)))
        chosen = builder.value("reduce_or", active.value, axes=axes)
        attrs = {"lanes": 0, "shared": ()}
        return list(builder.emit("switch", (chosen, *inputs, *given, active.value), attrs, (skipped, taken)))


class _Branches:
    """The branches of a switch over lanes while they are computed one after the other. `inputs`: what the next one
    takes, stacks and accumulators as those before left them; `results`: those so far, none before the first."""

    def __init__(self, switch: Switch, inputs: list[Value]) -> None:
        self.switch, self.inputs = switch, inputs
        self.results: list[Value] = []
        self._threaded = {p: source - switch.offset for p, source in switch.threaded.items()}
        self.sources = {self._threaded[p] for p in switch.shared}  # inputs that are accumulators

    def begin(self, builder: GraphBuilder) -> None:
        """What lanes have that no branch so far was run for: zeros where a branch before would have computed it."""
        if not self.results:
            threaded, inputs = self._threaded, self.inputs
            self.results = [
                inputs[threaded[p]] if p in threaded else _zeros(builder, r)
                for p, r in enumerate(self.switch.node.results)
            ]

    def selected(
        self, builder: GraphBuilder, active: Mask, news: Sequence[Value], olds: Sequence[Value]
    ) -> list[Value]:
        """The results of a branch in active lanes, `olds` in the others; all of them where there are none."""
        if not olds:
            return list(news)
        return [
            new if p in self._threaded else active.select(builder, new, old)
            for p, (new, old) in enumerate(zip(news, olds, strict=True))
        ]

    def follow(self, results: list[Value]) -> None:
        """The next branch goes on from these."""
        self.results = results
        for p, source in self._threaded.items():
            self.inputs[source] = results[p]


def _zeros(builder: GraphBuilder, like: Value) -> Value:
    assert isinstance(like.type, TensorType)
    return builder.const(False if like.dtype is bool_ else 0, like.type)


def _is_heavy(branch: Graph) -> bool:
    """Whether computing the branch for nobody would cost much, or push on a stack."""
    return any(n.regions or n.op in ("push", "pop") for n in branch.nodes)


def merged(
    builder: GraphBuilder, loop: Loop, active: Mask, olds: Sequence[Value], news: Sequence[Value]
) -> list[Value]:
    """A loop's carries after one trip: new in active lanes; stacks and shared accumulators as they are."""
    return [
        new if j in loop.shared or isinstance(new.type, StackType) else active.select(builder, new, old)
        for j, (old, new) in enumerate(zip(olds[: loop.width], news, strict=True))
    ]
