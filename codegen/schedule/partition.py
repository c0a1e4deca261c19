"""What each node of a block becomes (its `Role`), and which lanes compute it.

`anchor[v]` is the number of lanes of the region from which v comes, as long as each operation keeps the
lanes: v then belongs into that region's kernel. `must_store` collects values that have to be in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from loopgrad.codegen.lower.context import leading_dims
from loopgrad.codegen.schedule.access import keeps_lanes
from loopgrad.codegen.schedule.canonical import MANY_ELEMENTS, MANY_LANES, SHORT_BLOCK, long_row
from loopgrad.codegen.schedule.columns import holds_columns, reads_columns
from loopgrad.codegen.schedule.cost import AGAIN, own_cost
from loopgrad.codegen.schedule.lane_memory import memory_operand
from loopgrad.codegen.schedule.made_rows import made_by_lanes
from loopgrad.codegen.schedule.neighbours import of_neighbours
from loopgrad.codegen.schedule.points import made_by_rows
from loopgrad.codegen.schedule.products import matmul_source, matrix_lanes, multiplied_in_lanes
from loopgrad.codegen.schedule.regions import Decision
from loopgrad.codegen.schedule.roles import Role
from loopgrad.graph.distinct import no_duplicates
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import ELEMENTWISE, LIBRARY, PRIMITIVES, REDUCTIONS, RUNNING_TOTALS, Kind
from loopgrad.graph.regions import Region
from loopgrad.graph.types import TensorType

MAX_TRAILING: Final = 64  # elements of one lane that a kernel stores separately
MAX_KEPT: Final = 16  # separate reductions for the kept trailing elements
SMALL_CONSTANT: Final = 64
FEW_PIECES: Final = 8  # of a concat that may be part of another one's kernel
WORKGROUP_ROW: Final = 16  # and its multiples
VERY_MANY: Final = 1 << 22  # rows
SHORTEST_HELD: Final = 8  # elements of a row that comes back
MOST_LOOKED_AT: Final = 32
FAR_FEWER: Final = 8  # times, of what rows are made of
ALONG_ROWS: Final = frozenset({*ELEMENTWISE, "broadcast", "reshape", "const", "iota"})
SMALL_UPDATE: Final = 4  # updates that are this many times smaller than their table


Edges = list[tuple[Value, bool]]
"""Operands, and whether each is read at the lane's own index."""


