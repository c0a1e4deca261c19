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

from collections.abc import Callable, Collection, Sequence

from loopgrad.graph.accumulators import accumulator_input, first_carry
from loopgrad.graph.lanes import lane_report
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes.mask_region import Mask, chosen_lanes, under_mask
from loopgrad.graph.rebuild import Builder, first_capture
from loopgrad.graph.types import StackType, TensorType, bool_


def crosses_lanes(node: Node) -> bool:
    """Whether a lane loop or switch can't run one lane at a time."""
    control = node.regions[0].outputs[0] if node.op == "while" else node.operands[0]
    return not lane_report(node, control.shape).local


def run(graph: Graph, wanted: Callable[[Node], bool] = crosses_lanes, apart: bool = False) -> Graph:
    """`graph` with the lane loops and switches that are `wanted` in uniform, masked form. `apart`: what lanes push
    while they aren't active has no derivative."""
    return _Masker(wanted, apart).graph(graph)


class _Masker:
    def __init__(self, wanted: Callable[[Node], bool], apart: bool) -> None:
        self.wanted = wanted
        self.apart = apart

    def graph(self, graph: Graph) -> Graph:
        builder = Builder()
        env: dict[Value, Value] = {v: v for v in graph.inputs}
        for node in graph.nodes:
            operands = [env[v] for v in node.operands]
            builder.loc = node.loc
            env.update(zip(node.results, self.node(node, operands, builder), strict=True))
        return Graph(graph.inputs, tuple(builder.nodes), tuple([env[v] for v in graph.outputs]))

    def node(self, node: Node, operands: Sequence[Value], builder: Builder) -> Sequence[Value]:
        if not node.regions:
            return builder.emit(node.op, operands, node.attrs)
        if not node.attrs["lanes"]:
            return builder.emit(node.op, operands, node.attrs, tuple([self.graph(r) for r in node.regions]))
        if not self.wanted(node):
            return builder.emit(node.op, operands, node.attrs, node.regions)
        match node.op:
            case "for":
                return self.masked_for(node, operands, builder)
            case "while":
                return self.masked_while(node, operands, builder)
        return self.masked_switch(node, operands, builder)

    def masked_for(self, node: Node, operands: Sequence[Value], builder: Builder) -> Sequence[Value]:
        count = operands[0]
        scalar = TensorType((), count.dtype)
        axes = tuple(range(len(count.shape)))
        empty = 0 in count.shape
        trips = builder.const(0, scalar) if empty else builder.value("reduce_max", count, axes=axes)

        inner = Builder()
        inner.loc = node.loc
        index, lanes = Value(scalar), Value(count.type)
        arguments = [Value(v.type) for v in operands[1:]]
        k = inner.splat(index, count.shape)
        active = Mask(inner.value("lt", k, lanes))
        outputs = under_mask(inner, node.regions[0], [k, *arguments], [active], _shared_inputs(node), self.apart)
        carries = merged(inner, node, active, arguments, outputs)
        body = self.graph(Graph((index, *arguments, lanes), tuple(inner.nodes), tuple(carries)))
        return builder.emit("for", (trips, *operands[1:], count), _uniform(node), (body,))

    def masked_while(self, node: Node, operands: Sequence[Value], builder: Builder) -> Sequence[Value]:
        cond, body = node.regions
        n: int = node.attrs["carries"]
        mask_type = cond.outputs[0].type
        (started,) = under_mask(builder, cond, operands, [], (), self.apart)

        tested = [Value(v.type) for v in (*operands[:n], started, *operands[n:])]
        test = Builder()
        any_active = test.value("reduce_or", tested[n], axes=tuple(range(len(cond.outputs[0].shape))))
        condition = Graph(tuple(tested), tuple(test.nodes), (any_active,))

        inner = Builder()
        inner.loc = node.loc
        carries, captures = [Value(v.type) for v in operands[:n]], [Value(v.type) for v in operands[n:]]
        alive = Value(mask_type)
        active = Mask(alive)
        outputs = under_mask(inner, body, [*carries, *captures], [active], _shared_inputs(node), self.apart)
        after = merged(inner, node, active, carries, outputs)
        (holds,) = under_mask(inner, cond, [*after, *captures], [active], (), self.apart)
        still = inner.value("and", alive, holds)
        stepped = self.graph(Graph((*carries, alive, *captures), tuple(inner.nodes), (*after, still)))
        attrs = {**_uniform(node), "carries": n + 1}
        return builder.emit("while", (*operands[:n], started, *operands[n:]), attrs, (condition, stepped))[:n]

    def masked_switch(self, node: Node, operands: Sequence[Value], builder: Builder) -> Sequence[Value]:
        index, inputs = operands[0], list(operands[1:])
        shared = set(node.attrs["shared"])
        threaded = {
            p: accumulator_input(node, p)
            for p, r in enumerate(node.results)
            if p in shared or isinstance(r.type, StackType)
        }
        sources = {threaded[p] for p in shared}
        results: list[Value] | None = None
        for number, branch in enumerate(node.regions):
            active = Mask(chosen_lanes(builder, index, number, len(node.regions)))
            if _is_heavy(branch):
                if results is None:
                    results = [
                        inputs[threaded[p]] if p in threaded else _zeros(builder, r) for p, r in enumerate(node.results)
                    ]
                results = self._guarded(builder, node, branch, active, inputs, results, sources, threaded)
            else:
                found = under_mask(builder, branch, inputs, [active], sources, self.apart)
                results = _selected(builder, active, found, results, threaded)
            for p, source in threaded.items():
                inputs[source] = results[p]
        assert results is not None
        return results

    def _guarded(
        self,
        builder: Builder,
        node: Node,
        branch: Graph,
        active: Mask,
        inputs: Sequence[Value],
        results: Sequence[Value],
        sources: Collection[int],
        threaded: Collection[int],
    ) -> list[Value]:
        """The branch inside a uniform switch on whether any lane chose it; `results` are those so far."""
        passed = {p: i for p, v in enumerate(results) for i, w in enumerate(inputs) if v is w}
        given = [v for p, v in enumerate(results) if p not in passed]
        run = Builder()
        run.loc = node.loc
        arguments = [Value(v.type) for v in inputs]
        before = [Value(v.type) for v in given]
        rest = iter(before)
        olds = [arguments[passed[p]] if p in passed else next(rest) for p in range(len(results))]
        mask = Value(active.value.type)
        found = under_mask(run, branch, arguments, [Mask(mask)], sources, self.apart)
        new = _selected(run, Mask(mask), found, olds, threaded)
        interface = (*arguments, *before, mask)
        taken = self.graph(Graph(interface, tuple(run.nodes), tuple(new)))
        skipped = Graph(interface, (), tuple(olds))
        axes = tuple(range(len(active.value.shape)))
        chosen = builder.value("reduce_or", active.value, axes=axes)
        attrs = {"lanes": 0, "shared": ()}
        return list(builder.emit("switch", (chosen, *inputs, *given, active.value), attrs, (skipped, taken)))


