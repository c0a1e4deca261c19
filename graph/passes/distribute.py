"""Loop distribution (Allen and Kennedy): products of a loop's trips that needn't wait for each other are one product.

Enters: a Graph. Leaves: a Graph in whose `for` loops of known count, without lanes,
  - a product that no carry reaches is made of all trips before the loop, which reads a row of it in each trip;
  - a product that is only added to a derivative's sum is made of all trips after the loop: its operands are rows of
    arrays that are there, or that the loop writes; what of the sum is the rows' own is added up there, too;
  - a product of which only rows of the loop's results become anything is made of all trips after the loop, with what is
    between it and these rows (`row_tails`).

    %1, %2 = for(5, %h, %zero, %x, %w, %u)          %3 = matmul(reshape(%x), %w);  %4 = zeros[5,8,64]
      body(%k, %h, %s, %x, %w, %u)                  %1, %5 = for(5, %h, %4, %3, %u)
        %a = matmul(gather(%x, %k), %w)       ->      body(%k, %h, %t, %p, %u)
        %d = f(%a, %h);  %g = matmul(%d, %u)            %d = f(gather(%p, %k), %h);  %g = matmul(%d, %u)
        %s1 = add(%s, matmul(transpose(%h), %d))        return %g, scatter(%t, %k, %d)  (and a table for %h)
        return %g, %s1                              %2 = matmul(transpose(reshape(...)), reshape(%5))

One large product takes less time than many small ones, reads its matrix once, and a sum that the loop carries is read
and written in each trip. Rows take memory: `room` says how much they may, else the loop stays as it is. Only sums of
derivatives (`ops.accumulate`) are taken apart, because how those are rounded is written down nowhere; so the pass comes
after differentiation. Its regions' loops are the business of whoever asks for the regions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final, NamedTuple

from loopgrad.graph.accumulators import Uses, value_uses
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import dce
from loopgrad.graph.passes.fold import known_scalar
from loopgrad.graph.passes.row_tails import RowTail, row_tails
from loopgrad.graph.passes.trip_rows import TripRows
from loopgrad.graph.primitives import KEEPING_SPLATS
from loopgrad.graph.rebuild import GraphBuilder, read_values, rebuild, substituted
from loopgrad.graph.regions import Loop
from loopgrad.graph.types import StackType, TensorType

FEW: Final = 512  # multiplications of a product that isn't worth the while
ALWAYS: Final = 1 << 20  # bytes that rows may take: attention goes block by block so as not to have them
TIMES: Final = 4  # and of what the loop's stacks and arrays take already


class Distributed(NamedTuple):
    """The graph, and what to tell the user."""

    graph: Graph
    notes: tuple[str, ...]


def run(graph: Graph) -> Graph:
    """`graph` with the products of its own loops in front of them and behind them."""
    return distributed(graph, lambda _: True).graph


def distributed(graph: Graph, wanted: Callable[[Node], bool]) -> Distributed:
    """As `run`, for the loops that are `wanted`."""
    notes: list[str] = []

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        assert builder.original is not None, "callers know the loops as they were"
        count = _count(builder.original) if wanted(builder.original) else 0
        return _Distribution(Loop.of(node), count, builder, notes).results() if count > 1 else None

    made = rebuild(graph, rewrite, inner=False)
    return Distributed(dce.run(made) if notes else graph, tuple(notes))


def _count(node: Node) -> int:
    """The trips of a `for` that is no lanes' own; 0 where nobody knows them."""
    if node.op != "for" or Loop.of(node).lanes:
        return 0
    return int(known_scalar(Loop.of(node).decider) or 0)


def room(loop: Loop, count: int) -> int:
    """Bytes that rows of all trips may take."""
    held = 0
    for v in (*loop.inits, *loop.captures):
        if isinstance(v.type, StackType):
            held += count * v.type.element.nbytes
        elif v.shape and v.shape[0] >= count:
            held += v.type.nbytes
    return max(ALWAYS, TIMES * held)


