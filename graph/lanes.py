"""Lane analysis: can a loop or branch run as one kernel with one lane per point of a shape?

Enters: a `for`, `while` or `switch` node (or a Graph) and a candidate lane shape S of rank k.
Leaves: a LaneReport. The question is answered by following where the lane dims of each value sit:

    uniform   axes None          any lane can compute any element (scalars, the trip index, constants)
    readable  axes, not hard     S-shaped and in memory or recomputable: read at the lane's own index as
                                 long as nobody needs another lane's element (then it turns uniform, and the
                                 operands it comes from are reported as not identity)
    hard      axes               produced inside the kernel: only the lane's own elements exist

An operation that mixes lanes of a hard value is the culprit; without one the node is local. Carries
whose shape starts with S are hard, other carries must stay uniform (every lane holds them whole), and
accumulators (graph.accumulators) may be updated by every lane.

    earned                       the cotangent of an accumulator: the elements that a lane looks up in it are
                                 those it contributed to, so what it gathers is hard

A gather or scatter whose index along a looked-up lane axis is the iota of that axis, or whose window
covers the lane axes, stays within its lane: such an access is "owned".

    x: float32[N] carry;  t: float32[T,N] captured, i: int64[] index of the loop, S = (N,)
      %1 = gather(t, i)                      t is uniform: any element can be read; %1 readable
      %2 = add(x, %1)                        hard
      %3 = reduce_sum(%2) {axes=(0,)}        culprit
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from loopgrad.graph.accumulators import is_accumulator
from loopgrad.graph.lane_axes import moved_axes, preserves
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import KEEPING_SPLATS, LIBRARY
from loopgrad.graph.primitives.primitive import Axes
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import StackType, TensorType

__all__ = ["LaneReport", "ScatterUse", "candidate_domain", "lane_domain", "lane_report", "preserves"]

Shape = tuple[int, ...]


@dataclass(slots=True)
class ScatterUse:
    """Scatters into one accumulator: their kinds, and whether no two lanes ever meet in an element."""

    kinds: set[str] = field(default_factory=set)
    exclusive: bool = True


@dataclass(frozen=True, slots=True)
class LaneReport:
    """Positions are those of the node's operands (of the Graph's inputs).

    `table_inputs` are looked up at computed indices; `identity_inputs` start with S and are read at
    the lane's own index only, so that a producer with the same lanes may be fused in.
    """

    shape: Shape
    local: bool
    culprit: Node | None
    reason: str
    table_inputs: frozenset[int]
    identity_inputs: frozenset[int]
    accumulators: dict[int, ScatterUse]


class Access(NamedTuple):
    """What one lane can see of a value; see the module docstring."""

    axes: Axes | None = None
    hard: bool = False
    origins: frozenset[int] = frozenset()
    iota: int | None = None  # each element equals its index along this axis
    accumulator: int | None = None
    earned: bool = False


UNIFORM: Final = Access()
EARNED: Final = Access(earned=True)


def candidate_domain(node: Node) -> Shape:
    """The largest lane shape worth trying: the node's own lanes, else what its array carries share."""
    region = Region.of(node)
    if region.lanes:
        return region.lane_shape
    types = [r.type for j, r in enumerate(node.results) if not (isinstance(region, Loop) and is_accumulator(region, j))]
    shapes = [t.shape for t in types if isinstance(t, TensorType) and t.shape]
    shapes = shapes or [t.element.shape for t in types if isinstance(t, StackType) and t.element.shape]
    return _common_prefix(shapes)


def _common_prefix(shapes: Sequence[Shape]) -> Shape:
    if not shapes:
        return ()
    first = min(shapes, key=len)
    for k, extent in enumerate(first):
        if any(s[k] != extent for s in shapes):
            return first[:k]
    return first


def lane_domain(node: Node) -> LaneReport:
    """The report of the largest prefix of the candidate for which the node is local.

    Lane loops have no choice. Every loop without lanes of its own is local for the shape ().
    """
    shape = candidate_domain(node)
    report = lane_report(node, shape)
    while not report.local and shape and not Region.of(node).lanes:
        shape = shape[:-1]
        report = lane_report(node, shape)
    return report


