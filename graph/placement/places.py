"""Where the elements of each value of a program are: on all processes, or along one axis each process has its lanes.

Enters: a Graph and the places of its inputs. Leaves: the place of every value.

    replicated   every process has all elements, the same bits
    lanes        along one axis each process has its own range of elements (`layout`)
    partial      a reduction over lanes: every process has something to contribute, until a collective made it whole.
                 No value stays partial: `is_reduced` says of a node that its results come from a collective

Elementwise operations, loops of lanes and whatever works along other axes keep lanes. What would make elements of
different lanes meet, or move them, is refused with the name of the function that says so: `lg.gather_all`.

    x: lanes, p: replicated        mul(x, broadcast(p)): lanes      reduce_sum over axis 0: replicated, by a collective
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from loopgrad.graph.errors import DeviceError
from loopgrad.graph.lane_axes import moved_axes
from loopgrad.graph.location import located
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import KEEPING_SPLATS, NULLARY, PRIMITIVES, REDUCTIONS, STACKS
from loopgrad.graph.regions import Call, Loop, Region, Switch
from loopgrad.graph.types import StackType, TensorType


@dataclass(frozen=True, slots=True)
class Place:
    """`axis`: along which the value has lanes (of a stack: its elements); None where it is replicated. `position`: the
    axis along which elements are their own coordinates, those of all processes counted. `private`: an accumulator of
    which each lane has one of its own, in front."""

    axis: int | None = None
    position: int | None = None
    private: bool = False

    def __str__(self) -> str:
        if self.private:
            return "partial"
        return "replicated" if self.axis is None else "lanes" if self.axis == 0 else f"lanes along axis {self.axis}"


REPLICATED: Final = Place()
Places = tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class RegionPlaces:
    """Of a node with regions: the places as which operands are handed on, of the arguments of its regions (those
    behind what decides), of its results, and of these inside. `split`: the axis of the node's own lanes that
    processes share."""

    operands: Places
    arguments: Places
    results: Places
    inner: Places
    split: int | None = None


def refuse(node: Node, what: str) -> NoReturn:
    text = (
        f"{node.op}: expected to work along axes other than that of the lanes, got {what}: lanes are on several "
        "processes; give all of them to each with lg.gather_all(x) first"
    )
    raise DeviceError(located(text, node.loc))


def joined(node: Node, places: Sequence[Place]) -> Place:
    """The place of what continues all of these."""
    axes = {p.axis for p in places if p.axis is not None}
    if len(axes) > 1:
        refuse(node, f"lanes along the axes {sorted(axes)} of one value")
    positions = {p.position for p in places}
    return Place(axes.pop() if axes else None, positions.pop() if len(positions) == 1 else None, places[0].private)


def _check_contracted(node: Node, operands: Places) -> None:
    """Of a product that adds up lanes, both factors have them there, or one has all; an only lane is along any axis."""
    rank = len(node.operands[0].shape)
    for value, place, axis in zip(node.operands, operands, (rank - 1, rank - 2), strict=True):
        if place.axis not in (None, axis) and value.shape[place.axis] > 1:
            refuse(node, f"a factor {value.type} whose axis {place.axis} are lanes, as are those that are added up")


def lies_along(value: Value, axis: int) -> bool:
    """Whether all elements of a value along an axis are one by how it was made: each process makes its own."""
    node = value.node
    if node is None:
        return False
    return node.op == "const" or (node.op == "broadcast" and axis not in node.attrs["dims"])


class PlaceAnalysis:
    """Places by graph and places of its inputs: a body is asked about as often as the loops around it are."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[Graph, Places], dict[Value, Place]] = {}
        self._regions: dict[tuple[Node, Places], RegionPlaces] = {}

    def of(self, graph: Graph, inputs: Places) -> dict[Value, Place]:
        """The place of each value of `graph`."""
        known = self._graphs.get((graph, inputs))
        if known is None:
            known = dict(zip(graph.inputs, inputs, strict=True))
            for node in graph.nodes:
                found = self.results(node, tuple([known[v] for v in node.operands]))
                known.update(zip(node.results, found, strict=True))
            self._graphs[graph, inputs] = known
        return known

    def outputs(self, graph: Graph, inputs: Places) -> Places:
        env = self.of(graph, inputs)
        return tuple([env[v] for v in graph.outputs])

    def results(self, node: Node, operands: Places) -> Places:
        """The places of a node's results."""
        if node.regions:
            return self.region(node, operands).results
        if node.op in NULLARY:
            return (Place(None, node.attrs.get("axis")),)
        if node.op in STACKS:
            kept = joined(node, operands) if operands and node.op != "stack_new" else REPLICATED
            return (kept,) * len(node.results)
        if gathers(node, operands):
            return (replace(operands[0], axis=None),)
        if node.op == "scatter":
            return (self._scatter(node, operands),)
        if node.op == "gather" and operands[0].axis is not None and operands[0].axis < len(node.operands) - 1:
            return (self._own_rows(node, operands),)
        if is_reduced(node, operands):
            if node.op == "matmul":
                _check_contracted(node, operands)
            return (REPLICATED,) * len(node.results)
        return (self._moved(node, operands),) * len(node.results)

    def _moved(self, node: Node, operands: Places) -> Place:
        """The place of the results of a node that keeps lanes."""
        found: list[Place] = []
        for i, place in enumerate(operands):
            if place.axis is not None:
                moved = moved_axes(node, i, (place.axis,))
                if moved is None:
                    refuse(node, f"an operand {node.operands[i].type} whose axis {place.axis} are lanes")
                found.append(Place(moved[0]))
        place = joined(node, found) if found else REPLICATED
        return replace(place, position=_position(node, operands))

    def _own_rows(self, node: Node, operands: Places) -> Place:
        """Of a gather from a table of lanes: each lane must look in its own row."""
        axis = operands[0].axis
        assert axis is not None
        at = operands[1 + axis].position
        if at is None and node.operands[0].shape[axis] == 1:  # there is one lane, and one position
            at = next((p.axis for p in operands[1:] if p.axis is not None), None)
        if at is None or node.operands[1].shape[at] != node.operands[0].shape[axis]:
            refuse(node, f"positions along axis {axis}, whose elements are lanes")
        others = [p.axis for p in operands[1:] if p.axis is not None]
        if any(a != at for a in others):
            refuse(node, "lanes along two axes")
        return Place(at)

    def _scatter(self, node: Node, operands: Places) -> Place:
        table, *indices, updates = operands
        ranks, count = len(node.operands[1].shape), len(indices)
        starts = ((table.axis, count), (updates.axis, ranks))
        windows = {axis - start for axis, start in starts if axis is not None and axis >= start}
        met = {p.axis for p in (*indices, updates) if p.axis is not None and p.axis < ranks}
        if len(windows) + len(met) > 1:
            refuse(node, "lanes along two axes")
        if windows:
            return Place(windows.pop() + count)
        for axis, index in enumerate(indices):
            at = index.position
            if at is None or node.operands[1].shape[at] != node.operands[0].shape[axis]:
                continue
            if met <= {at} and table.axis in (None, axis) and (met or table.axis is not None) and not table.private:
                return Place(axis)
        if table.axis is not None:
            refuse(node, f"positions along axis {table.axis}, whose elements are lanes")
        if met and node.attrs["kind"] != "add":
            refuse(node, f"lanes that meet in elements by {node.attrs['kind']!r}")
        return table

    # ---- regions

    def region(self, node: Node, operands: Places) -> RegionPlaces:
        """The places around and inside a node with regions."""
        known = self._regions.get((node, operands))
        if known is None:
            region = Region.of(node)
            if isinstance(region, Loop):
                known = self._loop(region, operands)
            elif isinstance(region, Switch):
                known = self._switch(region, operands)
            else:
                assert isinstance(region, Call)
                handed, results = self._with_stacks(region, list(operands))
                known = RegionPlaces(tuple(handed), tuple(handed), results, results)
            self._regions[node, operands] = known
        return known

    def _loop(self, loop: Loop, operands: Places) -> RegionPlaces:
        node, lanes = loop.node, loop.lanes
        lead, carries, captures = (list(part) for part in loop.split(operands))
        split: int | None = None
        while True:
            before = (split, list(lead), list(carries), list(captures))
            decider = lead[0] if lead else self._condition(loop, carries, captures)
            reached = [p.axis for p in (decider, *carries) if p.axis is not None and p.axis < lanes and not p.private]
            split = next(iter(reached), split)
            if split is not None:
                lead = [Place(split)] * len(lead)
                for j, v in enumerate(loop.inits):
                    if j in loop.shared:
                        carries[j] = carries[j] if carries[j].axis is not None else Place(private=True)
                    else:
                        carries[j] = joined(node, [Place(split), replace(carries[j], position=None)])
                        assert isinstance(v.type, TensorType | StackType)
                captures = [_followed(p, v, split, lanes) for p, v in zip(captures, loop.captures, strict=True)]
            inputs = (*lead, *carries, *captures)
            outputs = self.outputs(loop.body, inputs)
            carries = [joined(node, pair) for pair in zip(carries, outputs, strict=True)]
            if before == (split, lead, carries, captures):
                break
        arguments = (*lead, *carries, *captures)
        if not loop.lanes and loop.condition is not None and self._condition(loop, carries, captures).axis is not None:
            refuse(node, "a condition with lanes")
        given = loop.split(operands).carries
        results = tuple([_outside(p, g) for p, g in zip(carries, given, strict=True)])
        return RegionPlaces(arguments, arguments, results, tuple(carries), split)

    def _condition(self, loop: Loop, carries: Sequence[Place], captures: Sequence[Place]) -> Place:
        if loop.condition is None:
            return REPLICATED
        return self.outputs(loop.condition, (*carries, *captures))[0]

    def _with_stacks(self, region: Region, handed: list[Place]) -> tuple[list[Place], Places]:
        """The places of a branch's or a call's arguments, and of its results: a stack onto which lanes are pushed
        inside is one of lanes where it enters."""
        stacks = [(j, i) for j, i in region.threaded.items() if isinstance(region.node.results[j].type, StackType)]
        while True:
            each = [self.outputs(body, tuple(handed)) for body in region.bodies]
            results = tuple([joined(region.node, places) for places in zip(*each, strict=True)])
            entering = {i - region.offset: results[j] for j, i in stacks if results[j].axis is not None}
            late = {i: place for i, place in entering.items() if handed[i].axis is None}
            if not late:
                return handed, results
            for i, place in late.items():
                handed[i] = Place(place.axis)

    def _switch(self, switch: Switch, operands: Places) -> RegionPlaces:
        index, *handed = operands
        split = index.axis if switch.lanes else None
        if split is not None:
            inputs = [switch.inputs_of(i)[0] for i in switch.accumulators]
            handed = [
                Place(private=True) if v in inputs and p.axis is None else _followed(p, o, split, switch.lanes)
                for p, v, o in zip(handed, switch.branches[0].inputs, switch.arguments, strict=True)
            ]
        handed, found = self._with_stacks(switch, handed)
        results = list(found)
        if split is not None:
            results = [p if p.private or p.axis is not None else Place(split) for p in results]
        sources = [operands[switch.source(j)] if p.private else p for j, p in enumerate(results)]
        outside = tuple([_outside(p, g) for p, g in zip(results, sources, strict=True)])
        return RegionPlaces((index, *handed), tuple(handed), outside, tuple(results), split)


