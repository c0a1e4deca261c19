"""LLVM IR text that takes some of its numbers from a table: machine code that programs of other shapes share.

The texts of two programs that differ in their extents alone often differ in a few numbers alone. These can be *opened*:
the code loads them where a function starts, from a table that whoever loads the code fills:

    define void @k0(...) {                               define void @k0(...) {
    entry:                                               entry:
      ...                                       ->         %open.0 = load i64, ptr @open
      %v3 = call i64 @llvm.smin.i64(i64 %v2, i64 100)      ...
                                                           %v3 = call i64 @llvm.smin.i64(i64 %v2, i64 %open.0)

What a text says beside a number (that a sum doesn't wrap, that an address is aligned) is true of the number in the
table, and operations of floats stay the same ones, so results have the same bits. Numbers by which integers are divided
are never opened: dividing by what isn't known takes several times as long. Nor are numbers in types. An array of
constants (the extents of a matrix product) is opened as a whole: it is then a part of the table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from loopgrad.codegen.targets.cpu.common_functions import FUNCTION
from loopgrad.codegen.targets.cpu.interface import TABLE
from loopgrad.graph.cached_property import cached_property

NUMBER: Final = re.compile(r"(?<=[ (\[])(-?\d+|0x[0-9A-F]+)(?=[,)\] \n])")
NOT_FINITE: Final = re.compile(r"0x[7F]FF")
HEAD: Final = re.compile(r"^define .*?\{\n(?:[\w.]+:\n)?", re.MULTILINE | re.DOTALL)
OPENED: Final = re.compile(r"%open\.(\d+)\b")
MARK: Final = "\0"

_ANY: Final = "(i64|i32|double|float)"
USES: Final = [
    re.compile(pattern)
    for pattern in (
        rf"  %\S+ = (?:add|sub|mul|icmp [a-z]+)(?: nuw| nsw)* (i64|i32) (?:[^,]+, )?{MARK}(?:, [^,]+)?$",
        rf"  %\S+ = f(?:add|sub|mul|div|cmp [a-z]+) (double|float) (?:[^,]+, )?{MARK}(?:, [^,]+)?$",
        rf"  %\S+ = getelementptr (?:inbounds )?[^,{{]+, ptr %[^,]+, (i64) {MARK}$",
        rf"  %\S+ = select i1 [^,]+, {_ANY} (?:[^,]+, \1 )?{MARK}(?:, \1 [^,]+)?$",
        rf"  %\S+ = phi {_ANY} .*\[ {MARK}, %",
        rf"  store {_ANY} {MARK}, ptr ",
        rf"  (?:%\S+ = )?call (?!.*(?:getelementptr|lifetime|prefetch|<i64)).*[( ](i64) {MARK}[,)]",
    )
]
SPLAT: Final = re.compile(rf"  (?!%\S+ = (?:[us]div|[us]rem|shufflevector|insertelement) ).*splat \({_ANY} {MARK}\)")
CONSTANTS: Final = re.compile(
    rf"@\S+ = private unnamed_addr constant \[\d+ x i64\] \[(?:i64 -?\d+, )*i64 {MARK}(?:, i64 -?\d+)*\]$"
)
OPENED_CONSTANTS: Final = re.compile(
    r"^(@\S+ = private )unnamed_addr constant (\[\d+ x i64\]) \[i64 %open\.(\d+).*\]$", re.MULTILINE
)
IN_TABLE: Final = "constants"  # type of a number in a global array, which lies in the table then, as a whole
LIKELY: Final = re.compile(
    r"""^\ \ (?:%\S+\ =\ )?(?:
        (?:mul|add)(?:\ nuw|\ nsw)*\ i64\ %\S+,\ (\d+)$
        |getelementptr\ i8,\ ptr\ %\S+,\ i64\ ([1-9]\d*)$
        |call\ ptr\ @memmove\(ptr\ %\S+,\ ptr\ %\S+,\ i64\ (\d+)\)
        |call\ .*@lg\.tree\.\S+\(ptr\ %\S+,\ i64\ (\d+)\)
        |call\ i32\ %\S+\(ptr\ @k\d+,\ ptr\ %\S+,\ ptr\ %\S+,\ i64\ (\d+)
            (?:,\ i64\ (\d+),\ ptr\ %\S+\)$)?
        |call\ i32\ %\S+\(ptr\ %\S+,\ ptr\ %\S+,\ ptr\ @k\d+,\ i64\ (\d+),
    )""",
    re.MULTILINE | re.VERBOSE,
)
"""What extents decide of a launch: how many chunks of how many lanes, where arrays lie."""

FEWEST: Final = 16  # of an extent: equal numbers are likely to be the same one


class NumberUse(NamedTuple):
    """How a number is used: its type, and in a vector of how many (0: by itself)."""

    type: str
    lanes: int


@dataclass(frozen=True)
class NumberedText:
    """A text in pieces: `between` them are what may be its `numbers`."""

    between: Sequence[str]
    numbers: Sequence[str]

    @cached_property
    def skeleton(self) -> str:
        """The same for texts that differ in numbers alone."""
        return blake2b(MARK.join(self.between).encode(), digest_size=32).hexdigest()

    def differing(self, numbers: Sequence[str]) -> frozenset[int]:
        """Positions of the numbers that aren't those of another text with this skeleton."""
        return frozenset([i for i, (a, b) in enumerate(zip(self.numbers, numbers, strict=True)) if a != b])

    def words(self, positions: Collection[int]) -> tuple[int, ...]:
        """The table of these numbers: integers, and the bits of doubles."""
        return tuple([int(self.numbers[i], 0) & ((1 << 64) - 1) for i in sorted(positions)])

    def use(self, position: int) -> NumberUse | None:
        """How the number is used; None where it can't be opened."""
        if NOT_FINITE.match(self.numbers[position]):
            return None  # a conversion may change bits of NaN
        line = self._line(position)
        if line.startswith("@"):
            return NumberUse(IN_TABLE, 0) if CONSTANTS.match(line) else None
        splat = SPLAT.match(line)
        if splat is not None:
            vector = re.search(rf"<(\d+) x {splat[1]}>", line)
            return None if vector is None else NumberUse(splat[1], int(vector[1]))
        found = next((m for pattern in USES if (m := pattern.match(line)) is not None), None)
        return None if found is None else NumberUse(found[1], 0)

    def likely(self, differing: Collection[int]) -> frozenset[int]:
        """What may be opened where those numbers differ: they, and others that are likely to differ elsewhere."""
        starts, offset, text = {}, 0, []
        for i, number in enumerate(self.numbers):
            offset += len(self.between[i])
            starts[offset] = i
            offset += len(number)
            text += [self.between[i], number]
        found = {i for m in LIKELY.finditer("".join(text)) for g in m.regs[1:] if (i := starts.get(g[0], -1)) >= 0}
        same = {self.numbers[i] for i in differing if abs(int(self.numbers[i], 0)) >= FEWEST}
        found.update([i for i, number in enumerate(self.numbers) if number in same])
        for position in [i for i in (*differing, *found) if (use := self.use(i)) is not None and use.type == IN_TABLE]:
            found.update(self._array(position))
        return frozenset([*differing, *[i for i in found if self.use(i) is not None]])

    def _array(self, position: int) -> range:
        """The positions of all numbers of the global array in which one is."""
        first = position
        while not self.between[first].endswith("[i64 "):
            first -= 1
        last = position
        while self.between[last + 1] == ", i64 ":
            last += 1
        return range(first, last + 1)

    def opened(self, positions: Collection[int]) -> str:
        """The text that loads those numbers, each of which has a use that allows it."""
        pieces = [piece for pair in zip(self.between, [*self.numbers, ""], strict=True) for piece in pair]
        chosen, loads, words = sorted(positions), {}, {}
        for word, position in enumerate(chosen):
            use = self.use(position)
            assert use is not None, self._line(position)
            words[position] = word
            loads[position] = _load(position, use, word)
            pieces[2 * position + 1] = f"%open.{position}"
            if use.lanes:  # `splat (double 1.0)` becomes the vector
                pieces[2 * position] = pieces[2 * position].rpartition("splat (")[0]
                pieces[2 * position + 2] = pieces[2 * position + 2][1:]
        text = OPENED_CONSTANTS.sub(
            lambda m: f"{m[1]}alias {m[2]}, getelementptr (i64, ptr @{TABLE}, i64 {words[int(m[3])]})", "".join(pieces)
        )
        heads = [*HEAD.finditer(text)]
        ends = [*[head.start() for head in heads[1:]], len(text)]
        found = [f"@{TABLE} = dso_local global [{len(chosen)} x i64] zeroinitializer\n", text[: heads[0].start()]]
        for head, end in zip(heads, ends, strict=True):
            body = text[head.end() : end]
            used = sorted({int(number) for number in OPENED.findall(body)})
            found += [head[0], *[loads[position] for position in used], body]
        return "".join(found)

    def _line(self, position: int) -> str:
        """Where the number is, marked."""
        before, after, i = self.between[position], self.between[position + 1], position
        while "\n" not in before and i > 0:
            i -= 1
            before = self.between[i] + self.numbers[i] + before
        i = position + 1
        while "\n" not in after and i < len(self.numbers):
            after += self.numbers[i] + self.between[i + 1]
            i += 1
        return before.rpartition("\n")[2] + MARK + after.partition("\n")[0]


def numbered(text: str) -> NumberedText:
    """The text, with what may be a number apart, but in functions that are the same in all programs."""
    between, numbers, end = [""], list[str](), 0
    for common in [*FUNCTION.finditer(text), None]:
        pieces = NUMBER.split(text[end : common.start() if common is not None else len(text)])
        between[-1] += pieces[0]
        between += pieces[2::2]
        numbers += pieces[1::2]
        if common is not None:
            between[-1] += common[0]
            end = common.end()
    return NumberedText(between, numbers)


def _load(position: int, use: NumberUse, word: int) -> str:
    """`%open.<position>`, as its use has it."""
    name, (type, lanes) = f"%open.{position}", use
    held = "double" if type in ("double", "float") else "i64"
    lines = [f"{name}.at = getelementptr i64, ptr @{TABLE}, i64 {word}"]
    given = f"{name}.word" if held != type or lanes else name
    lines.append(f"{given} = load {held}, ptr {name}.at")
    if held != type:  # text has a float as the double that is equal
        given, before = (f"{name}.one" if lanes else name), given
        lines.append(f"{given} = {'fptrunc' if type == 'float' else 'trunc'} {held} {before} to {type}")
    if lanes:
        vector = f"<{lanes} x {type}>"
        lines.append(f"{name}.lane = insertelement {vector} poison, {type} {given}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        lines.append(f"{name} = shufflevector {vector} {name}.lane, {vector} poison, {zeros}")
    return "".join([f"  {line}\n" for line in lines])
