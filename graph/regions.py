"""Region nodes by name: what their operands, results and regions are to each other.

`Region.of(node)` is a view of a node with regions; nobody else counts operands. It is made anew where it is wanted.

    Loop     for      operands (count, inits, captures);  body (index, carries, captures) -> carries
             while    operands (inits, captures);         condition (carries, captures) -> one bool, body as above
    Switch   switch   operands (index, operands);         each branch (operands) -> results
    Call     call     operands;                           function (operands) -> results, then rules of its derivative

What is true of all of them, so that a pass that only needs "has regions" asks for no kind:

  - operands from `first` on are handed to every region that is `running`, each as its input `offset` positions before
    (`inputs_of`); the operand in front of them, if there is one, decides (`decider`);
  - those at `captured` are read inside and nothing else: they may be dropped, merged or added to;
  - the outputs of each of `bodies` are the results;
  - stacks and accumulators go through: result j continues operand `source(j)`. The accumulators of lanes are `shared`.

    loop = Loop.of(node)                       for (n, x, y, a): x, y carried, a captured
    loop.inits, loop.captures                  (x, y), (a,)
    loop.split(loop.body.inputs).carries       the arguments of the body that x and y start
    loop.rebuilt(inits=(x,), body=smaller).node(node.loc)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from loopgrad.graph.errors import VerifyError
from loopgrad.graph.nodes import Graph, Location, Node, Value
from loopgrad.graph.primitives import UPDATES
from loopgrad.graph.types import StackType, TensorType

T = TypeVar("T")


class Segments(NamedTuple, Generic[T]):
    """What belongs to the operands of a loop, or to the inputs of a region of it, by name."""

    lead: Sequence[T]  # of the count or, in the body, the index; none in a while
    carries: Sequence[T]
    captures: Sequence[T]


class Form(NamedTuple):
    """A region node to be made: what `emit` takes."""

    op: str
    operands: tuple[Value, ...]
    attrs: Mapping[str, Any]
    regions: tuple[Graph, ...]

    def node(self, loc: Location | None) -> Node:
        """The node; its regions are taken to be right."""
        (body, *_) = KINDS[self.op].giving(self.regions)
        return Node(self.op, self.operands, body.output_types, self.attrs, self.regions, loc)


@dataclass(frozen=True, slots=True)
class Region:
    """A node with regions of any kind. Positions are those of operands, of results where it says so."""

    node: Node

    @classmethod
    def of(cls, node: Node) -> Self:
        """The view of a node. KeyError where it has no regions; the class is its kind's or Region."""
        region = KINDS[node.op](node)
        assert isinstance(region, cls), node
        return region

    @staticmethod
    def giving(regions: tuple[Graph, ...]) -> tuple[Graph, ...]:
        """Those of a kind's regions whose outputs are the results."""
        return regions

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """The regions whose outputs are the results, in the order of these."""
        return self.giving(self.node.regions)

    @property
    def running(self) -> tuple[Graph, ...]:
        """The regions that run where the node does."""
        return self.node.regions

    @property
    def optional(self) -> bool:
        """Whether results that nobody reads may go."""
        return False

    @property
    def always_read(self) -> tuple[Value, ...]:
        """The operands that are read whatever the regions do."""
        return self.lead

    @property
    def own(self) -> bool:
        """Whether the derivative is stated, not that of the regions."""
        return False

    # ---- lanes

    @property
    def lanes(self) -> int:
        """The rank of the lanes; 0 where there are none."""
        rank: int = self.node.attrs["lanes"]
        return rank

    @property
    def decider(self) -> Value:
        """What chooses trips or branches, one element a lane: an operand or, in a while, the condition's output."""
        return self.node.operands[0]

    @property
    def lane_shape(self) -> tuple[int, ...]:
        """The shape of the lanes; () where there are none."""
        return self.decider.shape if self.lanes else ()

    # ---- what goes in

    @property
    def first(self) -> int:
        """The first operand that is handed to the regions."""
        return 0

    @property
    def offset(self) -> int:
        """Position of an operand minus that of the input it becomes."""
        return 0

    @property
    def captured(self) -> range:
        """The operands that no result continues by itself."""
        return range(self.first, len(self.node.operands))

    @property
    def lead(self) -> tuple[Value, ...]:
        """The operand that isn't handed to the regions, if there is one: a count, an index."""
        return self.node.operands[: self.first]

    @property
    def arguments(self) -> tuple[Value, ...]:
        """The operands that are handed to the regions."""
        return self.node.operands[self.first :]

    def inputs_of(self, operand: int) -> list[Value]:
        """The input that operand `operand` becomes, in each region."""
        at = operand - self.offset
        return [region.inputs[at] for region in self.running]

    # ---- stacks and accumulators

    @property
    def shared(self) -> tuple[int, ...]:
        """The results that are accumulators which all lanes update."""
        found: tuple[int, ...] = self.node.attrs["shared"]
        return found

    @property
    def accumulators(self) -> list[int]:
        """The operands that the shared results continue."""
        return sorted({self.source(j) for j in self.shared}) if self.shared else []

    def source(self, result: int) -> int:
        """The operand whose stack or accumulator a result continues. VerifyError where it isn't one operand's."""
        sources = {_entered(body, body.outputs[result]) for body in self.bodies}
        if len(sources) != 1 or None in sources:
            op, loc = self.node.op, self.node.loc
            raise VerifyError(f"{op} at {loc}: result {result} doesn't come from one accumulator operand")
        (source,) = sources
        assert source is not None
        return source + self.offset

    @property
    def threaded(self) -> dict[int, int]:
        """Where the results that are stacks or shared accumulators come from."""
        shared = self.shared
        through = [j for j, r in enumerate(self.node.results) if j in shared or isinstance(r.type, StackType)]
        return {j: self.source(j) for j in through}

    @property
    def continued(self) -> dict[int, int]:
        """The operand that a result is the next value of, for each result that is one's: all of a loop's."""
        return self.threaded

    # ---- making another

    @property
    def form(self) -> Form:
        """The node as it is."""
        return Form(self.node.op, self.node.operands, self.node.attrs, self.node.regions)

    def narrowed(self, operands: Sequence[int], regions: tuple[Graph, ...], results: Sequence[int]) -> Form:
        """The node with these of its operands and results, and regions that take and give no others."""
        shared = tuple([new for new, old in enumerate(results) if old in self.shared])
        changed = {} if shared == self.shared else {"shared": shared}
        return self._formed([self.node.operands[i] for i in operands], regions, **changed)

    def recaptured(self, dropped: Collection[int], added: Sequence[Value], regions: Sequence[Graph]) -> Form:
        """The node without the `dropped` operands and with `added` ones at the end, and regions that take those."""
        staying = [v for i, v in enumerate(self.node.operands) if i not in dropped]
        return self._formed([*staying, *added], tuple(regions))

    def spread(self, operands: Sequence[Value], regions: Sequence[Graph], shared: Sequence[int], results: int) -> Form:
        """The node with other operands and regions, and so many results."""
        carries = results if isinstance(self, Loop) else None
        return self._formed(operands, tuple(regions), shared=tuple(shared), carries=carries)

    def _formed(self, operands: Sequence[Value], regions: tuple[Graph, ...], **attrs: object) -> Form:
        node, changed = self.node, {name: value for name, value in attrs.items() if value is not None}
        return Form(node.op, tuple(operands), {**node.attrs, **changed} if changed else node.attrs, regions)