class _Term(NamedTuple):
    """Something that a trip adds to a sum: `core`, moved by `moves`, of which the first comes last."""

    core: Value
    moves: tuple[Node, ...]


class _FactorRows(NamedTuple):
    """An operand of a product by rows: `value` of each trip, its last two dims exchanged or not."""

    value: Value
    flipped: bool


class _Distribution:
    """One loop. Its operands are in `builder`, where what becomes of it goes."""

    def __init__(self, loop: Loop, count: int, builder: GraphBuilder, notes: list[str]) -> None:
        self.loop = loop
        self.count = count
        self.builder = builder
        self.notes = notes
        self.room = room(loop, count)
        self.written: dict[_FactorRows, Value] = {}  # tables that the loop writes: what starts them
        self.contract = any(node.attrs["contract"] for node in loop.body.nodes if _accumulates(node))

    def results(self) -> Sequence[Value]:
        """What stands for the loop's results."""
        self._before()
        return self._after()

    def _takes(self, types: Sequence[TensorType]) -> bool:
        """Whether there is room for rows of these types, which is taken then."""
        needed = self.count * sum(t.nbytes for t in types)
        if needed > self.room:
            return False
        self.room -= needed
        return True

    def _note(self, node: Node, where: str, needed: int) -> None:
        at = f" at {node.loc}" if node.loc else ""
        rows = f"; rows of {needed:,} bytes" if needed else ""
        self.notes.append(f"matmul{at} is one product of all {self.count} trips, {where} the loop{rows}")

    # ---- before

    def _before(self) -> None:
        """Replace products that no carry reaches by rows of larger ones."""
        loop, rows = self.loop, TripRows(self.loop, self.count, self.builder)
        body = loop.body
        products = [n.results[0] for n in body.nodes if _is_large(n) and n.results[0] in rows.varying]
        if not products:
            return
        without = {v: Value(v.type) for v in products}
        inside = dce.run(substituted(body, without))
        left = read_values(inside)
        read = [v for v in products if without[v] in left]
        made_too = {v for product in read if product.node for v in product.node.operands if rows.is_made(v)}
        if not self._takes([_tensor(v) for v in (*read, *made_too)]):
            return
        captures, lookup, found = [], GraphBuilder(), dict[Value, Value]()
        arguments = []
        for v in read:
            assert v.node is not None
            self._note(v.node, "before", self.count * _tensor(v).nbytes)
            made = rows.of(v)
            source = made.node.operands[0] if made.node is not None and made.node.op == "reshape" else made
            captures.append(source)
            arguments.append(Value(source.type))
            table = lookup.value("reshape", arguments[-1], shape=made.shape)  # where it is read, that takes no memory
            found[without[v]] = lookup.value("gather", table, body.inputs[0])
        kept = substituted(Graph(body.inputs, inside.nodes, inside.outputs), found)
        kept = Graph((*body.inputs, *arguments), (*lookup.nodes, *kept.nodes), kept.outputs)
        self.loop = Loop.of(loop.rebuilt(captures=[*loop.captures, *captures], body=kept).node(loop.node.loc))

    # ---- after

    def _after(self) -> Sequence[Value]:
        """The loop without the sums of products, and these."""
        loop, uses = self.loop, value_uses(self.loop.body)
        self.rows = TripRows(loop, self.count, self.builder)
        sums = {j: terms for j in range(loop.width) if (terms := _terms(loop, j, uses))}
        products = {
            term: operands
            for terms in sums.values()
            for term in terms
            if (operands := self._operands(term, uses)) is not None
        }
        tails = self._tails(uses)
        if not products and not tails:
            self.builder.nodes.append(loop.node)
            return loop.node.results
        later = {j: [t for t in terms if t in products or self._is_written(t)] for j, terms in sums.items()}
        later = {j: terms for j, terms in later.items() if terms}
        whole = [j for j, terms in later.items() if len(terms) == len(sums[j])] + [tail.carry for tail in tails]
        results = self._smaller({j: [t for t in sums[j] if t not in later[j]] for j in later}, whole)
        for j, terms in later.items():
            total = results[j]
            for term in terms:
                total = self._plus(total, self._total(term, products.get(term)))
            results[j] = total
        for tail in tails:
            self.rows.go_on({v: self.written[_FactorRows(v, False)] for v in tail.cuts}, tail.nodes)
            rows = self.rows.of(tail.row)
            results[tail.carry] = self._plus(results[tail.carry], rows) if tail.adds else rows
        return results

    def _tails(self, uses: Uses) -> list[RowTail]:
        """Rows that are made after the loop, if there is room for what of them must be written."""
        found = []
        for tail in row_tails(self.loop, self.count, self.rows, uses, _is_large):
            missing = [v for v in tail.cuts if _FactorRows(v, False) not in self.written]
            if not self._takes([_tensor(v) for v in missing]):
                continue
            for v in missing:
                self.written[_FactorRows(v, False)] = Value(TensorType((self.count, *v.shape), v.dtype))
            found.append(tail)
            for node in filter(_is_large, tail.nodes):
                self._note(node, "after", sum(self.count * _tensor(v).nbytes for v in missing))
        return found

    def _operands(self, term: _Term, uses: Uses) -> tuple[_FactorRows, _FactorRows] | None:
        """The operands of a product that nobody else reads, if there is room for what of them must be written."""
        node = term.core.node
        if node is None or not _is_large(node) or len(uses[term.core]) != 1:
            return None
        left, right = node.operands
        source = _turned(left)
        sides = _FactorRows(left, True) if source is None else _FactorRows(source, False), _FactorRows(right, False)
        fixed = self.loop.split(self.loop.body.inputs).captures
        missing = [s for s in dict.fromkeys(sides) if s.value not in self.rows.varying and s not in self.written]
        if any(s.value in fixed for s in sides):
            return None
        if not self._takes([_tensor(s.value) for s in missing]):
            return None
        for side in missing:
            shape = _exchanged(side.value.shape) if side.flipped else side.value.shape
            self.written[side] = Value(TensorType((self.count, *shape), side.value.dtype))
        self._note(node, "after", sum(self.count * _tensor(s.value).nbytes for s in missing))
        return sides

    def _is_written(self, term: _Term) -> bool:
        return _FactorRows(term.core, False) in self.written

    def _smaller(self, rest: dict[int, list[_Term]], whole: Sequence[int]) -> list[Value]:
        """Append the loop that writes the tables and leaves these terms of sums, or none of `whole` ones."""
        loop, body, inside = self.loop, self.loop.body, GraphBuilder()
        inside.nodes += body.nodes
        (index,), carries, captures = loop.split(body.inputs)
        tables = []
        for side, table in self.written.items():
            row = _flip(inside, side.value) if side.flipped else side.value
            tables.append(inside.value("scatter", table, index, row, kind="set"))
        outputs = list(body.outputs)
        for j, terms in rest.items():
            outputs[j] = carries[j]
            for term in terms:
                moved = self._moved(term, term.core, inside)
                outputs[j] = inside.value("add", outputs[j], moved, contract=self.contract)
        kept = [j for j in range(loop.width) if j not in whole]
        starts = [self.builder.const(0, _tensor(v)) for v in self.written.values()]
        inputs = (index, *[carries[j] for j in kept], *self.written.values(), *captures)
        graph = dce.run(Graph(inputs, tuple(inside.nodes), (*[outputs[j] for j in kept], *tables)))
        form = loop.rebuilt(
            inits=[*[loop.init(j) for j in kept], *starts],
            body=graph,
            shared=[new for new, j in enumerate(kept) if j in loop.shared],
        )
        node = form.node(loop.node.loc)
        self.builder.nodes.append(node)
        made = dict(zip(self.written, node.results[len(kept) :], strict=True))
        self.written = made
        return [node.results[kept.index(j)] if j in kept else loop.init(j) for j in range(loop.width)]

    def _total(self, term: _Term, operands: tuple[_FactorRows, _FactorRows] | None) -> Value:
        """What a term is in all trips together."""
        builder = self.builder
        product = term.core.node
        if operands is None or product is None:
            total = builder.value("reduce_sum", self.written[_FactorRows(term.core, False)], axes=(0,))
        else:
            left, right = [self._stretched(side) for side in operands]
            total = builder.value("matmul", _flip(builder, left), right, **product.attrs)
        return self._moved(term, total, builder)

    def _stretched(self, side: _FactorRows) -> Value:
        """Rows (trips, ..., k, n) as (..., trips k, n)."""
        builder = self.builder
        rows = self.written.get(side)
        if rows is None:
            rows = self.rows.of(side.value)
            rows = _flip(builder, rows) if side.flipped else rows
        trips, *batch, k, n = rows.shape
        if batch:
            last = len(batch) + 1
            rows = builder.value("transpose", rows, perm=(*range(1, last), 0, last, last + 1))
        return builder.value("reshape", rows, shape=(*batch, trips * k, n))

    def _moved(self, term: _Term, core: Value, builder: GraphBuilder) -> Value:
        for node in reversed(term.moves):
            core = builder.value(node.op, core, **node.attrs)
        return core

    def _plus(self, total: Value, term: Value) -> Value:
        if known_scalar(total) == 0:
            return term
        return self.builder.value("add", total, term, contract=self.contract)


