"""Lines of a script that come again: their programs are found by what is noted of them, without a graph.

    y = x * 2.0 + 1.0;  print(y)       mul(x, 2.0), add(.., 1.0): the third time, a look-up and a call

An evaluation that takes its usual way walks nodes, which have to be made for it, cuts a graph, and looks for what else
is needed. Here one walk over notes (`graph.structure.noted_structure`) gives words by which the program is known, the
numbers and the leaves that it takes, and the values on the way. How often these are referred to says whether anybody
else needs one of them. Whatever isn't as it was the last time takes the usual way.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import getrefcount
from typing import TYPE_CHECKING, Final
from weakref import ref

from loopgrad.graph.lift import slots
from loopgrad.graph.nodes import Noted
from loopgrad.graph.structure import NotedStructure, Words, noted_structure, number_places
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf
from loopgrad.lazy.tensor.evaluator import EVALUATOR
from loopgrad.lazy.tensor.walk import walked
from loopgrad.runtime.devices import Device, get_device
from loopgrad.runtime.session import SESSION, placed

if TYPE_CHECKING:
    from loopgrad.runtime.buffers import Buffer
    from loopgrad.runtime.session import Versions

MOST_LINES: Final = 4096


@dataclass(slots=True, eq=False)
class Line:
    """`versions`: the session's. `inputs`, `numbers`: where the program's are among those that are noted. `counts`: of
    references to the values on the way while nobody else refers to them. `nodes` of the graph."""

    versions: ref[Versions]
    inputs: tuple[int, ...]
    numbers: tuple[int, ...]
    counts: list[int]
    nodes: int


class Lines:
    """The lines known with some settings; None for one that was seen once. Threads that look at it at the same time may
    learn a line twice."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.device: Device = get_device(config.device)
        self.known: dict[Words, Line | None] = {}

    def line(self, value: Noted, found: NotedStructure) -> Line | None:
        """What is known of a line; it is learned when it is seen for the second time."""
        known = self.known
        if found.words in known:
            line = known[found.words]
            if line is not None and line.versions() is not None:
                return line
            known[found.words] = self._learned(value, found)
            return None
        if len(known) >= MOST_LINES:
            known.clear()
        known[found.words] = None
        return None

    def _learned(self, value: Noted, found: NotedStructure) -> Line | None:
        reads = dict.fromkeys(found.inner, UNREAD)
        for v in (value, *found.inner):
            for operand in v.note[1]:
                if type(operand) is Noted:
                    reads[operand] += 1
        walk = walked((value,))
        if not walk.plain or walk.marks():
            return None
        graph, leaves = walk.cut((value,))
        versions = SESSION.found(graph, self.device, self.config.options)[0]
        inputs = {leaf: i for i, leaf in enumerate(found.leaves)}
        numbers = {place: i for i, place in enumerate(number_places(value))}
        return Line(
            ref(versions),
            tuple([inputs[leaf] for leaf in leaves]),  # type: ignore[index]
            tuple([numbers[place] for node in graph.nodes for place in slots(node)]),
            list(reads.values()),
            len(graph.nodes),
        )


class _Latest:
    """The lines of the settings that were used last."""

    def __init__(self) -> None:
        self.lines = Lines(current())

    def of(self, config: Config) -> Lines:
        lines = self.lines
        if lines.config is not config:
            self.lines = lines = Lines(config)
        return lines


_LATEST: Final = _Latest()


def forget() -> None:
    """Know no lines any more: all take the usual way once."""
    _LATEST.lines = Lines(current())


def elements_of(t: TensorCore, value: Noted) -> Buffer | None:
    """The elements of a tensor, which becomes a leaf, where it ends a line that is known; None where more is to be
    looked at. The caller has seen that nobody else refers to its value, and that no derivation is under way."""
    if t._history is not None or t._view is not None:
        return None
    found = noted_structure(value)
    if found is None:
        return None
    lines = _LATEST.of(current())
    line = lines.line(value, found)
    if line is None or [*map(getrefcount, found.inner)] != line.counts:
        return None
    if TensorLeaf.any_committed and any(leaf.committed for leaf in found.leaves):  # type: ignore[attr-defined]
        return None
    mine = EVALUATOR.claim(value)
    if mine is None:
        return None
    try:
        buffer = _run(line, found, lines) if t._value is value else None
        if buffer is not None:
            EVALUATOR.settle_alone(t, value, buffer)
        return buffer
    finally:
        EVALUATOR.release(value, mine)


def _run(line: Line, found: NotedStructure, lines: Lines) -> Buffer | None:
    versions = line.versions()
    numbers, leaves, device = found.numbers, found.leaves, lines.device
    if versions is None:
        return None
    constants = tuple([numbers[i] for i in line.numbers]) if numbers else ()
    ready = SESSION.ready(versions, constants, line.nodes, device, lines.config.options)
    if ready is None:
        return None
    program, extra = ready
    name = device.name
    inputs = [leaves[i].buffer for i in line.inputs]
    for i, buffer in enumerate(inputs):
        if buffer.device != name:
            inputs[i] = placed(leaves[line.inputs[i]], device)
    return program.run([*inputs, *extra] if extra else inputs)[0]


def _unread() -> int:
    """What `getrefcount` gives, as it is asked above, for a value that nobody reads."""
    inner = [Noted(TensorType((), float64), "alias", (), {}, None)]
    return next(map(getrefcount, inner))


UNREAD: Final = _unread()