@dataclass(frozen=True, slots=True)
class Loop(Region):
    """A for or a while. Operands and the inputs of its regions correspond one to one (the index to the count), so
    whatever there is one of for each can be split into segments."""

    @staticmethod
    def giving(regions: tuple[Graph, ...]) -> tuple[Graph, ...]:
        return regions[-1:]

    @property
    def body(self) -> Graph:
        return self.node.regions[-1]

    @property
    def condition(self) -> Graph | None:
        """Of a while."""
        return None if self.first else self.node.regions[0]

    @property
    def count(self) -> Value | None:
        """The trips of a for."""
        return self.node.operands[0] if self.first else None

    @property
    def decider(self) -> Value:
        return self.node.operands[0] if self.first else self.node.regions[0].outputs[0]

    @property
    def first(self) -> int:
        return 1 if self.node.op == "for" else 0

    @property
    def width(self) -> int:
        """How many values are carried."""
        carries: int = self.node.attrs["carries"]
        return carries

    @property
    def captured(self) -> range:
        return range(self.first + self.width, len(self.node.operands))

    @property
    def inits(self) -> tuple[Value, ...]:
        return self.node.operands[self.first : self.first + self.width]

    @property
    def captures(self) -> tuple[Value, ...]:
        return self.node.operands[self.first + self.width :]

    def split(self, values: Sequence[T]) -> Segments[T]:
        """What there is one of for each operand, or each input of a region, by segment."""
        start, end = self.first, self.first + self.width
        return Segments(values[:start], values[start:end], values[end:])

    def position(self, carry: int) -> int:
        """Where a carry is among the operands, and among the inputs of the regions."""
        return self.first + carry

    def carry_at(self, position: int) -> int | None:
        """The carry at a position among the operands or a region's inputs; None where there is none."""
        carry = position - self.first
        return carry if 0 <= carry < self.width else None

    def argument(self, carry: int) -> Value:
        """The input of the body that a carry is."""
        return self.body.inputs[self.first + carry]

    def init(self, carry: int) -> Value:
        """The operand with which a carry starts."""
        return self.node.operands[self.first + carry]

    def source(self, result: int) -> int:
        return self.first + result

    @property
    def continued(self) -> dict[int, int]:
        return {j: self.position(j) for j in range(self.width)}

    def taking(self, region: Graph, carries: Sequence[Value], captures: Sequence[Value] = ()) -> Graph:
        """A region with unused inputs of the types of these, behind its carries and behind its captures."""
        lead, own, captured = self.split(region.inputs)
        more, further = [Value(v.type) for v in carries], [Value(v.type) for v in captures]
        return Graph((*lead, *own, *more, *captured, *further), region.nodes, region.outputs)

    def narrowed(self, operands: Sequence[int], regions: tuple[Graph, ...], results: Sequence[int]) -> Form:
        form = super(Loop, self).narrowed(operands, regions, results)
        return form._replace(attrs={**form.attrs, "carries": len(results)})

    def rebuilt(
        self,
        *,
        count: Value | None = None,
        inits: Sequence[Value] | None = None,
        captures: Sequence[Value] | None = None,
        condition: Graph | None = None,
        body: Graph | None = None,
        shared: Sequence[int] | None = None,
        lanes: int | None = None,
    ) -> Form:
        """The loop with these parts, the others as they are."""
        lead, old, rest = self.split(self.node.operands)
        lead = lead if count is None else (count,)
        inits, captures = old if inits is None else inits, rest if captures is None else captures
        tests = (self.node.regions[:-1]) if condition is None else (condition,)
        return self._formed(
            (*lead, *inits, *captures),
            (*tests, self.body if body is None else body),
            carries=len(inits),
            shared=None if shared is None else tuple(shared),
            lanes=lanes,
        )


