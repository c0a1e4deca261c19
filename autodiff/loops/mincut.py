"""Minimum vertex cut: the cheapest set of values from which all wanted values can be computed.

Every value is a vertex with a price. Sources can only be had by paying for them (or for something computed
from them); a wanted value is reached by every path of operands from a source. The maximal flow is found by
Dinic's algorithm (1970) on the graph with each vertex split in two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)

_INFINITE: Final = 1 << 62
_SOURCE: Final = 0
_SINK: Final = 1


class _Network:
    """Edge e goes to `heads[e]` with spare capacity `spare[e]`; e ^ 1 is its reverse."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.spare: list[int] = []
        self.edges: list[list[int]] = [[], []]

    def vertex(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def join(self, tail: int, head: int, capacity: int) -> None:
        self.edges[tail].append(len(self.heads))
        self.edges[head].append(len(self.heads) + 1)
        self.heads += (head, tail)
        self.spare += (capacity, 0)

    def levels(self) -> list[int]:
        """Distance from the source along edges with spare capacity; -1 where there is no way."""
        level = [-1] * len(self.edges)
        level[_SOURCE] = 0
        queue = deque([_SOURCE])
        while queue:
            tail = queue.popleft()
            for e in self.edges[tail]:
                head = self.heads[e]
                if self.spare[e] and level[head] < 0:
                    level[head] = level[tail] + 1
                    queue.append(head)
        return level

    def saturate(self) -> None:
        while (level := self.levels())[_SINK] >= 0:
            cursor = [0] * len(self.edges)
            while self._augment(level, cursor):
                pass

    def _augment(self, level: list[int], cursor: list[int]) -> bool:
        """Send flow along one shortest path; False where none is left at these levels. `cursor` is the
        first edge of each vertex that hasn't turned out to lead nowhere."""
        path: list[int] = []
        tail = _SOURCE
        while tail != _SINK:
            if cursor[tail] == len(self.edges[tail]):
                if not path:
                    return False
                tail = self.heads[path.pop() ^ 1]
                cursor[tail] += 1
                continue
            e = self.edges[tail][cursor[tail]]
            if self.spare[e] and level[self.heads[e]] == level[tail] + 1:
                path.append(e)
                tail = self.heads[e]
            else:
                cursor[tail] += 1
        amount = min(self.spare[e] for e in path)
        for e in path:
            self.spare[e] -= amount
            self.spare[e ^ 1] += amount
        return True

    def reaching_sink(self) -> set[int]:
        """Vertices from which more flow could be sent on to the sink."""
        reached, pending = {_SINK}, [_SINK]
        while pending:
            head = pending.pop()
            for e in self.edges[head]:
                tail = self.heads[e]
                if self.spare[e ^ 1] and tail not in reached:
                    reached.add(tail)
                    pending.append(tail)
        return reached


def minimum_cut(
    prices: Mapping[Vertex, int],
    operands: Mapping[Vertex, Sequence[Vertex]],
    sources: Iterable[Vertex],
    wanted: Iterable[Vertex],
    near_sources: bool,
) -> list[Vertex]:
    """The cheapest cut, in the order of `prices`; among equal ones the nearest to `wanted` (or to `sources`)."""
    network = _Network()
    entry: dict[Vertex, int] = {}
    for v, price in prices.items():
        entry[v] = network.vertex()
        network.join(entry[v], network.vertex(), price)  # the exit is entry + 1
    for v, inputs in operands.items():
        for u in inputs:
            network.join(entry[u] + 1, entry[v], _INFINITE)
    for v in sources:
        network.join(_SOURCE, entry[v], _INFINITE)
    for v in wanted:
        network.join(entry[v] + 1, _SINK, _INFINITE)
    network.saturate()
    if near_sources:
        level = network.levels()
        return [v for v in prices if level[entry[v]] >= 0 and level[entry[v] + 1] < 0]
    reaching = network.reaching_sink()
    return [v for v in prices if entry[v] not in reaching and entry[v] + 1 in reaching]
