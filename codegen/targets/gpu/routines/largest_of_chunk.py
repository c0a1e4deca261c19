"""The few largest elements of a chunk, by a workgroup that sorts nothing but a handful of candidates.

    each invocation's largest; of these, folded to `folded` ones, the `count`-th: no fewer elements are as large
    elements as large as that           candidates, somewhat more than `count` mostly
    how many candidates come before     where a candidate goes, if it is among the first `count`

Where more candidates are left than invocations, because elements lie in a bad order, the bound is raised bit by bit to
the largest one that leaves enough, unless it is that already; where equal elements are still too many, those behind a
place are left out in the same way. Equal elements come in their order, so that nothing depends on the order in which
candidates were found. (A selection bit by bit: Alabi, Blanchard, Gordon, Steinbach, Fast k-selection algorithms for
graphics processing units, 2012.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from loopgrad.codegen.scalar.ordered_bits import ordered
from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import SIZE, Emitter
from loopgrad.codegen.targets.gpu.emit.loops import counted, emit_loop
from loopgrad.codegen.targets.gpu.routines.elements import Elements
from loopgrad.codegen.targets.gpu.routines.group_code import GroupCode

FOLDED: Final = 4  # largest elements of some, for each that is wanted: the more, the fewer candidates
ARRAYS: Final = 2  # of what orders an element for each invocation
WORDS: Final = 4  # of all invocations


def memory(group: int, type: str) -> int:
    """Bytes of the workgroup."""
    return group * (ARRAYS * SIZE[type] + 4) + WORDS * 8


@dataclass(frozen=True, slots=True)
class LargestOfChunk:
    """Of `rows` of `length` elements in chunks of `each` elements for each invocation, the `count` largest. Arrays: the
    elements; their positions in the row (int32) where these are `given`; then what orders the largest ones (integers
    without sign) and their positions (int32), or where they are the `last` that are asked for only these (int64). Where
    a chunk has less than `count`, 0 follows, which comes before nothing."""

    dtype: str
    rows: int
    length: int
    each: int
    count: int
    given: bool = False
    last: bool = False

    def chunks(self, group: int) -> int:
        """Of a row."""
        return -(-self.length // (group * self.each))

    def emit(self, e: Emitter, tile: Val) -> None:
        _Chunk(e, self, tile).emit()


class _Chunk:
    def __init__(self, e: Emitter, program: LargestOfChunk, tile: Val) -> None:
        self.e, self.b, self.program = e, e.b, program
        self.code = c = GroupCode(e)
        self.elements = Elements(e, c, program.dtype, descending=True)
        self.type = self.elements.held
        row, chunk = c.divided(tile, program.chunks(c.group))
        begin = c.op("IMul", chunk, c.group * program.each)
        self.first = c.plus(c.op("IMul", row, program.length), begin)
        self.result = c.op("IMul", tile, program.count)
        self.begin = e.resize(begin, "i32")
        self.size = e.bound_integer(c.op("ISub", c.i32(program.length), self.begin), c.group * program.each)
        self.keys, self.largest = (e.b.shared(self.type, c.group) for _ in range(2))
        self.places = e.b.shared("i32", c.group)
        self.bound_found, self.found = e.b.shared(self.type, 1), e.b.shared("i32", 1)
        self.bound, self.limit = e.b.local(self.type), e.b.local("i32")

    def emit(self) -> None:
        c, b = self.code, self.b
        b.barrier()
        self.held = self._load()
        b.set(self.bound, self._first_bound())
        b.set(self.limit, c.i32(-1))
        self._collect()
        too_many = c.test("UGreaterThan", self._count(), c.group)
        self.e.when(too_many, self._refine)
        self._leave(self._count())
        b.barrier()

    # ---- elements

    def _number(self, k: int) -> Val:
        """In the chunk, of the element that is this invocation's in turn k."""
        return self.code.plus(self.code.own, k * self.code.group)

    def _load(self) -> list[Val]:
        """What orders this invocation's elements: the larger comes first."""
        c, e = self.code, self.e
        base = e.at(e.table.params[0], self.first, self.elements.size)
        loaded = []
        for k in range(self.program.each):
            number = self._number(k)
            inside = c.test("ULessThan", number, self.size)
            loaded.append((inside, self.elements.load(base, e.select(inside, number, c.i32(0)))))
        found = []
        for inside, bits in loaded:
            key = ordered(self.elements.ops, bits, self.elements.dtype)
            found.append(e.select(inside, key, self.b.const(self.type, 0)))
        return found

    def _larger(self, x: Val, y: Val) -> Val:
        return self.e.select(self.code.test("UGreaterThan", y, x), y, x)

    def _first_bound(self) -> Val:
        """The `count`-th of the largest elements of some each."""
        c, b, e, count = self.code, self.b, self.e, self.program.count
        mine = self.held[0]
        for key in self.held[1:]:
            mine = self._larger(mine, key)
        b.shared_set(self.largest, c.own, mine)
        b.barrier()
        folded = min(1 << (FOLDED * count - 1).bit_length(), c.group)

        def fold() -> None:
            largest = b.shared_get(self.largest, c.own, self.type)
            for k in range(folded, c.group, folded):
                largest = self._larger(largest, b.shared_get(self.largest, c.plus(c.own, k), self.type))
            b.shared_set(self.keys, c.own, largest)

        def rank() -> None:
            own = b.shared_get(self.keys, c.own, self.type)
            before = self._before(c.i32(folded), own, c.own, lambda number: number)
            is_bound = c.test("IEqual", before, count - 1)
            e.when(is_bound, lambda: b.shared_set(self.bound_found, c.i32(0), own))

        some = c.test("ULessThan", c.own, folded)
        e.when(some, fold)
        b.barrier()
        e.when(some, rank)
        b.barrier()
        return b.shared_get(self.bound_found, c.i32(0), self.type)

    def _before(self, count: Val, key: Val, place: Val, place_of: Callable[[Val], Val]) -> Val:
        """How many of so many keys come before this one: the larger, and of equal ones those of lower places."""
        c, b, total = self.code, self.b, self.b.local("i32")
        b.set(total, c.i32(0))

        def one(number: Val) -> None:
            other = b.shared_get(self.keys, number, self.type)
            lower = c.test("ULessThan", place_of(number), place)
            first = self.e.either(c.test("UGreaterThan", other, key), self.e.both(c.test("IEqual", other, key), lower))
            b.set(total, c.plus(b.get(total, "i32"), self.e.select(first, c.i32(1), c.i32(0))))

        counted(self.e, count, one)
        return b.get(total, "i32")

    # ---- candidates

    def _count(self) -> Val:
        """How many candidates there are."""
        return self.b.shared_get(self.found, self.code.i32(0), "i32")

    def _collect(self) -> None:
        """All elements above the bound, and of those at it the ones at places below the limit; as many as there is room
        for. All invocations come here."""
        c, b, e = self.code, self.b, self.e
        b.barrier()
        e.when(c.test("IEqual", c.own, 0), lambda: b.shared_set(self.found, c.i32(0), c.i32(0)))
        b.barrier()
        bound, limit = b.get(self.bound, self.type), b.get(self.limit, "i32")

        def enter(number: Val, key: Val) -> None:
            slot = b.shared_atomic("AtomicIAdd", self.found, c.i32(0), c.i32(1))

            def put() -> None:
                b.shared_set(self.keys, slot, key)
                b.shared_set(self.places, slot, number)

            e.when(c.test("ULessThan", slot, c.group), put)

        for k, key in enumerate(self.held):
            number = self._number(k)
            equal = e.both(c.test("IEqual", key, bound), c.test("ULessThan", number, limit))
            wanted = e.either(c.test("UGreaterThan", key, bound), equal)
            wanted = e.both(wanted, c.test("ULessThan", number, self.size))
            e.when(wanted, partial(enter, number, key))
        b.barrier()

    def _refine(self) -> None:
        """First the largest bound that leaves enough, unless few are left before; then the lowest limit."""
        b, c, count = self.b, self.code, self.program.count
        left, going, begun = (b.local("bool") for _ in range(3))
        for flag, value in ((left, True), (going, True), (begun, False)):
            b.set(flag, b.const("bool", value))

        def raised(step: Val) -> None:
            before = b.get(self.bound, self.type)
            b.set(self.bound, c.op("IAdd", before, step))
            self._collect()
            found = self._count()
            enough = c.test("UGreaterThanEqual", found, count)
            higher = c.test("UGreaterThan", b.get(self.bound, self.type), before)  # it hasn't wrapped around
            kept = self.e.both(enough, higher)
            b.set(self.bound, self.e.select(kept, b.get(self.bound, self.type), before))
            few = self.e.both(kept, c.test("ULessThanEqual", found, c.group))
            b.set(left, self.e.both(b.get(left, "bool"), self.b.inst("LogicalNot", "bool", few)))
            # where not even 1 more leaves enough, elements at the bound are equal to the last that is wanted
            b.set(going, self.e.both(b.get(left, "bool"), self.e.either(b.get(begun, "bool"), kept)))

        def moved(step: Val) -> None:
            before = b.get(self.limit, "i32")
            b.set(self.limit, c.op("IAdd", before, step))
            self._collect()
            few = c.test("ULessThan", self._count(), count)
            b.set(self.limit, self.e.select(few, b.get(self.limit, "i32"), before))

        self._bits(self.type, 1 << (8 * SIZE[self.type] - 1), raised, going, begun)
        top = 1 << max((c.group * self.program.each - 1).bit_length() - 1, 0)

        def lowest_limit() -> None:
            b.set(self.limit, c.i32(0))
            self._bits("i32", top, moved)
            b.set(self.limit, c.plus(b.get(self.limit, "i32"), 1))
            self._collect()

        self.e.when(b.get(left, "bool"), lowest_limit)

    def _bits(
        self,
        type: str,
        top: int,
        step: Callable[[Val], None],
        going: Variable | None = None,
        begun: Variable | None = None,
    ) -> None:
        """step(bit) from the highest bit down, while it is `going` on; step(1) before, where there is a `begun`."""
        b, bit = self.b, self.b.local(type)
        b.set(bit, b.const(type, top if begun is None else 1))

        def goes_on() -> Val:
            more = self.code.test("INotEqual", b.get(bit, type), 0)
            return more if going is None else self.e.both(more, b.get(going, "bool"))

        def one() -> None:
            now = b.get(bit, type)
            step(now)
            lower = self.code.op("ShiftRightLogical", now, 1)
            if begun is not None:
                lower = self.e.select(b.get(begun, "bool"), lower, b.const(type, top))
                b.set(begun, b.const("bool", True))
            b.set(bit, lower)

        emit_loop(self.e, goes_on, one)

    # ---- what is left

    def _leave(self, found: Val) -> None:
        c, b, e, p = self.code, self.b, self.e, self.program
        arrays = e.table.params[2 if p.given else 1 :]
        sizes = (8,) if p.last else (SIZE[self.type], 4)
        results = [e.at(array, self.result, size) for array, size in zip(arrays, sizes, strict=True)]

        def put(slot: Val, key: Val, position: Val) -> None:
            if p.last:
                b.store(c.at(results[0], slot, 8), c.wide(position))
                return
            b.store(c.at(results[0], slot, sizes[0]), key)
            b.store(c.at(results[1], slot, 4), position)

        def candidate() -> None:
            key, place = b.shared_get(self.keys, c.own, self.type), b.shared_get(self.places, c.own, "i32")
            slot = self._before(found, key, place, lambda number: b.shared_get(self.places, number, "i32"))
            e.when(c.test("ULessThan", slot, p.count), lambda: put(slot, key, self._position(place)))

        e.when(c.test("ULessThan", c.own, found), candidate)
        if not p.last:
            missing = e.both(c.test("UGreaterThanEqual", c.own, found), c.test("ULessThan", c.own, p.count))
            e.when(missing, lambda: put(c.own, b.const(self.type, 0), c.i32(0)))

    def _position(self, place: Val) -> Val:
        """In the row, of the element at that place of the chunk."""
        if not self.program.given:
            return self.code.plus(self.begin, place)
        base = self.e.at(self.e.table.params[1], self.first, 4)
        return self.b.load(self.code.at(base, place, 4), "i32")
