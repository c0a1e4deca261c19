"""When each stored value can be computed, and which inline nodes its kernel holds.

The level of a root is the number of kernels and calls that must have finished before its own starts:

    operand in memory before the block                       0
    stored, made at the same lane by a kernel                the operand's level (one kernel can do both)
    stored, otherwise (reduced, scattered, shifted, called)  one more than the operand's level

A row that comes from a stack is there from the level of its step on, which is the first of its level.
A scatter that overwrites its operand comes after whatever else reads that (`Partition.waits`). Where a kernel was cut
into segments, a root doesn't share a kernel with what an earlier segment makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from loopgrad.codegen.schedule.access import is_stack
from loopgrad.codegen.schedule.partition import Partition
from loopgrad.codegen.schedule.roles import Role
from loopgrad.graph.nodes import Node, Value

Segment = tuple[int, ...]  # parts of parts of a kernel, in order


class Levels:
    """`level[v]` of every stored value and `step[node]` of every call or sub-program."""

    def __init__(self, partition: Partition, stored: set[Value], segments: Mapping[Node, Segment]) -> None:
        self.partition = partition
        self.stored = stored
        self.apart = partition.apart  # stored values that end their kernel
        self.segments = segments
        self.level: dict[Value, int] = {}
        self.step: dict[Node, int] = {}
        self.missing: dict[Value, None] = {}  # region results read where their kernel isn't
        self._known: dict[tuple[int, Segment], tuple[dict[Value, int], dict[Value, int]]] = {}
        for node in partition.graph.nodes:
            self._visit(node)

    def _visit(self, node: Node) -> None:
        role = self.partition.role[node]
        if role.is_step:
            self.step[node] = max([self.after(v) for v in self.partition.reads(node)], default=0)
        elif role is not Role.MEMORY:
            for r in node.results:
                if r in self.stored:
                    n = self.partition.domain(r)
                    before = [self.after(v) for v in self.partition.waits.get(node, ())]
                    self.level[r] = max([self._cone(self._starts(r, n), n, self.segments.get(node, ())), *before])

    def _starts(self, value: Value, n: int) -> list[tuple[Value, bool]]:
        node = value.node
        assert node is not None
        match self.partition.role[node]:
            case Role.REDUCE:
                return [(node.operands[0], True)]
            case Role.SCATTER:
                return [(v, True) for v in node.operands[1:]] + [(node.operands[0], False)]
            case Role.SCAN:
                return [(node.operands[0], not self.partition.by_element(node))]
        return self.partition.edges(value, True, n)

    def after(self, value: Value) -> int:
        """The level from which the value can be loaded."""
        node = value.node
        if node is None:
            return 0
        if node in self.step:
            return self.step[node] + (node.op != "pop")
        if self.partition.role[node] is Role.MEMORY:
            return max([self.after(v) for v in node.operands], default=0)
        return self.level[value] + 1 if value in self.level else 0

    def _settled(self, value: Value, kept: bool, n: int, segment: Segment) -> int | None:
        """The level that reading a value asks for; None where it is computed inside the kernel."""
        node = value.node
        if node is None:
            return 0
        role = self.partition.role[node]
        if not role.in_kernel:
            return self.after(value)
        level = self.level.get(value)
        if level is not None:
            fused = kept and self.partition.fusable(value) and self.partition.domain(value) == n
            fused = fused and value not in self.apart and self.segments.get(node, ()) >= segment
            return level if fused else level + 1
        if role is Role.LANES and not is_stack(value) and not (kept and self.partition.lanes[node] == n):
            self.missing[value] = None
            return 0
        return None

    def _cone(self, starts: Iterable[tuple[Value, bool]], n: int, segment: Segment) -> int:
        """The highest level that anything below the starts asks for (an explicit stack: chains are long)."""
        return max([self._demand(value, kept, n, segment) for value, kept in starts], default=0)

    def _demand(self, start: Value, start_kept: bool, n: int, segment: Segment) -> int:
        known = self._known.setdefault((n, segment), ({}, {}))  # by `kept`
        pending: list[tuple[Value, bool, list[tuple[Value, bool]] | None]] = [(start, start_kept, None)]
        while pending:
            value, kept, edges = pending.pop()
            if edges is None:
                if value in known[kept]:
                    continue
                settled = self._settled(value, kept, n, segment)
                if settled is not None:
                    known[kept][value] = settled
                    continue
                edges = self.partition.edges(value, kept, n)
                if below := [(v, k, None) for v, k in edges if v not in known[k]]:
                    pending.append((value, kept, edges))
                    pending += below
                    continue
            known[kept][value] = max([known[k][v] for v, k in edges], default=0)
        return known[start_kept][start]

    def starts(self, value: Value) -> list[tuple[Value, bool]]:
        """What the root of a stored value reads first."""
        return self._starts(value, self.partition.domain(value))