def lane_report(
    subject: Node | Graph, shape: Shape, hard: Sequence[int] = (), earned: Sequence[int] = ()
) -> LaneReport:
    """Whether `subject` can run one lane per point of `shape`.

    Operands (of a Graph, inputs) at the positions `hard` exist only at the lane's own index; of those at `earned`
    a lane has the elements that it looks up.
    """
    walk = _LaneWalk(shape)
    values = subject.operands if isinstance(subject, Node) else subject.inputs
    accesses = [walk.outer(i, v, i in hard)._replace(earned=i in earned) for i, v in enumerate(values)]
    if isinstance(subject, Graph):
        walk.region(subject, accesses)
    else:
        for i in _updated_by_all(subject):
            accesses[i] = Access(accumulator=i)
        walk.control(subject, accesses)
    starts = {i for i, v in enumerate(values) if shape and walk.leads(v)}
    return LaneReport(
        shape,
        walk.culprit is None,
        walk.culprit,
        walk.reason,
        frozenset(walk.tables),
        frozenset(starts - walk.elsewhere - walk.tables - set(walk.accumulators)),
        walk.accumulators,
    )


def _updated_by_all(node: Node) -> list[int]:
    """Operands that all lanes update: those declared shared, and what a loop without lanes only scatters into."""
    region = Region.of(node)
    operands = region.accumulators
    if isinstance(region, Loop) and not region.lanes:
        operands += [region.position(j) for j in range(region.width) if is_accumulator(region, j)]
    return operands


