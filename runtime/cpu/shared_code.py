"""Machine code that programs of several shapes share.

Code is made of a text. The first of its skeleton (`codegen.targets.cpu.open_numbers`) has its numbers in the code; when
another one comes, those that differ become inputs of the code, which then serves all texts that differ from the first
in no others: in a script with a thousand shapes, those after the second few.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from loopgrad.codegen.artifact import Artifact
from loopgrad.runtime.processes import child_safe_lock

if TYPE_CHECKING:
    from loopgrad.codegen.targets.cpu.open_numbers import NumberedText
    from loopgrad.codegen.targets.cpu.open_program import OpenCode

MOST_BYTES: Final = 1 << 25
"""Of code and numbers that are remembered; the least recently used go."""

MOST_CLASSES: Final = 4
"""Of texts with one skeleton that differ in numbers that can't be opened."""


class MachineCode(NamedTuple):
    """An object, and the table that it takes; `made`: for this text, rather than an earlier one."""

    code: bytes
    table: tuple[int, ...]
    made: bool


@dataclass(slots=True, eq=False)
class _Shared:
    """Code of one text and of those that differ in its `open` numbers alone."""

    numbers: tuple[str, ...]
    open: frozenset[int]
    code: bytes


@dataclass(frozen=True, slots=True)
class SharedCodeRecord:
    """As above, on disk."""

    numbers: tuple[str, ...]
    open: tuple[int, ...]


class Shelf(Protocol):
    """Where code with open numbers is kept between processes, by the skeleton."""

    def load_shared(self, skeleton: str) -> Artifact[SharedCodeRecord] | None: ...

    def store_shared(self, skeleton: str, artifact: Artifact[SharedCodeRecord]) -> None: ...


class SharedCode:
    """What one device remembers. Safe to use from several threads: two that need the same code may both make it."""

    def __init__(self, compile: Callable[[str], bytes], shelf: Shelf | None = None) -> None:
        self._compile = compile
        self._shelf = shelf
        self._classes: OrderedDict[str, list[_Shared]] = OrderedDict()
        self._bytes = 0
        self._lock = child_safe_lock()

    def code(self, text: str) -> MachineCode:
        """The machine code of a module's text."""
        from loopgrad.codegen.targets.cpu.open_numbers import numbered  # late: a warm cache needs no emitter

        parts = numbered(text)
        with self._lock:
            classes = [*self._classes.get(parts.skeleton, ())]
        if not classes and self._shelf is not None and (kept := self._shelf.load_shared(parts.skeleton)) is not None:
            classes = [_Shared(kept.program.numbers, frozenset(kept.program.open), kept.code)]
            self._remember(parts, classes[0], None)
        for shared in classes:
            differing = parts.differing(shared.numbers)
            if differing <= shared.open:
                return MachineCode(shared.code, parts.words(shared.open), made=False)
            if all(parts.use(position) is not None for position in differing):
                opened = parts.likely(differing | shared.open)
                code = self._compile(parts.opened(opened))
                self._remember(parts, _Shared(shared.numbers, opened, code), shared)
                if self._shelf is not None:
                    record = SharedCodeRecord(shared.numbers, tuple(sorted(opened)))
                    self._shelf.store_shared(parts.skeleton, Artifact(record, b"", code))
                return MachineCode(code, parts.words(opened), made=True)
        code = self._compile(text)
        if len(classes) < MOST_CLASSES:
            self._remember(parts, _Shared(tuple(parts.numbers), frozenset(), code), None)
        return MachineCode(code, (), made=True)

    def open_code(self, parts: NumberedText) -> OpenCode | None:
        """Code that was made for others, too, and takes this text's numbers as they are."""
        from loopgrad.codegen.targets.cpu.open_program import OpenCode  # late: as above

        with self._lock:
            classes = [*self._classes.get(parts.skeleton, ())]
        for shared in classes:
            if parts.differing(shared.numbers) <= shared.open:
                return OpenCode(shared.code, [*shared.open], shared.numbers)
        return None

    def _remember(self, parts: NumberedText, shared: _Shared, before: _Shared | None) -> None:
        with self._lock:
            classes = self._classes.setdefault(parts.skeleton, [])
            self._classes.move_to_end(parts.skeleton)
            if before in classes:
                classes.remove(before)
                self._bytes -= _size(before)
            classes.append(shared)
            self._bytes += _size(shared)
            while self._bytes > MOST_BYTES and len(self._classes) > 1:
                _, gone = self._classes.popitem(last=False)
                self._bytes -= sum([_size(one) for one in gone])


def _size(shared: _Shared | None) -> int:
    return 0 if shared is None else len(shared.code) + 16 * len(shared.numbers)
