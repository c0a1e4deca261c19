"""Kernels: stored values of one level and one number of lanes, and the inline nodes they share.

Enters: a Partition and what must be stored. Leaves: groups. Grouping may show that something should be
stored after all; then it starts over with that decision made:

    an expensive value is computed in two kernels          store it where it is computed first
    a kernel has too many operations                       cut it where few values cross
    a region's result is read by a kernel without it       store it
    a value was stored that no kernel then loads           don't store it: kernels of one level can't load from each
                                                           other, and what a cut made loads what comes after
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from loopgrad.codegen.schedule.access import is_stack
from loopgrad.codegen.schedule.levels import Levels, Segment
from loopgrad.codegen.schedule.partition import FEW_PIECES, Partition
from loopgrad.codegen.schedule.recomputed import computed_twice, last_of, roots_by_kernel, worth_keeping
from loopgrad.codegen.schedule.roles import Role
from loopgrad.codegen.schedule.stored import choose_stored, inline_costs
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import NULLARY, REDUCTIONS

MAX_NODES: Final = 1000
SHORT_PIECE: Final = 400  # nodes of a part of a larger kernel, where no more than FEW values cross into the next
LONG_PIECE: Final = 1000  # of other parts
CUT_WINDOW: Final = 100  # look this far back for the cheapest cut
FEW: Final = 4
ROUNDS: Final = 12
SHARED: Final = 1.25  # two kernels may compute this much of one together
PIECE: Final = 16  # nodes that are as much work for the compiler as finding one piece of a long concat


@dataclass(slots=True, eq=False)
class Group:
    """One kernel to be. `nodes`: computed inside; `loads`: read from memory."""

    level: int
    lanes: int
    roots: list[Value]
    nodes: dict[Node, None] = field(default_factory=dict)
    loads: dict[Value, None] = field(default_factory=dict)
    stacks: set[Node] = field(default_factory=set)  # regions whose stacks are read here


def form_groups(partition: Partition) -> tuple[list[Group], Levels]:
    """Groups in topological order. What must be stored is; what had better be, for some rounds."""
    stored = choose_stored(partition)
    segments: dict[Node, Segment] = {}
    costs = inline_costs(partition, stored)
    looked, rounds, cut = 0, 0, [0]
    in_vain, again = set[Value](), set[Value]()
    while True:
        levels = Levels(partition, stored, segments)
        more = {v for v in levels.missing if v not in stored}
        if not more and looked < ROUNDS:
            looked += 1
            more = computed_twice(partition, levels, costs, again) - in_vain
            again |= more
        if not more:
            groups = _collect(partition, levels)
            large = [g for g in groups if len(g.nodes) > MAX_NODES]
            more = _shared(partition, groups, costs, stored, again) - in_vain
            again |= more
            sizes = [len(g.nodes) for g in large]
            if rounds == ROUNDS or not (more or (large and sizes != cut)):
                unread = _unread(partition, groups, stored)
                if not unread:
                    return groups, levels
                in_vain |= unread
                stored -= unread
                continue
            rounds, cut = rounds + 1, sizes
            for group in large:
                more |= _cut(partition, group, segments)
        stored |= more


def _collect(partition: Partition, levels: Levels) -> list[Group]:
    """What kernels are made of, those that are too large in parts."""
    found = roots_by_kernel(partition, levels)
    groups = [Group(level, lanes, roots) for (level, lanes, _), roots in found.items()]
    groups = [part for group in groups for part in _split(partition, levels, group)]
    position = partition.position
    groups.sort(key=lambda g: (g.level, min(position[v.node] for v in g.roots if v.node is not None)))
    return groups


def _split(partition: Partition, levels: Levels, group: Group) -> list[Group]:
    """The group filled; in halves, and halves of these, while it is too large and they share little."""
    _fill(partition, levels, group)
    if _weight(group) <= MAX_NODES or len(group.roots) == 1:
        return [group]
    middle = len(group.roots) // 2
    halves = [Group(group.level, group.lanes, roots) for roots in (group.roots[:middle], group.roots[middle:])]
    for half in halves:
        _fill(partition, levels, half)
    if sum(map(_weight, halves)) > SHARED * _weight(group):
        return [group]
    return [part for half in halves for part in _split(partition, levels, half)]


def _weight(group: Group) -> int:
    """Nodes, and what finds the piece in long concats."""
    pieces = [len(n.operands) for n in group.nodes if n.op == "concat"]
    return len(group.nodes) + PIECE * sum(n for n in pieces if n > FEW_PIECES)


def _fill(partition: Partition, levels: Levels, group: Group) -> None:
    """Everything between the roots and memory."""
    seen: tuple[set[Value], set[Value]] = set(), set()  # by whether they are read at the lane's own index
    own = set(group.roots)
    for root in group.roots:
        assert root.node is not None
        group.nodes[root.node] = None
        pending = list(levels.starts(root))
        while pending:
            value, kept = pending.pop()
            node = value.node
            if node is None:
                group.loads[value] = None
                continue
            if value in seen[kept]:
                continue
            seen[kept].add(value)
            if value not in own and _is_loaded(levels, value, group.level):
                group.loads[value] = None
                continue
            group.nodes[node] = None
            if node.op == "stack_new":
                group.loads.update(dict.fromkeys(node.operands))
                continue
            if node.regions and is_stack(value):
                group.stacks.add(node)
            pending.extend(partition.edges(value, kept, group.lanes))
    order = sorted(group.nodes, key=partition.position.__getitem__)
    group.nodes = dict.fromkeys(order)


def _is_loaded(levels: Levels, value: Value, level: int) -> bool:
    made = levels.level.get(value)
    if made is not None:
        return made < level
    node = value.node
    if node is None:
        return False
    role = levels.partition.role[node]
    return role.is_step or (role is Role.MEMORY and not is_stack(value))


def _shared(
    partition: Partition, groups: list[Group], costs: dict[Value, float], stored: set[Value], before: set[Value]
) -> set[Value]:
    """Expensive values that several kernels compute: the last ones before the kernels part."""
    holders: dict[Node, list[Group]] = {}
    for group in groups:
        for node in group.nodes:
            holders.setdefault(node, []).append(group)
    twice = {n for n, held in holders.items() if _computations(partition, n, held) > 1}
    if not twice:
        return set()
    found: set[Value] = set()
    roots = {r.node for g in groups for r in g.roots}
    for node in holders:
        for v in node.operands:
            if v.node not in twice or (node in twice and node not in roots):
                continue
            if worth_keeping(partition, v, costs.get(v, 0.0), stored):
                found.add(v)
    return last_of(partition, {v for v in found if v not in stored and not is_stack(v)}, before)


def _unread(partition: Partition, groups: list[Group], stored: set[Value]) -> set[Value]:
    """Values that are stored for kernels, none of which loads them."""
    read = set(partition.must_store).union(*[g.loads for g in groups])
    return {v for v in stored if v not in read and v.node is not None and partition.role[v.node] is Role.INLINE}


def _computations(partition: Partition, node: Node, held: list[Group]) -> int:
    """In how many kernels a node is computed without need: those that replay a loop for its stack need it."""
    if partition.role[node] is Role.INLINE:
        return len(held)
    if partition.role[node] is Role.LANES:
        return sum(node not in g.stacks for g in held)
    return 1


def _cut(partition: Partition, group: Group, segments: dict[Node, Segment]) -> set[Value]:
    """Segments that end where the fewest values are alive: those are to be stored. Each is measured from the end of the
    one before, so that the segments of a program that repeats itself are equal."""
    nodes = list(group.nodes)
    live = _Crossing(partition, group, nodes)
    places = _places(live.sizes())
    for i, node in enumerate(nodes):
        segments[node] = (*segments.get(node, ()), bisect_left(places, i))
    return live.at(places)


def _places(sizes: Sequence[int]) -> list[int]:
    """After which nodes to cut, given how many values cross there."""
    places: list[int] = []
    first = 0
    while True:
        best = _cheapest(sizes, first + SHORT_PIECE)
        if best is not None and sizes[best] > FEW:
            best = _cheapest(sizes, first + LONG_PIECE)
        if best is None:
            return places
        places.append(best)
        first = best + 1


def _cheapest(sizes: Sequence[int], end: int) -> int | None:
    """Where the fewest values cross, not far before `end`; None behind the last node but one."""
    window = range(end - CUT_WINDOW, min(end, len(sizes) - 2))
    return min(window, key=lambda i: (sizes[i], -i)) if window else None


class _Crossing:
    """Which values of a kernel to be are made at or before a place in it and read after."""

    def __init__(self, partition: Partition, group: Group, nodes: list[Node]) -> None:
        self.count = len(nodes)
        place = {n: i for i, n in enumerate(nodes)}
        last: dict[Value, int] = {}
        for i, node in enumerate(nodes):
            for v in node.operands:
                if v.node in place and v not in group.loads:
                    last[v] = i
        self.spans = [
            (place[v.node], end, v)
            for v, end in last.items()
            if v.node is not None and _can_cut(partition, v, group.lanes)
        ]

    def sizes(self) -> list[int]:
        """How many at each place; not those that must cross some cut wherever cuts are."""
        change = [0] * (self.count + 1)
        for first, end, _ in self.spans:
            if end - first <= LONG_PIECE:
                change[first] += 1
                change[end] -= 1
        return list(accumulate(change))

    def at(self, places: list[int]) -> set[Value]:
        """The values at any of the (rising) places."""
        found: set[Value] = set()
        for first, end, v in self.spans:
            i = bisect_left(places, first)
            if i < len(places) and places[i] < end:
                found.add(v)
        return found


def _can_cut(partition: Partition, value: Value, lanes: int) -> bool:
    """Values of the kernel's own lanes; free, smaller and reduced ones are computed again behind the cut."""
    node = value.node
    assert node is not None
    if node.op in NULLARY or node.op in REDUCTIONS or node.op == "broadcast":
        return False
    return partition.role[node] is Role.INLINE and partition.domain(value) == lanes
