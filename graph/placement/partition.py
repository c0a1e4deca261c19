"""The program of one process, of a program over whole arrays.

Enters: a Graph, the places of its inputs (`places`), and which process this is. Leaves: the Graph that this process
runs: where a value has lanes, of its own lanes; and collectives, where lanes of all processes meet.

    (%x: float64[100] lanes, %p: float64[])             process 1 of 2: (%x: float64[50], %p: float64[])
    %1 = mul(%x, broadcast(%p))                         %1 = mul(%x, broadcast(%p))
    %2 = reduce_sum(%1) {axes=(0,)}               ->    %2 = rows of the own subtrees of shards of %1 (`sums`)
    return %2                                           %3, %4 = all_gather(token, %2)
                                                        return the tree over %4

Operations are emitted by how many collectives come before them, so that reductions that don't wait for each other
travel together: one collective for a value and all cotangents. Collectives thread a token, through loops as well, so
that all processes meet in the same order whatever their compilers leave out. Large results start on their way while
the rest of a level is computed (`overlap`), and are awaited behind it. What is alike along lanes, constants and
broadcasts, is made for the own lanes only; a replicated value that lanes use is cut, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from typing import Any, Final

from loopgrad.graph.errors import DeviceError
from loopgrad.graph.lane_axes import moved_axes
from loopgrad.graph.location import located
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.placement.layout import ProcessPart
from loopgrad.graph.placement.overlap import by_readiness, operations_left, worth_starting
from loopgrad.graph.placement.places import (
    REPLICATED,
    Place,
    PlaceAnalysis,
    Places,
    gathers,
    is_reduced,
    meets,
)
from loopgrad.graph.placement.sums import Counts, Partial, cut, resized
from loopgrad.graph.primitives import NULLARY, PRIMITIVES
from loopgrad.graph.primitives.collectives import TOKEN, columns
from loopgrad.graph.rebuild import GraphBuilder
from loopgrad.graph.types import DType, StackType, TensorType

Type = TensorType | StackType
LARGE: Final = 1 << 18  # bytes from which on it is worth another message that each process combines a part
EVEN: Final = 32  # rows of each process from which on one more is little
SWIFT: Final = 32  # times as many, where devices exchange memory: 8 MiB take two H200s as long as another message


@dataclass(slots=True)
class MeshPartition:
    """One run over a graph and its regions. `fast`: the engine may add up in its own order. `meets`: there are other
    processes. `emit`: the rules of nodes. `rows_alike`: whether the device adds up elements of products in one order,
    however many rows there are, of at least so many, of so many terms and columns and a dtype. `notes`: what whoever
    asks for the plan should know. `collectives`: how many there are in the program so far. `overlaps`: the engine can
    be at work while the process computes. `swift`: devices exchange memory, without the host's. `reduces_shards`: the
    device reduces lanes in the order of shards itself (`primitives.shards`)."""

    part: ProcessPart
    fast: bool
    meets: bool
    emit: Callable[[GraphPartition, Node], None]
    rows_alike: Callable[[int, int, int, DType], bool] = lambda *_: False
    analysis: PlaceAnalysis = field(default_factory=PlaceAnalysis)
    notes: dict[str, None] = field(default_factory=dict)
    collectives: int = 0
    overlaps: bool = True
    swift: bool = False
    reduces_shards: bool = False


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a collective is to make whole: rows of this process (of totals and of their rests, if both travel), how many
    of these and those each process has, what all rows make (`combine`), and the result of that (`finish`). `added`: the
    engine adds the rows up, of which there is one. `by_element`: each element of a row is combined with those of other
    rows only. `add`: what the sum of all rows makes, where they are added up."""

    rows: Partial
    counts: Counts
    combine: Callable[[Partial], Value]
    result: Value
    added: bool = False
    by_element: bool = False
    add: Callable[[Partial], Value] | None = None
    finish: Callable[[Value], Value] = lambda value: value

    @property
    def bytes(self) -> int:
        """Of the rows of all processes, where all gather them."""
        pairs = zip(self.rows, self.counts, strict=True)
        return sum([sum(counts) * prod(v.shape[1:]) * v.dtype.itemsize for v, counts in pairs])

    def sent(self, size: int) -> int:
        """The bytes of the rows of all of so many processes."""
        return size * sum([prod(v.shape) * v.dtype.itemsize for v in self.rows]) if self.added else self.bytes