class Partition:
    """Roles, lanes and anchors of one block's nodes. `in_order`: as of `schedule`."""

    def __init__(
        self, graph: Graph, decision: Decision, mutable: frozenset[Value] = frozenset(), in_order: bool = False
    ) -> None:
        self.graph = graph
        self.in_order = in_order
        self.decision = decision
        self.position = {node: i for i, node in enumerate(graph.nodes)}
        self.role: dict[Node, Role] = {}
        self.lanes: dict[Node, int] = {}  # of roots other than inline ones
        self.anchor: dict[Value, int] = {}
        self.must_store: dict[Value, None] = {}
        self.apart: set[Value] = set()  # stored, and never computed in the kernel that reads them
        self.waits: dict[Node, list[Value]] = {}  # scatter -> what is in memory before it overwrites its operand
        self.mutable = mutable
        self._edges: tuple[dict[Node, Edges], dict[Node, Edges]] = ({}, {})  # of elementwise nodes, by `kept`
        self.uses = use_counts(graph)
        self.readers = _readers(graph)
        for node in graph.nodes:
            self.role[node] = self._classify(node)
        for v in graph.outputs:
            self.store(v)

    # ---- questions

    def domain(self, value: Value) -> int:
        """The lanes that compute a stored value."""
        node = value.node
        assert node is not None
        return self.lanes.get(node) or self.anchor.get(value) or prod(value.shape)

    def is_accumulator(self, value: Value) -> bool:
        """Whether it is a kernel region's result that lanes scatter into."""
        node = value.node
        if node is None or node not in self.decision.kernel:
            return False
        return memory_operand(Region.of(node), value.index) is not None

    def fusable(self, value: Value) -> bool:
        """Whether a kernel that makes the value can go on with it at the same lane."""
        assert value.node is not None
        return self.role[value.node].goes_on and not self.is_accumulator(value)

    def in_kernel(self, value: Value) -> bool:
        """Whether a kernel makes it (once stored)."""
        return value.node is not None and self.role[value.node].in_kernel

    def reads(self, node: Node) -> Sequence[Value]:
        """What a call or sub-program finds in memory: a library transposes the operands of a product itself."""
        if self.role[node] is Role.LIBRARY and node.op == "matmul":
            return [matmul_source(v)[0] for v in node.operands]
        return node.operands

    def edges(self, value: Value, kept: bool, n: int) -> Edges:
        """What computing the value inside a kernel of n lanes reads, and whether at the lane's own index."""
        node = value.node
        assert node is not None
        known = self._edges[kept].get(node)
        if known is not None:
            return known
        if node.op in ELEMENTWISE:
            known = self._edges[kept][node] = [(v, kept) for v in node.operands]
            return known
        region = self.decision.kernel.get(node)
        if region is not None:
            return [(v, kept and region.keeps_lanes(i)) for i, v in enumerate(node.operands)]
        return [(v, kept and keeps_lanes(node, i, n)) for i, v in enumerate(node.operands)]

    def store(self, value: Value) -> None:
        """Demand the value in memory."""
        if isinstance(value.type, TensorType):
            self.must_store[value] = None

    # ---- classification

    def _classify(self, node: Node) -> Role:
        if node in self.decision.kernel:
            return self._lanes(node)
        if node in self.decision.program:
            for v in node.operands:
                self.store(v)
            return Role.MEMORY if node.op == "stack_new" and not node.operands else Role.PROGRAM
        if node.op in REDUCTIONS:
            return self._reduce(node)
        match node.op:
            case "stack_new":
                for v in node.operands:
                    self.store(v)
                return Role.MEMORY
            case "scatter":
                return self._scatter(node)
            case "shard_reduce":
                self._ends(node, node.operands, node.operands[0].shape[0])
                return Role.REDUCE
            case op if op in RUNNING_TOTALS:
                return self._scan(node)
            case "matmul":
                return self._matmul(node)
            case op if op in LIBRARY:
                for v in node.operands:
                    self.store(v)
                return Role.LIBRARY
            case "alias" if node.attrs.get("kept"):
                self.store(node.results[0])
            case "concat" if made_by_rows(node, self._read_by_calls(node.results[0]), self.readers):
                return self._by_rows(node)
            case "concat" if len(node.operands) > FEW_PIECES:
                self._concat(node)
        return self._inline(node)

    def _lanes(self, node: Node) -> Role:
        region = self.decision.kernel[node]
        self.lanes[node] = region.lanes
        for i, v in enumerate(node.operands):
            if v in self.anchor and (self.anchor[v] != region.lanes or not region.keeps_lanes(i)):
                self.store(v)
        for j, r in enumerate(node.results):
            memory = memory_operand(Region.of(node), j)
            if memory is not None:
                source = node.operands[memory]
                if source.node is None or source.node.op != "const":
                    self.store(source)
                self.store(r)
            elif isinstance(r.type, TensorType) and self._trailing(r, region.lanes) is not None:
                self.anchor[r] = region.lanes
            elif isinstance(r.type, TensorType):
                self.store(r)
        return Role.LANES

    def _trailing(self, value: Value, n: int) -> int | None:
        """Elements per lane where there are few enough."""
        if leading_dims(value.shape, n) is None:
            return None
        count = prod(value.shape) // n
        return count if count <= MAX_TRAILING or (value.node is not None and value.node.regions) else None

    def _inline(self, node: Node) -> Role:
        """Keep the first anchor that survives the operation; operands of other anchors go to memory."""
        chosen: int | None = None
        for i, v in enumerate(node.operands):
            n = self.anchor.get(v)
            if n is None:
                continue
            kept = keeps_lanes(node, i, n) and self._trailing(node.results[0], n) is not None
            if kept and chosen in (None, n):
                chosen = n
            else:
                self.store(v)
        if chosen is not None:
            self.anchor[node.results[0]] = chosen
        return Role.INLINE

    def _read_by_calls(self, value: Value) -> bool:
        """Whether somebody finds the value in memory who isn't a kernel."""
        if value in self.graph.outputs:
            return True
        for node in self.readers.get(value, ()):
            called = not multiplied_in_lanes(node, self.in_order) if node.op == "matmul" else node.op in LIBRARY
            if called or node in self.decision.program:
                return True
        return False

    def _by_rows(self, node: Node) -> Role:
        role, lanes = self._inline(node), prod(node.operands[0].shape)
        if lanes and not any(v in self.anchor for v in node.operands):
            self.anchor[node.results[0]] = lanes
        return role

    def _reduce(self, node: Node) -> Role:
        operand = node.operands[0]
        n = self.anchor.get(operand)
        if n is not None:
            if keeps_lanes(node, 0, n):
                return self._inline(node)
            if self._across(node, n):
                self._ends(node, (), n)
                return Role.REDUCE
            for v in self.less_to_store(operand):
                self.store(v)
        shape, axes = operand.shape, node.attrs["axes"]
        wide = [a for a in axes if shape[a] != 1]
        count = prod(shape[a] for a in wide)
        columns = wide == [d for d in range(max(wide, default=-1) + 1) if shape[d] != 1]
        total = prod(shape)
        short = count < long_row(total, self.in_order) and not self._by_workgroups(node, count)
        made = (
            not self.in_order and made_by_lanes(node, self._in_memory) and not self._comes_back(node.results[0], total)
        )
        if short or made:
            self._share_work(node)
            return Role.INLINE
        for lanes in (total, count) if columns else (total,):
            if self._across(node, lanes):
                if reads_columns(node):
                    self._share_work(node)
                self._ends(node, (), lanes)
                return Role.REDUCE
        self._share_work(node)
        return Role.INLINE

    def less_to_store(self, value: Value) -> Sequence[Value]:
        """What is in memory for a reduction of the value by other lanes than those that make it: itself, or what it is
        made of in few operations, where that has fewer elements: two columns times each other, of all pairs of them."""
        size, pending, seen, less, cost = prod(value.shape), [value], {value}, dict[Value, None](), 0.0
        while pending and len(seen) <= MOST_LOOKED_AT:
            v = pending.pop()
            if prod(v.shape) < size:
                less[v] = None
                continue
            if v.node is None or self.role[v.node] is not Role.INLINE or v.node.op not in ALONG_ROWS:
                return [value]
            cost += own_cost(v.node)
            fresh = [o for o in v.node.operands if o not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        fewer = not pending and cost <= AGAIN and sum(prod(v.shape) for v in less) < size
        return [v for v in less if v.node is not None] if fewer else [value]

    def _by_workgroups(self, node: Node, length: int) -> bool:
        """Whether a GPU's workgroups reduce short rows. Lanes that read a row each get in each other's way in caches
        where rows begin a power of two apart: on an H100 sums of rows of 32 take 71 us by lanes, 29 by workgroups, of
        rows of 50 27 and 31. Where all of the row goes on with the result, it stays in registers meanwhile. Not rows
        that overlap in memory, as windows do, or come from all over it, nor very short ones that aren't there, as
        differences between points, where there are very many: on an H100 those of 2,048 and 2,048 in 8 dims, with their
        gradient, take 263 us by workgroups, 192 by lanes, mixtures of 16 normals at 2^17 places 131 and 143."""
        rows = node.operands[0]
        if self.in_order:
            return False
        comes_back = self._comes_back(node.results[0], prod(rows.shape))
        if holds_columns(node, comes_back, lambda other: self.role[other] is Role.REDUCE):
            return True
        if length < SHORTEST_HELD or prod(rows.shape) < MANY_ELEMENTS:
            return False
        if of_neighbours(rows, self._in_memory):
            return True
        held = comes_back or not length % WORKGROUP_ROW
        pending, seen, there = [rows], {rows}, length >= WORKGROUP_ROW or prod(rows.shape) < VERY_MANY * length
        while pending:
            v = pending.pop()
            held = held or (v.node is not None and self.role[v.node] is Role.REDUCE)
            if v.node is None or self._in_memory(v):
                there = there or prod(v.shape) == prod(rows.shape)
                continue
            if v.node.op not in ALONG_ROWS and FAR_FEWER * prod(v.shape) <= prod(rows.shape):
                continue  # stored, where it takes long to make
            if v.node.op not in ALONG_ROWS or len(seen) > MOST_LOOKED_AT:
                return False
            fresh = [o for o in v.node.operands if o not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return held and there

    def _in_memory(self, value: Value) -> bool:
        return value.node is None or self.role[value.node] is not Role.INLINE or value in self.must_store

    def _comes_back(self, value: Value, size: int) -> bool:
        """Whether elements of as many as that are made of what is made of the value, an element of each row."""
        pending, seen = [value], {value}
        while pending and len(seen) <= MOST_LOOKED_AT:
            for reader in self.readers.get(pending.pop(), ()):
                if reader.op not in ALONG_ROWS:
                    continue
                if reader.op == "broadcast" and prod(reader.results[0].shape) == size:
                    return True
                fresh = [v for v in reader.results if v not in seen]
                seen.update(fresh)
                pending.extend(fresh)
        return False

    def _share_work(self, node: Node) -> None:
        """A reduction of reductions by few lanes with much to do: the inner ones get lanes of their own."""
        lanes, inner = prod(node.results[0].shape), node.operands[0].node
        while inner is not None and inner.op in ("reshape", "transpose"):
            inner = inner.operands[0].node
        if lanes >= MANY_LANES or inner is None or inner.op not in REDUCTIONS or self.role[inner] is not Role.INLINE:
            return
        if prod(inner.operands[0].shape) >= 2 * SHORT_BLOCK * lanes:
            self.store(inner.results[0])

    def _across(self, node: Node, n: int) -> bool:
        """Whether the reduction combines a trailing range of n lanes, keeping few elements of each."""
        shape, axes = node.operands[0].shape, node.attrs["axes"]
        dims = leading_dims(shape, n)
        if dims is None:
            return False
        reduced = [d in axes for d in range(dims) if shape[d] != 1]
        trailing = all(reduced[reduced.index(True) :]) if True in reduced else False
        kept = prod(shape[d] for d in range(dims, len(shape)) if d not in axes)
        return trailing and kept <= MAX_KEPT and prod(shape[dims:]) <= MAX_TRAILING

    def kept_count(self, node: Node) -> int:
        """Separate reductions of a `reduce` node: one per kept trailing element."""
        if node.op == "shard_reduce":
            return prod(node.operands[0].shape[1:])
        kept = self.lanes[node] // _reduced_lanes(node, self.lanes[node])
        return prod(node.results[0].shape) // kept

    def _scatter(self, node: Node) -> Role:
        table, sources = node.operands[0], node.operands[1:]
        if table.node is None or table.node.op != "const":
            self.store(table)
        anchors = [n for v in sources if (n := self.anchor.get(v)) is not None]
        updates = node.operands[-1].shape
        n = anchors[0] if anchors else prod(updates)
        if leading_dims(node.operands[1].shape, n) is None and anchors:
            n = prod(updates)
        self._ends(node, sources, n)
        self._read_before(node, table, sources)
        return Role.SCATTER

    def _ends(self, node: Node, sources: Sequence[Value], n: int) -> None:
        """A kernel of n lanes ends with the node: theirs, or one that reads what others left."""
        for v in sources:
            if self.anchor.get(v, n) != n:
                self.store(v)
        self.lanes[node] = n
        self.store(node.results[0])

    def _read_before(self, node: Node, table: Value, sources: Sequence[Value]) -> None:
        """Small updates made from the table itself, and small values that others read from it, are stored first,
        so that the table needn't be copied."""
        owned = table in self.mutable or (table.node is not None and self.role[table.node] is not Role.INLINE)
        if not owned or self.uses[table] == 1 or table in self.graph.outputs:
            return
        if prod(sources[-1].shape) * SMALL_UPDATE > prod(table.shape):
            return
        readers = [n for n in self.readers[table] if n is not node]
        others = [n for n in readers if not any(self._reaches(v, r) for v in sources for r in n.results)]
        for v in sources:
            if self._reaches(v, table):
                self.store(v)
                self.apart.add(v)
        if all(self._can_precede(n, node, table) for n in others):
            for n in others:
                self.store(n.results[0])
                if self.role[n] is Role.INLINE:
                    self.apart.add(n.results[0])
            self.waits[node] = [n.results[0] for n in others]

    def _can_precede(self, reader: Node, scatter: Node, table: Value) -> bool:
        """Whether a kernel or call of its own can read the table before the scatter, and leave little."""
        if self.position[reader] > self.position[scatter]:
            return False
        if self.role[reader] is not Role.INLINE:
            return self.role[reader] in (Role.REDUCE, Role.SCAN, Role.LIBRARY)
        return prod(reader.results[0].shape) * SMALL_UPDATE <= prod(table.shape)

    def _reaches(self, value: Value, target: Value) -> bool:
        """Whether a kernel that computes the value reads the target."""
        pending, seen = [value], {value}
        while pending:
            v = pending.pop()
            if v is target:
                return True
            if v.node is not None and self.role[v.node].goes_on and v not in self.must_store:
                fresh = [o for o in v.node.operands if o not in seen]
                seen.update(fresh)
                pending.extend(fresh)
        return False

    def _scan(self, node: Node) -> Role:
        """By lanes that make whole rows of the operand, else a kernel of its own, whose lanes are the elements."""
        operand, axis = node.operands[0], node.attrs["axis"]
        n = prod(operand.shape) // operand.shape[axis]
        if n != prod(operand.shape) and self.anchor.get(operand) == n and keeps_lanes(node, 0, n):
            self.lanes[node] = n
        else:
            if operand in self.anchor or self._takes_loops(operand):
                self.store(operand)
            self.lanes[node] = prod(operand.shape)
        self.store(node.results[0])
        return Role.SCAN

    def by_element(self, node: Node) -> bool:
        """Whether a running total has a kernel of its own."""
        return self.role[node] is Role.SCAN and self.lanes[node] == prod(node.operands[0].shape)

    def _takes_loops(self, value: Value) -> bool:
        """Whether one element is more than elements of others, combined and moved."""
        pending, seen = [value], {value}
        while pending:
            v = pending.pop()
            if v.node is None or self.role[v.node] is not Role.INLINE or v in self.must_store:
                continue
            if PRIMITIVES[v.node.op].kind in (Kind.REDUCTION, Kind.CONTRACTION):
                return True
            fresh = [o for o in v.node.operands if o not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return False

    def _concat(self, node: Node) -> None:
        """A concat of concats: the inner ones' code isn't repeated in the outer one's kernel."""
        for v in node.operands:
            if v.node is not None and v.node.op == "concat" and len(v.node.operands) > FEW_PIECES:
                self.store(v)
                self.apart.add(v)

    def _matmul(self, node: Node) -> Role:
        if multiplied_in_lanes(node, self.in_order):
            return self._by_matrices(node) if self.in_order else self._inline(node)
        for v in node.operands:
            self.store(matmul_source(v)[0])
        return Role.LIBRARY

    def _by_matrices(self, node: Node) -> Role:
        """Of very many small ones, or a very long one, each lane makes a whole product, or a row: elements by
        themselves would read each factor as often as it has columns, or rows."""
        role, result = self._inline(node), node.results[0]
        lanes = matrix_lanes(node)
        if lanes and not any(v in self.anchor for v in (*node.operands, result)):
            self.anchor[result] = lanes
        return role


def use_counts(graph: Graph) -> dict[Value, int]:
    """How often each value is read, outputs included."""
    counts: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.operands:
            counts[v] = counts.get(v, 0) + 1
    for v in graph.outputs:
        counts[v] = counts.get(v, 0) + 1
    return counts


def _readers(graph: Graph) -> dict[Value, list[Node]]:
    """The nodes that read each value, a transposed factor's too, in order."""
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        read = dict.fromkeys(node.operands)
        if node.op == "matmul":
            read.update(dict.fromkeys([matmul_source(v)[0] for v in node.operands]))
        for v in read:
            readers.setdefault(v, []).append(node)
    return readers


def _reduced_lanes(node: Node, lanes: int) -> int:
    shape = node.operands[0].shape
    dims = leading_dims(shape, lanes) or 0
    return prod(shape[d] for d in range(dims) if d in node.attrs["axes"])


def scatter_exclusive(node: Node, lanes: int) -> bool:
    """Whether no two lanes of a top-level scatter meet in one element."""
    return lanes == 1 or no_duplicates(node)