class _LaneWalk:
    """One pass over a node's regions; `tables` and `elsewhere` collect operand positions."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.leading = tuple(range(len(shape)))
        self.culprit: Node | None = None
        self.reason = ""
        self.tables: set[int] = set()
        self.elsewhere: set[int] = set()
        self.accumulators: dict[int, ScatterUse] = {}
        self.diverged = False  # inside a node with lanes

    # ---- classifying

    def leads(self, value: Value) -> bool:
        """Whether the value's shape (a stack's element's) starts with the lane shape."""
        type = value.type.element if isinstance(value.type, StackType) else value.type
        return type.shape[: len(self.shape)] == self.shape

    def outer(self, position: int, value: Value, hard: bool) -> Access:
        """A value from outside the node."""
        if isinstance(value.type, StackType):
            return UNIFORM
        axes = self.leading if self.shape and self.leads(value) else None
        return Access(axes, hard and axes is not None, frozenset([position]), iota_axis(value))

    def own(self, value: Value) -> Access:
        """A value the lane holds itself: its own elements where S-shaped, else all of it."""
        return Access(self.leading, True) if self.shape and self.leads(value) else UNIFORM

    def blame(self, node: Node, reason: str) -> None:
        if self.culprit is None:
            self.culprit, self.reason = node, reason

    def mixed(self, node: Node, access: Access) -> None:
        """An operand was read at other lanes' indices."""
        if access.hard:
            self.blame(node, f"{node.op} combines elements of different lanes")
        self.elsewhere |= access.origins

    def unify(self, node: Node, accesses: Sequence[Access]) -> Access:
        """The result's access from the operands', each already in result axes."""
        placed = [a for a in accesses if a.axes is not None]
        earned = any(a.earned for a in accesses)
        if not placed:
            return Access(origins=frozenset().union(*[a.origins for a in accesses]), earned=earned)
        lead = next((a for a in placed if a.hard), None) or min(placed, key=lambda a: a.axes != self.leading)
        for a in placed:
            if a.axes != lead.axes:
                self.mixed(node, a)
        if lead.hard:
            return Access(lead.axes, True)
        return Access(lead.axes, False, frozenset().union(*[a.origins for a in accesses]), earned=earned)

    # ---- walking

    def region(self, graph: Graph, arguments: Sequence[Access]) -> list[Access]:
        env: dict[Value, Access] = dict(zip(graph.inputs, arguments, strict=True))
        for node in graph.nodes:
            accesses = [env[v] for v in node.operands]
            env.update(zip(node.results, self.node(node, accesses), strict=True))
        return [env[v] for v in graph.outputs]

    def node(self, node: Node, accesses: list[Access]) -> list[Access]:
        if node.regions:
            return self.control(node, accesses)
        match node.op:
            case "gather":
                return [self.gather(node, accesses)]
            case "scatter":
                return [self.scatter(node, accesses)]
            case "stack_new":
                return [UNIFORM]
            case "push":
                self.confined(node, node.operands[1], accesses[1])
                self.aligned(node, node.operands[1])
                return [UNIFORM]
            case "pop":
                self.aligned(node, node.results[1])
                return [UNIFORM, self.own(node.results[1])]
        if any(a.accumulator is not None for a in accesses):
            self.blame(node, "an accumulator is read inside the loop")
        if node.op in LIBRARY:
            self.whole(node)
        moved = [self.moved(node, i, a) for i, a in enumerate(accesses)]
        found = self.unify(node, moved)._replace(iota=_iota_of(node, accesses[0].iota if accesses else None))
        return [found] * len(node.results)  # a routine's results share the axes before those that it works on

    def moved(self, node: Node, operand: int, access: Access) -> Access:
        if access.axes is None:
            return access
        axes = moved_axes(node, operand, access.axes)
        if axes is None:
            self.mixed(node, access)
        return access._replace(axes=axes)

    def whole(self, node: Node) -> None:
        """A routine makes all of its results at once: lanes can't share what it works on, and each would make it again
        where all elements are at hand. Nor what it makes: an extent of its results that happens to be that of the lanes
        (a matrix of 9 x 7 has 7 singular values) isn't theirs."""
        if not self.shape:
            return
        led = [i for i, v in enumerate(node.operands) if self.leads(v)]
        mixes = any(moved_axes(node, i, self.leading) is None for i in led)
        if mixes or (not led and any(map(self.leads, node.results))):
            self.blame(node, f"{node.op} combines elements of different lanes")

    def confined(self, node: Node, value: Value, access: Access) -> None:
        """The value is stored (carry, stack): per lane where S-shaped, else it must be uniform."""
        if access.accumulator is not None:
            self.blame(node, "an accumulator is stored inside the loop")
        if self.shape and self.leads(value):
            if access.axes is not None and access.axes != self.leading:
                self.mixed(node, access)
        elif access.hard and access.axes:
            self.blame(node, f"{value.type} depends on the lane but doesn't start with the lane shape")

    def aligned(self, node: Node, value: Value) -> None:
        """Where each lane has its own trips or branch, a value of them all is pushed and popped for all together."""
        if self.diverged and not self.leads(value):
            self.blame(node, f"{node.op} of {value.type} is of all lanes together")

    # ---- indexing

    def gather(self, node: Node, accesses: list[Access]) -> Access:
        table, indices = accesses[0], accesses[1:]
        if any(a.accumulator is not None for a in accesses):
            self.blame(node, "an accumulator is read inside the loop")
        owned = None if table.axes is None else owned_axes(node, table.axes, [a.iota for a in indices])
        if owned is None:
            self.mixed(node, table)
            self.tables |= table.origins
        looked_up = UNIFORM if owned is None else table._replace(axes=owned)
        found = self.unify(node, [looked_up, *indices])
        if not table.earned:
            return found
        axes = self.leading if found.axes is None and self.leads(node.operands[1]) else found.axes
        return Access(axes, hard=axes is not None)

    def scatter(self, node: Node, accesses: list[Access]) -> Access:
        base, indices, updates = accesses[0], accesses[1:-1], accesses[-1]
        if any(a.accumulator is not None for a in accesses[1:]):
            self.blame(node, "an accumulator is read inside the loop")
        if base.accumulator is not None:
            self.accumulate(node, base.accumulator, accesses)
            return base
        iotas = [a.iota for a in indices]
        source = self.unify(node, [*indices, updates])
        if base.axes is not None:
            placed = owned_axes(node, base.axes, iotas)
            if placed is None or (source.axes is not None and source.axes != placed):
                self.mixed(node, base)
                self.mixed(node, source)
                return Access(earned=base.earned)
            return Access(base.axes, base.hard or source.hard, base.origins | source.origins)
        if source.axes is None:
            return Access(earned=base.earned)
        axes = _rows(node, source.axes, iotas)
        if axes is None:
            self.mixed(node, source)
        return Access(axes, source.hard and axes is not None, source.origins)

    def accumulate(self, node: Node, position: int, accesses: list[Access]) -> None:
        """A scatter into memory that all lanes share: each lane contributes its own updates."""
        indices, updates = accesses[1:-1], accesses[-1]
        axes = self.unify(node, [*indices, updates]).axes
        if axes is None:
            if node.operands[1].shape[: len(self.shape)] != self.shape:
                self.blame(node, "every lane would repeat the same update of an accumulator")
                return
            axes = self.leading
        record = self.accumulators.setdefault(position, ScatterUse())
        record.kinds.add(node.attrs["kind"])
        if _rows(node, axes, [a.iota for a in indices]) is None:
            record.exclusive = False
        if not record.exclusive and (len(record.kinds) > 1 or "set" in record.kinds):
            self.blame(node, "updates of different lanes meet and their order matters")

    # ---- control

    def control(self, node: Node, accesses: list[Access]) -> list[Access]:
        region = Region.of(node)
        outside, self.diverged = self.diverged, self.diverged or region.lanes > 0
        if isinstance(region, Loop):
            results = self.loop(region, accesses)
        else:
            for v, access in zip(region.lead, accesses, strict=False):
                if len(region.bodies) > 1:  # an only branch is taken by all
                    self.decides(region, v, access)
            outputs = [self.region(body, accesses[region.first :]) for body in region.bodies]
            results = [self.merged(region, r, [o[j] for o in outputs]) for j, r in enumerate(node.results)]
        self.diverged = outside
        return results

    def decides(self, region: Region, value: Value, access: Access) -> None:
        """A count, predicate or index: one per lane at most."""
        node, lanes = region.node, region.lanes
        if lanes > len(self.shape) or value.shape[:lanes] != self.shape[:lanes]:
            self.blame(node, f"{node.op} has lanes {value.shape[:lanes]} inside lanes {self.shape}")
        elif access.axes is not None and access.axes != self.leading:
            self.mixed(node, access)

    def loop(self, loop: Loop, operands: list[Access]) -> list[Access]:
        node = loop.node
        counts, inits, captures = loop.split(operands)
        index: list[Access] = []
        for access in counts:
            self.decides(loop, loop.decider, access)
            index.append(Access(self.leading) if loop.lanes == len(self.shape) > 0 else UNIFORM)
        carries: list[Access] = []
        for j, access in enumerate(inits):
            if access.accumulator is not None:
                carries.append(access)
                continue
            self.confined(node, loop.init(j), access)
            carries.append(EARNED if access.earned else self.own(node.results[j]))
        if loop.condition is not None:
            decision = self.region(loop.condition, [*carries, *captures])[0]
            self.decides(loop, loop.decider, decision)
        outputs = self.region(loop.body, [*index, *carries, *captures])
        for j, (carry, output) in enumerate(zip(carries, outputs, strict=True)):
            if carry.accumulator is not None:
                if output.accumulator != carry.accumulator:
                    self.blame(node, "an accumulator doesn't come back from the loop body")
            else:
                self.confined(node, loop.body.outputs[j], output)
        return carries

    def merged(self, region: Region, result: Value, outputs: list[Access]) -> Access:
        """One result of a switch."""
        node = region.node
        accumulators = {a.accumulator for a in outputs}
        if accumulators != {None}:
            if len(accumulators) > 1:
                self.blame(node, "an accumulator doesn't come back from every branch")
            return outputs[0]
        if region.lanes and self.shape:
            for access in outputs:
                self.confined(node, result, access)
            return EARNED if any(a.earned for a in outputs) else self.own(result)
        return self.unify(node, outputs)