@dataclass(frozen=True, slots=True)
class Switch(Region):
    """Branches, each of which takes all operands behind the index."""

    @property
    def index(self) -> Value:
        return self.node.operands[0]

    @property
    def branches(self) -> tuple[Graph, ...]:
        return self.node.regions

    @property
    def optional(self) -> bool:
        return True

    @property
    def first(self) -> int:
        return 1

    @property
    def offset(self) -> int:
        return 1

    def rebuilt(
        self,
        *,
        index: Value | None = None,
        operands: Sequence[Value] | None = None,
        branches: Sequence[Graph] | None = None,
        shared: Sequence[int] | None = None,
        lanes: int | None = None,
    ) -> Form:
        """The switch with these parts, the others as they are. `operands`: what the branches take."""
        handed = self.arguments if operands is None else operands
        return self._formed(
            (self.index if index is None else index, *handed),
            self.branches if branches is None else tuple(branches),
            shared=None if shared is None else tuple(shared),
            lanes=lanes,
        )


@dataclass(frozen=True, slots=True)
class Call(Region):
    """A function of all operands, and rules of its derivative: which regions there are depends on the kind
    (`primitives.control`). Rules have tangents and cotangents of what is differentiable among the results and the
    first operands, so many as `arguments` says; what they capture stands behind these."""

    @staticmethod
    def giving(regions: tuple[Graph, ...]) -> tuple[Graph, ...]:
        return regions[:1]

    @property
    def running(self) -> tuple[Graph, ...]:
        return self.node.regions[:1]

    @property
    def function(self) -> Graph:
        return self.node.regions[0]

    @property
    def rules(self) -> tuple[Graph, ...]:
        """Those of its derivative: none, (tangent) or (forward, backward)."""
        return self.node.regions[1:]

    @property
    def own_arguments(self) -> tuple[Value, ...]:
        """The operands that rules are about."""
        return self.node.operands[: self.node.attrs.get("arguments", 0)]

    @property
    def captures(self) -> tuple[Value, ...]:
        """The operands that rules capture."""
        return self.node.operands[self.node.attrs.get("arguments", 0) :]

    @property
    def kind(self) -> str:
        name: str = self.node.attrs["kind"]
        return name

    @property
    def computed_again(self) -> bool:
        """Whether a reverse pass computes the function again, or this does so."""
        return self.kind in ("recompute", "again")

    @property
    def optional(self) -> bool:
        return not (self.rules or self.kind == "routine")

    @property
    def always_read(self) -> tuple[Value, ...]:
        return () if self.optional else self.node.operands

    @property
    def captured(self) -> range:
        """Rules take all operands as they are."""
        count = len(self.node.operands)
        return range(0 if self.optional else count, count)

    @property
    def own(self) -> bool:
        return self.kind in ("vjp", "jvp", "opaque")

    @property
    def moving_operands(self) -> list[int]:
        """The operands for which rules have tangents or cotangents."""
        return _differentiable(self.own_arguments)

    @property
    def moving_results(self) -> list[int]:
        """The results for which rules have tangents or cotangents."""
        return _differentiable(self.node.results)

    def rebuilt(
        self,
        *,
        operands: Sequence[Value] | None = None,
        branches: Sequence[Graph] | None = None,
        shared: Sequence[int] | None = None,
    ) -> Form:
        """The call with these parts, the others as they are. `branches`: all regions."""
        return self._formed(
            self.node.operands if operands is None else operands,
            self.node.regions if branches is None else tuple(branches),
            shared=None if shared is None else tuple(shared),
        )