def _followed(place: Place, value: Value, split: int, lanes: int) -> Place:
    """The place of a captured value inside lanes: what is one along them is made by each process for its own."""
    fits = isinstance(value.type, TensorType) and len(value.shape) >= lanes
    return Place(split) if place == REPLICATED and fits and lies_along(value, split) else place


def _outside(place: Place, given: Place) -> Place:
    """The place of a result: private accumulators of lanes are added up where they were not private before."""
    return REPLICATED if place.private and not given.private else place


def _position(node: Node, operands: Places) -> int | None:
    """Along which axis the result's elements are their coordinates."""
    if len(operands) != 1 or operands[0].position is None or len(node.results) != 1:
        return None
    if node.op == "cast" or node.op in KEEPING_SPLATS:
        moved = moved_axes(node, 0, (operands[0].position,))
        return moved[0] if moved else None
    return None


def gathers(node: Node, operands: Places) -> bool:
    """Whether all processes get all lanes of the operand."""
    along = node.attrs.get("gathered") if node.op == "alias" else None
    if not along or operands[0].axis is None:
        return False
    return along is True or operands[0].axis - len(node.operands[0].shape) in along


def meets(node: Node, operands: Places, result: Place) -> bool:
    """Whether a scatter adds lanes into elements that all processes have, or all lanes of a loop."""
    return node.op == "scatter" and result.axis is None and any(p.axis is not None for p in operands[1:])


def is_reduced(node: Node, operands: Places) -> bool:
    """Whether lanes of a plain node's operands meet in its result, which a collective makes whole."""
    if node.op in REDUCTIONS:
        return operands[0].axis in node.attrs["axes"]
    if PRIMITIVES[node.op].finds:
        return bool(operands[0].axis == node.attrs["axis"])
    if node.op == "reshape":  # as derivatives of sums do, where there is one lane
        axis = operands[0].axis
        return axis is not None and node.operands[0].shape[axis] == 1 and moved_axes(node, 0, (axis,)) is None
    if node.op == "matmul":
        left, right = operands
        rank = len(node.operands[0].shape)
        return left.axis == rank - 1 or right.axis == rank - 2
    return False