@dataclass(frozen=True, slots=True)
class Started:
    """A collective that is under way. `operands`: of its node, but for the token; `meetings`: what it makes whole, of
    an all-to-all each process its columns."""

    op: str
    attrs: dict[str, Any]
    operands: tuple[Value, ...]
    meetings: tuple[Meeting, ...]


def localised(type: Type, place: Place, part: ProcessPart) -> Type:
    """The type of what this process has of a value; of a private accumulator that of its element."""
    if place.axis is None:
        return type
    if isinstance(type, StackType):
        element = localised(type.element, place, part)
        assert isinstance(element, TensorType)
        return StackType(element)
    own = len(part.lanes(type.shape[place.axis]))
    return TensorType(resized(type.shape, place.axis, own), type.dtype)


def _by_meeting(meetings: Sequence[Meeting], found: Sequence[Value]) -> Sequence[Partial]:
    """The results of a collective, which has the rows of one behind those of another."""
    each = iter(found)
    return [tuple(islice(each, len(m.rows))) for m in meetings]


class GraphPartition:
    """One graph. `env`: what stands for a value at its place, `cuts`: for a replicated one, this process' lanes of it.
    `deferred`: what is made where it is wanted. `meetings`: what waits for the next collective; `under_way`: those that
    were started. `inside`: in lanes that end on their own, where nobody can meet; `lanes`: how many these are, of all
    processes. `outermost`: it is no region's."""

    def __init__(
        self, partition: MeshPartition, graph: Graph, inputs: Places, inside: bool = False, lanes: int = 0
    ) -> None:
        self.partition = partition
        self.part: Final = partition.part
        self.graph = graph
        self.builder = GraphBuilder()
        self.places = partition.analysis.of(graph, inputs)
        self.env: dict[Value, Value] = {}
        self.cuts: dict[tuple[Value, int], Value] = {}
        self.deferred: dict[Value, Node] = {}
        self.meetings: list[Meeting] = []
        self.under_way: list[Started] = []
        self.inside = inside
        self.outermost = True
        self.lanes = lanes
        self.met = False
        self.depths = self._depths()
        self._token: Value | None = None
        self.enter: Callable[[], Value] = lambda: self.builder.const(0, TOKEN)  # the token of the first collective

    # ---- collectives

    @property
    def token(self) -> Value:
        if self._token is None:
            self._token = self.enter()
        return self._token

    @token.setter
    def token(self, value: Value) -> None:
        self._token = value

    def meet(self, meeting: Meeting, node: Node) -> None:
        if self.inside:
            text = (
                f"{node.op}: expected lanes that end on their own to need no others, got an operation in their loop in "
                "which lanes of several processes meet; take it out of the loop, or give all lanes to each process "
                "with lg.gather_all(x) first"
            )
            raise DeviceError(located(text, node.loc))
        self.meetings.append(self._in_one_order(meeting))

    def _in_one_order(self, meeting: Meeting) -> Meeting:
        """A sum of two has one order: large rows of two devices, one each, the engine may add up, in one collective."""
        two = meeting.add is not None and meeting.counts == ((1, 1),)
        if not (two and self.partition.swift and self._op(meeting) == "all_to_all"):
            return meeting
        (row,) = meeting.rows
        own = self.builder.value("reshape", row, shape=row.shape[1:])
        assert meeting.add is not None
        return replace(meeting, rows=(own,), counts=(), combine=meeting.add, added=True, by_element=False)

    def flush(self) -> None:
        """One collective for all that is waiting; and the ends of those that are under way."""
        meetings, self.meetings = self.meetings, []
        if not self.partition.meets:
            for m in sorted(meetings, key=lambda m: not m.added):
                self._settle((m,), (self._alone(m.rows),))
            return
        started, self.under_way = self.under_way, []
        shared = [s for s in started if s.op == "all_to_all"]
        if shared and all(self._op(m) != "all_to_all" for m in meetings):  # what waits would be done before the rest is
            self._meet_all(meetings)
            meetings = []
        parts = self._by_columns([m for m in meetings if self._op(m) == "all_to_all"])
        parts += [part for s in shared for part in self._parts_made(s)]
        self._meet_all([m for m in meetings if self._op(m) != "all_to_all"] + parts)
        for s in started:
            if s.op != "all_to_all":
                self._settle(s.meetings, self._finished(s))

    def _op(self, meeting: Meeting) -> str:
        """The collective that makes it whole."""
        if meeting.added:
            return "all_sum"
        large = meeting.bytes >= LARGE * (SWIFT if self.partition.swift else 1)
        return "all_to_all" if meeting.by_element and large else "all_gather"

    def _meet_all(self, meetings: Sequence[Meeting]) -> None:
        for op in ("all_sum", "all_gather"):
            mine = [m for m in meetings if m.added == (op == "all_sum")]
            self._settle(mine, self._exchanged(op, mine))

    def _settle(self, meetings: Sequence[Meeting], found: Sequence[Partial]) -> None:
        for m, rows in zip(meetings, found, strict=True):
            self.env[m.result] = m.finish(m.combine(rows))

    def _alone(self, rows: Partial) -> Partial:
        """What one process has. Where several would meet in a loop or branch, that is a program of its own here too:
        in a lane, sums and products may have another order."""
        if self.outermost:
            return rows
        return tuple([self.builder.value("alias", v, kept=True, meets=True) for v in rows])

    def start_early(self, operations: int, node: Node) -> None:
        """Let large results start on their way, if that is worth it with so many operations left. Of what started
        before, each process makes its columns whole, which go on."""
        size = self.part.size
        large = [m for m in self.meetings if m.sent(size) >= LARGE]
        nbytes = sum([m.sent(size) for m in large])
        if not worth_starting(nbytes, operations, size, self.partition.swift):
            return
        self.meetings = [m for m in self.meetings if m.sent(size) < LARGE]
        before, self.under_way = self.under_way, []
        for op in dict.fromkeys([self._op(m) for m in large]):
            self._start(op, [m for m in large if self._op(m) == op])
        fresh, self.under_way = self.under_way, []
        for s in before:
            if s.op == "all_to_all":
                self._start("all_gather", self._parts_made(s))
            else:
                self.under_way.append(s)
        self.under_way += fresh
        where = f" at {node.loc}" if node.loc else ""
        self.partition.notes[
            f"{nbytes // size:,} bytes of each process start on their way{where}, before the last "
            f"{operations // size:,} operations"
        ] = None

    def _start(self, op: str, meetings: Sequence[Meeting]) -> None:
        sent = self._flat(meetings) if op == "all_to_all" else meetings
        operands, attrs = self._operands(op, sent)
        (self.token,) = self.builder.emit("collective_start", (self.token, *operands), {**attrs, "op": op})
        self.under_way.append(Started(op, attrs, operands, tuple(meetings)))

    def _finished(self, started: Started) -> Sequence[Partial]:
        attrs = {**started.attrs, "started": True}
        self.token, *found = self.builder.emit(started.op, (self.token, *started.operands), attrs)
        return _by_meeting(started.meetings, self._with_own(started.op, started.operands, attrs, found))

    def _parts_made(self, started: Started) -> list[Meeting]:
        return [self._part_made(m, rows) for m, rows in zip(started.meetings, self._finished(started), strict=True)]

    def _by_columns(self, meetings: Sequence[Meeting]) -> list[Meeting]:
        """Of large results each process makes a part whole, which all gather then: the bytes that a process sends don't
        grow with the number of processes. Element by element the sums are the same."""
        exchanged = zip(meetings, self._exchanged("all_to_all", self._flat(meetings)), strict=True)
        return [self._part_made(m, rows) for m, rows in exchanged]

    def _flat(self, meetings: Sequence[Meeting]) -> list[Meeting]:
        """With an axis of columns to share out."""
        return [replace(m, rows=tuple(map(self._with_columns, m.rows))) for m in meetings]

    def _with_columns(self, rows: Value) -> Value:
        shape = self._shared(rows.shape[1:])
        return rows if shape == rows.shape[1:] else self.builder.value("reshape", rows, shape=(rows.shape[0], *shape))

    def _shared(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """As what processes share out a row of this shape along its first axis: as it is, which spares copies, where
        that gives them about as many elements each."""
        even = shape and (shape[0] % self.part.size == 0 or shape[0] >= EVEN * self.part.size)
        return shape if even else (prod(shape),)

    def _part_made(self, meeting: Meeting, rows: Partial) -> Meeting:
        """The same of all rows of this process' elements, which are its rows then."""
        shape, size = meeting.rows[0].shape[1:], self.part.size
        counts = tuple([len(columns(self._shared(shape)[0], rank, size)) for rank in range(size)])
        mine = (meeting.combine(rows),)
        combine = lambda parts: self._shaped(parts, shape)  # noqa: E731
        return replace(meeting, rows=mine, counts=(counts,), combine=combine, by_element=False)

    def _shaped(self, parts: Partial, shape: tuple[int, ...]) -> Value:
        (found,) = parts
        return found if found.shape == shape else self.builder.value("reshape", found, shape=shape)

    def _exchanged(self, op: str, meetings: Sequence[Meeting]) -> Sequence[Partial]:
        if not meetings:
            return ()
        operands, attrs = self._operands(op, meetings)
        self.token, *found = self.builder.emit(op, (self.token, *operands), attrs)
        return _by_meeting(meetings, self._with_own(op, operands, attrs, found))

    def _with_own(
        self, op: str, operands: Sequence[Value], attrs: dict[str, Any], found: Sequence[Value]
    ) -> Sequence[Value]:
        """What a collective gives, and between it what this process has itself, where that wasn't sent."""
        if op != "all_to_all":
            return found
        b, rank, size = self.builder, self.part.rank, self.part.size
        whole = []
        for rows, others, counts in zip(operands, found, attrs["counts"], strict=True):
            mine, before = columns(rows.shape[1], rank, size), sum(counts[:rank])
            parts = (cut(b, others, 0, 0, before), cut(b, rows, 1, mine.start, mine.stop),
                     cut(b, others, 0, before, others.shape[0]))  # fmt: skip
            some = [part for part in parts if part.shape[0]] or [others]
            whole.append(some[0] if len(some) == 1 else b.emit("concat", some, {"axis": 0})[0])
        return whole

    def _operands(self, op: str, meetings: Sequence[Meeting]) -> tuple[tuple[Value, ...], dict[str, Any]]:
        """The operands behind the token, and the attributes, of another collective of the program."""
        self.met = True
        self.partition.collectives += 1
        attrs: dict[str, Any] = {"final": False, "number": self.partition.collectives}
        if op != "all_sum":
            attrs |= {"counts": tuple([counts for m in meetings for counts in m.counts]), "part": self.part.rank}
        return tuple([row for m in meetings for row in m.rows]), attrs

    # ---- values

    def at(self, value: Value, place: Place) -> Value:
        """What stands for a value at a place: its own, or lanes of a replicated one."""
        lanes = self.places[value].axis
        if place.axis is None or lanes is not None or place.private:
            own = self._own(value)
            if place.axis in (None, lanes) or lanes is None or value.shape[place.axis] > 1 or value.shape[lanes] > 1:
                return own
            local = localised(value.type, place, self.part)
            assert isinstance(local, TensorType)
            return self.builder.value("reshape", own, shape=local.shape)
        known = self.cuts.get((value, place.axis))
        if known is None:
            known = self.cuts[value, place.axis] = self._cut(value, place.axis)
        return known

    def _own(self, value: Value) -> Value:
        node = self.deferred.get(value)
        if node is not None and value not in self.env:
            operands = [self.at(v, REPLICATED) for v in node.operands]
            self.env.update(zip(node.results, self.builder.emit(node.op, operands, node.attrs), strict=True))
        return self.env[value]

    def _cut(self, value: Value, axis: int) -> Value:
        node, b = self.deferred.get(value), self.builder
        local = localised(value.type, Place(axis), self.part)
        if node is not None and node.op == "stack_new":
            assert isinstance(local, StackType)
            operands = [self.at(v, REPLICATED) for v in node.operands]
            return b.emit(node.op, operands, {**node.attrs, "element": local.element})[0]
        assert isinstance(local, TensorType)
        if node is not None and node.op == "const":
            return b.const(node.attrs["value"], local)
        lanes = self.part.lanes(value.shape[axis])
        if node is not None and node.op == "iota":
            found = b.value("iota", type=local, axis=node.attrs["axis"])
            if node.attrs["axis"] == axis and lanes.start:
                found = b.value("add", found, b.const(lanes.start, local))
            return found
        if node is not None and node.op == "broadcast":
            dims: tuple[int, ...] = node.attrs["dims"]
            (source,) = node.operands
            along = [j for j, d in enumerate(dims) if d == axis and source.shape[j] == value.shape[axis] != 1]
            given = self.at(source, Place(along[0]) if along else REPLICATED)
            return b.value("broadcast", given, shape=local.shape, dims=dims)
        start, stop = resized([0] * len(local.shape), axis, lanes.start), resized(value.shape, axis, lanes.stop)
        return b.value("slice", self._own(value), start=start, stop=stop, step=(1,) * len(local.shape))

    def own_positions(self, like: Value, axis: int) -> Value:
        """What numbers lanes along `axis`, from this process' first on."""
        local = localised(like.type, Place(axis), self.part)
        return self.builder.value("iota", type=local, axis=axis)

    # ---- walking

    def run(self, inputs: Sequence[Value], outputs: Places) -> tuple[Value, ...]:
        """Emit the graph; its outputs at these places."""
        self.env.update(zip(self.graph.inputs, inputs, strict=True))
        for level in self._levels():
            overlaps = self.partition.overlaps and self.partition.meets
            nodes = by_readiness(level, self.partition.swift) if overlaps else level
            left = operations_left(nodes) if overlaps else [0] * len(level)
            for (node, _), operations in zip(nodes, left, strict=True):
                self.builder.loc = node.loc
                self.partition.emit(self, node)
                if operations and self.meetings:
                    self.start_early(operations, node)
            self.flush()
        return tuple([self.at(v, p) for v, p in zip(self.graph.outputs, outputs, strict=True)])

    def _levels(self) -> list[list[tuple[Node, bool]]]:
        """Nodes by how many collectives come before them, and whether one makes their results."""
        known: dict[Value, int] = {}
        found: list[list[tuple[Node, bool]]] = []
        for node in self.graph.nodes:
            level = max([known.get(v, 0) for v in node.operands], default=0)
            while len(found) <= level:
                found.append([])
            waits = self.waits(node) and not self.depths.issuperset(node.results)
            found[level].append((node, waits))
            known.update(dict.fromkeys(node.results, level + waits))
        return found

    def waits(self, node: Node) -> bool:
        """Whether a node's results come from a collective of this graph."""
        operands = tuple([self.places[v] for v in node.operands])
        if gathers(node, operands):
            return True
        if node.regions:
            inside = self.partition.analysis.region(node, operands)
            return any(p.private and not q.private for p, q in zip(inside.inner, inside.results, strict=True))
        return is_reduced(node, operands) or (
            meets(node, operands, self.places[node.results[0]]) and not operands[0].private
        )

    def _depths(self) -> set[Value]:
        """Largest counts that only say how deep stacks are: each process needs those of its own lanes."""
        read: dict[Value, list[str]] = {}
        for node in self.graph.nodes:
            for v in node.operands:
                read.setdefault(v, []).append(node.op)
        for v in self.graph.outputs:
            read.setdefault(v, []).append("return")
        largest = [v for v in read if v.node is not None and v.node.op == "reduce_max"]
        return {v for v in largest if set(read[v]) == {"stack_new"}}

    def operands_of(self, node: Node, axis: int) -> list[Value]:
        """The operands of a node whose results have lanes along `axis`: cut where they have that axis too."""
        return [self.at(v, self._needed(node, i, axis)) for i, v in enumerate(node.operands)]

    def _needed(self, node: Node, operand: int, axis: int) -> Place:
        value = node.operands[operand]
        if self.places[value].axis is not None or not isinstance(value.type, TensorType):
            return self.places[value]
        if PRIMITIVES[node.op].axes is None:
            return REPLICATED
        for a in range(len(value.shape)):
            if moved_axes(node, operand, (a,)) == (axis,):
                return Place(a)
        return REPLICATED

    def is_deferred(self, node: Node) -> bool:
        """Whether a node is made where it is wanted, and as it is wanted there."""
        if node.op in NULLARY or node.op == "stack_new":
            return True
        return node.op == "broadcast" and self.places[node.operands[0]].axis is None

    def attrs_of(self, node: Node, axis: int) -> dict[str, Any]:
        """The attributes with which a node works on this process' lanes."""
        attrs = dict(node.attrs)
        if node.op in ("broadcast", "reshape"):
            own = len(self.part.lanes(node.results[0].shape[axis]))
            attrs["shape"] = resized(attrs["shape"], axis, own)
        return attrs