def _is_large(node: Node) -> bool:
    """Whether it is a product that somebody would call a library for."""
    if node.op != "matmul" or not node.results[0].dtype.is_float:
        return False
    return prod(node.operands[0].shape[-2:]) * node.operands[1].shape[-1] > FEW and prod(node.results[0].shape) > 0


def _terms(loop: Loop, carry: int, uses: Uses) -> list[_Term] | None:
    """What a trip adds to a carry that it doesn't look at, by additions of derivatives; None where it does more."""
    value, terms = loop.argument(carry), list[_Term]()
    while True:
        found = uses.get(value, [])
        if len(found) != 1:
            return None
        node, operand = found[0]
        if node is None:
            return terms if operand == carry else None
        if not _accumulates(node):
            return None
        terms += _expanded(node.operands[1 - operand], uses)
        value = node.results[0]


def _expanded(value: Value, uses: Uses) -> list[_Term]:
    """A value as a sum of terms."""
    pending, terms = [value], list[_Term]()
    while pending:
        v = pending.pop()
        if v.node is not None and _accumulates(v.node) and len(uses[v]) == 1:
            pending += v.node.operands[::-1]
        else:
            terms.append(_peeled(v, uses))
    return terms


def _accumulates(node: Node) -> bool:
    return node.op == "add" and "contract" in node.attrs


def _peeled(value: Value, uses: Uses) -> _Term:
    """Without what only moves elements, or adds them up, and may as well be done to a sum."""
    core, moves = value, list[Node]()
    while core.node is not None and (core.node.op in KEEPING_SPLATS or core.node.op == "reduce_sum"):
        if len(uses[core]) != 1:
            break
        moves.append(core.node)
        core = core.node.operands[0]
    return _Term(core, tuple(moves))


def _turned(value: Value) -> Value | None:
    """What it is with the last two dims exchanged, if it is that."""
    node = value.node
    if node is None or node.op != "transpose" or node.attrs["perm"] != _exchanged(range(len(value.shape))):
        return None
    return node.operands[0]


def _exchanged(dims: Sequence[int]) -> tuple[int, ...]:
    return (*dims[:-2], dims[-1], dims[-2])


def _flip(builder: GraphBuilder, value: Value) -> Value:
    return builder.value("transpose", value, perm=_exchanged(range(len(value.shape))))


def _tensor(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type