def owned_axes(node: Node, axes: Axes, iotas: Sequence[int | None]) -> Axes | None:
    """Where the lane axes of a looked-up table end up in I + window, if each lane reads its own rows."""
    table, index = node.operands[0].shape, node.operands[1].shape
    m = len(iotas)
    placed: list[int] = []
    for a in axes:
        position = len(index) + a - m if a >= m else iotas[a]
        if position is None or position in placed or (a < m and index[position] != table[a]):
            return None
        placed.append(position)
    return tuple(placed)


def _rows(node: Node, axes: Axes, iotas: Sequence[int | None]) -> Axes | None:
    """The inverse: which axes of a scatter's base belong to updates with these lane axes."""
    base, index = node.operands[0].shape, node.operands[1].shape
    rows: list[int] = []
    for a in axes:
        if a >= len(index):
            rows.append(a - len(index) + len(iotas))
        elif a in iotas and base[iotas.index(a)] == index[a]:
            rows.append(iotas.index(a))
        else:
            return None
    return tuple(rows)


def _iota_of(node: Node, operand: int | None) -> int | None:
    """The axis along which the result counts, given that of its first operand."""
    if node.op == "iota":
        return int(node.attrs["axis"]) if node.attrs["type"].dtype.is_integer else None
    if operand is None:
        return None
    if node.op in KEEPING_SPLATS:
        axes = moved_axes(node, 0, (operand,))
        return axes[0] if axes else None
    if node.op == "cast":
        dtype, extent = node.attrs["dtype"], node.results[0].shape[operand]
        wide = dtype.is_integer and extent <= 1 << (dtype.bits - (dtype.kind == "i"))
        return operand if wide else None
    return None


def iota_axis(value: Value) -> int | None:
    """The axis along which `value` is its own index, seen through movement operations."""
    path: list[Node] = []
    node = value.node
    while node is not None and (node.op in KEEPING_SPLATS or node.op == "cast"):
        path.append(node)
        node = node.operands[0].node
    if node is None or node.op != "iota":
        return None
    axis = _iota_of(node, None)
    for step in reversed(path):
        axis = _iota_of(step, axis)
    return axis