def _differentiable(values: Sequence[Value]) -> list[int]:
    return [i for i, v in enumerate(values) if isinstance(v.type, TensorType) and v.dtype.differentiable]


KINDS: Final[dict[str, type[Region]]] = {"for": Loop, "while": Loop, "switch": Switch, "call": Call}


def brings_rules(graph: Graph) -> bool:
    """Whether `graph` calls, in itself or in its regions, a function whose derivative is stated."""
    return any(n.regions and (Region.of(n).own or any(map(brings_rules, Region.of(n).running))) for n in graph.nodes)


def in_parts(values: Sequence[T], *lengths: int) -> list[Sequence[T]]:
    """Segments of these lengths, which are all of `values`."""
    assert sum(lengths) == len(values), (lengths, len(values))
    starts = accumulate(lengths, initial=0)
    return [values[start : start + length] for start, length in zip(starts, lengths, strict=False)]


def previous(value: Value) -> Value | None:
    """The value of the same graph that a stack or accumulator continues; None where it begins."""
    node = value.node
    if node is None:
        return None
    if node.regions:
        return node.operands[Region.of(node).source(value.index)]
    return node.operands[0] if node.op in UPDATES or node.op == "alias" else None


def beginning(value: Value) -> Value:
    """Where a stack or accumulator begins in the graph of `value`: an input, or what no other is continued by."""
    while (before := previous(value)) is not None:
        value = before
    return value


def _entered(graph: Graph, value: Value) -> int | None:
    """The input of `graph` at which a stack or accumulator comes in."""
    value = beginning(value)
    return graph.inputs.index(value) if value in graph.inputs else None
