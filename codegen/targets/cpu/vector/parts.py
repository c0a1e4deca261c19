"""Long functions of LLVM IR text in parts: functions of bounded length that it calls.

LLVM's register allocator takes time that grows with the square of a function's length and faster with its loops in a
row, and what a Python loop builds in the body of a loop, or of loops one after another, is as long as that. Enters:
the lines of a function. Leaves: fewer lines, and parts. A part is a stretch of lines that control enters at its
beginning only and leaves at its end only; long bodies of loops first, then what is around them.

    loop:                                  loop:
      %x = phi double [ ... ]                %x = phi double [ ... ]
      600 lines, that use %x and             store double %x, ptr %frame.1
      make %y and %z                         call void @k0.part1(ptr %frame)      (%y and %z are in the frame)
      600 lines, that use %y and %z          call void @k0.part2(ptr %frame)      (and so is %w)
      br i1 %more, label %loop, ...          %more = load i1, ptr %frame.9
                                             br i1 %more, label %loop, ...

What several of them read is in a frame, which is memory of the outermost one: stored where it is defined (behind the
loops inside a part, where no part in them reads it), loaded before the first use, outside of loops where that can be.
What is allocated lies there as well, and addresses and numbers that the first lines make are made again where they are
used: LLVM's scheduler looks at all pairs of loads and stores of a block. What computes is the same, in the same order,
so results have the same bits.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from random import Random
from typing import Final

from loopgrad.codegen.targets.cpu.vector.result_types import result_type, size_of

LONGEST: Final = 8000  # lines of a function that stays whole
PART: Final = 1500  # lines of a part, or some more
WINDOW: Final = 500  # so many
FRAME: Final = "%frame"
MAIN: Final = -1

_NAME: Final = re.compile(r"%[\w.]+")
_AGGREGATE: Final = re.compile(r" = (?:(?:call|phi|load|insertvalue) [\[{]|cmpxchg )")
_SIMPLE: Final = re.compile(  # what is made of one other value and constants
    r"  (%[\w.]+) = (?:getelementptr \w+, ptr|load \w+, ptr|mul i64) (%[\w.]+), (?:i64 \d+|\d+|!invariant.load !1)$"
)
_ALLOCATION: Final = re.compile(r"  (%[\w.]+) = alloca (?:\[(\d+) x )?(\w+|<[^>]*>)\]?(?:,|$)")
_ENDS: Final = ("  br ", "  switch ", "  ret ", "  unreachable")


def in_parts(
    symbol: str, parameters: Mapping[str, str], entry: Sequence[str], lines: Sequence[str], attributes: str
) -> tuple[str, str]:
    """The text of a function's body, without its return, and that of its parts. `parameters`: the types of its
    arguments by name. `entry`: its first lines, among them all allocations; `lines` begin with a label."""
    if len(lines) <= LONGEST:
        return "\n".join([*entry, *lines]), ""
    code = _Code(list(entry), [line for text in lines for line in text.split("\n") if line])
    parts = _Division(code).parts()
    if not parts:
        return "\n".join([*entry, *lines]), ""
    return _Writer(symbol, parameters, code, parts, attributes).text()


@dataclass(eq=False)
class _Part:
    """Lines from `first` to before `end`, without those of the parts in it."""

    number: int
    first: int
    end: int
    parent: int = MAIN
    children: list[_Part] = field(default_factory=list)


class _Code:
    """Lines, which names they define and use, and where loops and branches lie around them."""

    def __init__(self, entry: list[str], lines: list[str]) -> None:
        self.lines, self.base = [*entry, *lines], len(entry)
        lines = self.lines
        self.labels = {line[:-1]: i for i, line in enumerate(lines) if line[0] != " "}
        self.ends = [i for i, line in enumerate(lines) if line.startswith(_ENDS)]
        self.defined: dict[str, int] = {}
        self.uses: dict[str, list[int]] = {}  # where a value must be there: for a phi, at the end of the block before
        self.phis: set[int] = set()
        jumps: list[tuple[int, int]] = []
        ends = set(self.ends)
        for i, line in enumerate(lines):
            if line[0] != " ":
                continue
            names = _NAME.findall(line)
            if names and line.startswith(f"  {names[0]} = "):
                self.defined[names.pop(0)] = i
            if " = phi " in line:
                self.phis.add(i)
                for value, label in _edges(line):
                    if value[0] == "%":
                        self.uses.setdefault(value, []).append(self.end_of(label[1:]))
                continue
            for name in names:
                if i in ends and name[1:] in self.labels:
                    target = self.labels[name[1:]]
                    jumps.append((min(i, target), max(i, target)))
                else:
                    self.uses.setdefault(name, []).append(i)
        self.around = self._around(jumps)
        self.loops = self._loops([(low, high) for low, high in jumps if lines[low][0] != " "])

    def end_of(self, label: str) -> int:
        """The line that ends a block; the entry's is the first of all."""
        return self.ends[bisect_left(self.ends, self.labels[label] if label != "entry" else 0)]

    def _around(self, jumps: Sequence[tuple[int, int]]) -> list[int]:
        """A number for each place between lines: equal where the same jumps lead over them."""
        change = [0] * (len(self.lines) + 2)
        random = Random(0)
        for low, high in jumps:
            mark = random.getrandbits(64)
            change[low + 1] ^= mark
            change[high + 1] ^= mark
        return list(accumulate(change[:-1], lambda a, b: a ^ b))

    def _loops(self, back: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """First and last line of each loop, and which one is around it; then, by line, the innermost."""
        ends: dict[int, int] = {}
        for low, high in back:
            ends[low] = max(high, ends.get(low, 0))
        loops: list[tuple[int, int, int]] = []
        open_ = -1
        self.inside = [-1] * len(self.lines)
        for low in sorted(ends):
            while open_ >= 0 and loops[open_][1] < low:
                open_ = loops[open_][2]
            loops.append((low, ends[low], open_))
            open_ = len(loops) - 1
            self.inside[low : ends[low] + 1] = [open_] * (ends[low] + 1 - low)
        return loops

    def read_until(self, line: int, last: int) -> int:
        """Where what `line` makes and `last` uses isn't needed any more: behind the loops that only the use is in."""
        loop = self.inside[last]
        while loop >= 0 and self.loops[loop][0] > line:
            last = max(last, self.loops[loop][1])
            loop = self.loops[loop][2]
        return last

    def may_begin(self, place: int) -> bool:
        """Whether something may be inserted before a line."""
        if place in (0, len(self.lines)):
            return True
        line, before = self.lines[place], self.lines[place - 1]
        return line[0] == " " and place not in self.phis and not before.startswith(_ENDS)


def _edges(phi: str) -> Iterator[tuple[str, str]]:
    """The value and the block of each edge."""
    for edge in phi.split(" = phi ", 1)[1].split("[ ")[1:]:
        value, block = edge.split(" ]", 1)[0].rsplit(", ", 1)
        yield value, block


class _Division:
    """Which lines become parts."""

    def __init__(self, code: _Code) -> None:
        self.code = code
        self.weights = self._weights()
        self.crossing, self.whole = self._crossing()
        self.found: list[_Part] = []

    def parts(self) -> list[_Part]:
        """Inner ones first."""
        code = self.code
        places: dict[int, list[int]] = {}
        for place in range(code.base + 1, len(code.lines) + 1):
            if not self.whole[place] and code.may_begin(place):
                places.setdefault(code.around[place], []).append(place)
        long = [found for found in places.values() if found[-1] - found[0] > PART]
        for found in sorted(long, key=lambda found: found[-1] - found[0]):
            self._divide(found)
        self._nest()
        return self.found

    def _weights(self) -> list[int]:
        """What each line is in its part: also the address and the load of what it is the first to read for long."""
        weights = [1] * len(self.code.lines)
        for name, before in self.code.defined.items():
            for use in sorted(self.code.uses.get(name, ())):
                if use - before > PART:
                    weights[use] += 2
                before = use
        return weights

    def _crossing(self) -> tuple[list[int], list[int]]:
        """At each place, how many values are made before and used after; how many of them can't be kept in memory."""
        code = self.code
        change, whole = ([0] * (len(code.lines) + 2) for _ in range(2))
        for name, first in code.defined.items():
            last = max(code.uses.get(name, [first]))
            if last > first:
                change[first + 1] += 1
                change[last + 1] -= 1
                if _AGGREGATE.search(code.lines[first]):
                    whole[first + 1] += 1
                    whole[last + 1] -= 1
        return list(accumulate(change)), list(accumulate(whole))

    def _divide(self, places: list[int]) -> None:
        """Parts among places that have the same jumps around them, if there is much between them."""
        done = list(accumulate(self.weights[places[0] : places[-1]], initial=0))
        length = [done[place - places[0]] for place in places]
        if length[-1] <= PART + WINDOW:
            return
        start = 0
        while start < len(places) - 1:
            low = bisect_left(length, length[start] + PART, start + 1)
            high = bisect_right(length, length[start] + PART + WINDOW, start + 1)
            end = min(range(low, high), key=lambda i: self.crossing[places[i]]) if low < high else low
            end = min(end, len(places) - 1)
            if length[end] - length[start] > WINDOW:
                self._part(places[start], places[end])
            start = end

    def _part(self, first: int, end: int) -> None:
        self.found.append(_Part(len(self.found), first, end))
        self.weights[first:end] = [0] * (end - first)
        self.weights[first] = 1

    def _nest(self) -> None:
        """Who calls whom."""
        surrounding: list[_Part] = []
        for part in sorted(self.found, key=lambda p: (p.first, -p.end)):
            while surrounding and surrounding[-1].end <= part.first:
                surrounding.pop()
            if surrounding:
                part.parent = surrounding[-1].number
                surrounding[-1].children.append(part)
            surrounding.append(part)


class _Frame:
    """Memory for values, used again by those that are made when others are no longer needed."""

    def __init__(self) -> None:
        self.size = 0
        self._free: dict[int, list[int]] = {}  # by size
        self._held: list[tuple[int, int, int]] = []  # until which line, offset, size

    def reserve(self, size: int) -> int:
        """The offset of memory for the whole call."""
        offset = -(-self.size // 64) * 64
        self.size = offset + size
        return offset

    def place(self, size: int, first: int, last: int) -> int:
        """The offset of one value. Called in the order of `first`."""
        while self._held and self._held[0][0] < first:
            _, offset, freed = heappop(self._held)
            self._free.setdefault(freed, []).append(offset)
        free = self._free.get(size)
        if free:
            offset = free.pop()
        else:
            alignment = min(size, 64)
            offset = -(-self.size // alignment) * alignment
            self.size = offset + size
        heappush(self._held, (last, offset, size))
        return offset


class _Writer:
    """The functions: which values go through the frame, where they are stored and loaded."""

    def __init__(
        self, symbol: str, parameters: Mapping[str, str], code: _Code, parts: list[_Part], attributes: str
    ) -> None:
        self.symbol, self.code, self.parts, self.attributes = symbol, code, parts, attributes
        self.main = _Part(MAIN, 0, len(code.lines), MAIN, [p for p in parts if p.parent == MAIN])
        self.owner = [MAIN] * len(code.lines)
        for part in sorted(parts, key=lambda p: p.first - p.end):  # outer ones first
            self.owner[part.first : part.end] = [part.number] * (part.end - part.first)
        self.tops = {p.number: self._top(p) for p in parts}
        self.inserted: dict[tuple[int, int], list[str]] = {}  # (function, place) -> lines
        self.following: dict[tuple[int, int], list[str]] = {}  # (function, part called) -> lines behind the call
        self.frame = _Frame()
        again = self._made_again()
        for name, type in parameters.items():
            self._value(name, MAIN, 0, type)
        for name, line in code.defined.items():
            if name not in again:
                self._value(name, self.owner[line], line, "")
        for name, users in again.items():
            for user, first in users.items():
                self._insert(user, self._loading_place(user, first), [code.lines[code.defined[name]]])

    def text(self) -> tuple[str, str]:
        """The outermost function's body, and the parts."""
        bodies = {p.number: self._body(p) for p in (self.main, *self.parts)}
        blocks = {line: label for _, ends in bodies.values() for line, label in ends.items()}
        texts = {
            n: [self._phi(x, blocks) if isinstance(x, int) else x for x in body] for n, (body, _) in bodies.items()
        }
        frame = f"  {FRAME} = alloca [{self.frame.size} x i8], align 64"
        functions = [
            f"define internal void {self._name(p.number)}(ptr noalias {FRAME}) noinline {self.attributes} {{\nentry:\n"
            + "\n".join(texts[p.number])
            + "\n  ret void\n}\n"
            for p in self.parts
        ]
        return "\n".join([frame, *texts[MAIN]]), "\n".join(functions)

    def _name(self, part: int) -> str:
        return f"@{self.symbol}.part{part}"

    # ---- values

    def _top(self, part: _Part) -> list[int]:
        """The places of a part that no jump leads over."""
        code, around = self.code, self.code.around[part.first]
        return [p for p in range(part.first, part.end + 1) if code.around[p] == around and code.may_begin(p)]

    def _users(self, name: str, home: int) -> dict[int, int]:
        """Functions other than `home` that use a value, and the first line of each that does."""
        users: dict[int, int] = {}
        for use in self.code.uses.get(name, ()):
            user = self.owner[use]
            if user != home:
                users[user] = min(use, users.get(user, use))
        return users

    def _made_again(self) -> dict[str, dict[int, int]]:
        """Addresses and numbers of the first lines that every part may as well compute for itself, and its users. What
        they are made of is then used there; what is allocated becomes a part of the frame."""
        found: dict[str, dict[int, int]] = {}
        for i, line in reversed(list(enumerate(self.code.lines[: self.code.base]))):
            simple, allocation = _SIMPLE.match(line), _ALLOCATION.match(line)
            if allocation is not None and (users := self._users(allocation[1], MAIN)):
                size = size_of(allocation[3])
                assert size is not None, f"{line} isn't memory of scalars or vectors"
                offset = self.frame.reserve(size * int(allocation[2] or 1))
                self.code.lines[i] = f"  {allocation[1]} = getelementptr inbounds i8, ptr {FRAME}, i64 {offset}"
                found[allocation[1]] = users
            elif simple is not None and (users := self._users(simple[1], MAIN)):
                found[simple[1]] = users
                self.code.uses[simple[2]] = [*self.code.uses[simple[2]], *users.values()]
        return dict(reversed(found.items()))

    def _value(self, name: str, home: int, line: int, type: str) -> None:
        """Through memory, where other functions than its own use it."""
        users = self._users(name, home)
        if not users:
            return
        type = type or result_type(self.code.lines[line])
        size = size_of(type)
        assert size is not None, f"{name} of type {type} is used in several parts"
        align = min(1 << (size - 1).bit_length(), 64)
        offset = self.frame.place(
            align * -(-size // align), line, self.code.read_until(line, max(self.code.uses[name]))
        )
        at, address = f"{FRAME}.{name[1:]}", f"getelementptr inbounds i8, ptr {FRAME}, i64 {offset}"
        store = [f"  {at} = {address}", f"  store {type} {name}, ptr {at}, align {align}"]
        early = home == MAIN or any(self._child(home, user) is not None for user in users)
        self._insert(home, self._after(line, name) if early else self._behind(home, line), store)
        for user, first in users.items():
            load = [f"  {at}.kept = {address}", f"  {name} = load {type}, ptr {at}.kept, align {align}"]
            made_in = self._child(user, home)
            if made_in is not None:
                self.following.setdefault((user, made_in), []).extend(load)
            else:
                self._insert(user, self._loading_place(user, first), load)

    def _loading_place(self, part: int, line: int) -> int:
        """The last place before a line that is in none of the part's loops."""
        tops = self.tops[part]
        return tops[bisect_right(tops, line) - 1]

    def _insert(self, function: int, place: int, lines: list[str]) -> None:
        self.inserted.setdefault((function, place), []).extend(lines)

    def _after(self, line: int, name: str) -> int:
        """The next place behind a definition."""
        place = line + 1 if name in self.code.defined else line
        while not self.code.may_begin(place):
            place += 1
        return place

    def _behind(self, part: int, line: int) -> int:
        """The next place that is in none of the part's loops."""
        tops = self.tops[part]
        return tops[bisect_right(tops, line)]

    def _child(self, function: int, part: int) -> int | None:
        """The part called by `function` in which `part` is, or which it is; None where it is elsewhere."""
        while part != MAIN:
            parent = self.parts[part].parent
            if parent == function:
                return part
            part = parent
        return None

    # ---- text

    def _body(self, part: _Part) -> tuple[list[str | int], dict[int, str]]:
        """Lines, phis by number, and the block that each of its last instructions ends."""
        code, body, ends = self.code, list[str | int](), dict[int, str]()
        children = {p.first: p for p in part.children}
        label, place = "entry", part.first
        while True:
            body += self.inserted.get((part.number, place), ())
            if place == part.end:
                return body, ends
            child = children.get(place)
            if child is not None:
                body.append(f"  call void {self._name(child.number)}(ptr {FRAME})")
                body += self.following.get((part.number, child.number), ())
                place = child.end
                continue
            line = code.lines[place]
            if line[0] != " ":
                label = line[:-1]
            elif line.startswith(_ENDS):
                ends[place] = label
            body.append(place if place in code.phis else line)
            place += 1

    def _phi(self, line: int, blocks: Mapping[int, str]) -> str:
        """With the blocks that its edges come from now."""
        head, _, _ = self.code.lines[line].partition("[ ")
        edges = [(value, blocks[self.code.end_of(label[1:])]) for value, label in _edges(self.code.lines[line])]
        return head + ", ".join(f"[ {value}, %{label} ]" for value, label in edges)