def _zeros(builder: Builder, like: Value) -> Value:
    assert isinstance(like.type, TensorType)
    return builder.const(False if like.dtype is bool_ else 0, like.type)


def _uniform(node: Node) -> dict[str, object]:
    return {**node.attrs, "lanes": 0, "shared": ()}


def _shared_inputs(node: Node) -> set[int]:
    """Positions of the body's inputs that are shared accumulators."""
    return {first_carry(node) + j for j in node.attrs["shared"]}


def _is_heavy(branch: Graph) -> bool:
    """Whether computing the branch for nobody would cost much, or push on a stack."""
    return any(n.regions or n.op in ("push", "pop") for n in branch.nodes)


def merged(builder: Builder, node: Node, active: Mask, olds: Sequence[Value], news: Sequence[Value]) -> list[Value]:
    """A loop's carries after one trip: new in active lanes; stacks and shared accumulators as they are."""
    shared = node.attrs["shared"]
    n = first_capture(node) - first_carry(node)
    return [
        new if j in shared or isinstance(new.type, StackType) else active.select(builder, new, old)
        for j, (old, new) in enumerate(zip(olds[:n], news, strict=True))
    ]


def _selected(
    builder: Builder, active: Mask, news: Sequence[Value], olds: Sequence[Value] | None, threaded: Collection[int]
) -> list[Value]:
    if olds is None:
        return list(news)
    return [
        new if p in threaded else active.select(builder, new, old)
        for p, (new, old) in enumerate(zip(news, olds, strict=True))
    ]
