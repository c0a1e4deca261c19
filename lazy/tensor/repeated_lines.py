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
from loopgrad.graph.nodes import Leaf, Noted, Value
from loopgrad.graph.noted_lists import NotedList, noted_list
from loopgrad.graph.structure import NotedStructure, Words, noted_structure, number_places
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf, array_leaf
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Computed
from loopgrad.lazy.tensor.liveness import NOT_KEPT, Held, held_tensors
from loopgrad.lazy.tensor.walk import walked
from loopgrad.runtime.buffers import Buffer, host_buffer
from loopgrad.runtime.devices import HOST_KINDS, Device, get_device
from loopgrad.runtime.processes import renewed_in_children
from loopgrad.runtime.session import SESSION, evaluate_graph, placed

if TYPE_CHECKING:
    from loopgrad.runtime.session import Versions

MOST_LINES: Final = 4096
MOST_KEPT: Final = 64


Kept = tuple[int, ...]
"""Which values on the way tensors hold, by their positions."""


@dataclass(slots=True, eq=False)
class Line:
    """`versions`: the session's. `inputs`, `numbers`: where the program's are among those that are noted. `counts`: of
    references to the values on the way where only the line refers to them. `nodes` of the graph. `keeping`: programs
    that give values on the way as well; None for one that was seen once."""

    versions: ref[Versions]
    inputs: tuple[int, ...]
    numbers: tuple[int, ...]
    counts: list[int]
    nodes: int
    keeping: dict[Kept, Line | None]


class Lines:
    """The lines known with some settings; None for one that was seen once. Threads that look at it at the same time may
    learn a line twice."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.device: Device = get_device(config.device)
        self.known: dict[Words, Line | None] = {}

    def line(self, value: Noted, found: NotedStructure) -> Line | None:
        """What is known of a line; it is learned when it is seen for the second time."""
        known, words = self.known, found[0]
        line = known.get(words)
        if line is not None and line.versions() is not None:
            return line
        if words in known:
            known[words] = self._learned((value,), found)
            return None
        if len(known) >= MOST_LINES:
            known.clear()
        known[words] = None
        return None

    def keeping(self, line: Line, value: Noted, found: NotedStructure, kept: Kept) -> Line | None:
        """The same with values on the way."""
        known = line.keeping
        further = known.get(kept)
        if further is not None and further.versions() is not None:
            return further
        if kept in known:
            inner = found[3]
            known[kept] = self._learned((value, *[inner[i] for i in kept]), found)
            return None
        if len(known) >= MOST_KEPT:
            known.clear()
        known[kept] = None
        return None

    def _learned(self, outputs: tuple[Noted, ...], found: NotedStructure) -> Line | None:
        _, _, leaves, inner = found
        value = outputs[0]
        counts = dict.fromkeys(inner, UNREAD)
        for v in (value, *inner):
            for operand in v.note[1]:
                if type(operand) is Noted and operand in counts:
                    counts[operand] += 1
        walk = walked(outputs)
        if not walk.plain or walk.marks():
            return None
        graph, given = walk.cut(outputs)
        versions = SESSION.found(graph, self.device, self.config.options)[0]
        places: dict[Value, int] = {leaf: i for i, leaf in enumerate(leaves)}
        numbers = {place: i for i, place in enumerate(number_places(value))}
        return Line(
            ref(versions),
            tuple([places[leaf] for leaf in given]),
            tuple([numbers[place] for node in graph.nodes for place in slots(node)]),
            list(counts.values()),
            len(graph.nodes),
            {},
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


renewed_in_children(forget)  # GPUs don't survive a fork


def elements_of(t: TensorCore, value: Noted) -> Buffer | None:
    """The elements of a tensor, which becomes a leaf, where it ends a line that is known; None where more is to be
    looked at. The caller has seen that nobody else refers to its value, and that no derivation is under way."""
    if t._history is not None or t._view is not None:
        return None
    if value.note[0] == "concat" and (pieces := noted_list(value)) is not None:
        return _list_elements(t, value, pieces)
    found = noted_structure(value)
    if found is None:
        return None
    lines = _LATEST.of(current())
    line = lines.line(value, found)
    if line is None:
        return None
    along: list[Held] = []
    seen = [*map(getrefcount, found[3])]
    if seen != line.counts:
        held = _held_on_the_way(found[3], line.counts, seen)
        if held is None:
            return None
        kept, along = held
        if along:
            line = lines.keeping(line, value, found, kept)
            if line is None:
                return None
    if TensorLeaf.any_committed and any(leaf.committed for leaf in found[2]):  # type: ignore[attr-defined]
        return None
    mine = EVALUATOR.claim(value)
    if mine is None:
        return None
    try:
        buffers = _run(line, found, lines) if t._value is value else None
        if buffers is None:
            return None
        if along:
            outputs = dict(zip([value, *dict.fromkeys([v for _, v in along])], buffers, strict=True))
            EVALUATOR.settle([(t, value), *along], (), Computed(outputs, (), 0))
        else:
            EVALUATOR.settle_alone(t, value, buffers[0])
        return buffers[0]
    finally:
        EVALUATOR.release(value, mine)


def _list_elements(t: TensorCore, value: Noted, found: NotedList) -> Buffer | None:
    """As above, of a list of pieces that are alike; those that somebody holds become leaves, as many as an evaluation
    looks at."""
    graph, given, members = found
    config = current()
    device = get_device(config.device)
    if TensorLeaf.any_committed and any(isinstance(x, TensorLeaf) and x.committed for x in given):
        return None
    places: dict[Value, int] = {v: i for i, v in enumerate(members)}
    along = [(other, v) for other, v in held_tensors() if v in places and v.known is None]
    if along and device.kind not in HOST_KINDS:
        return None
    mine = EVALUATOR.claim(value)
    if mine is None:
        return None
    try:
        if t._value is not value:
            return None
        leaves = [x if isinstance(x, Leaf) else array_leaf(x, copy=False) for x in given]
        (buffer,) = evaluate_graph(graph, leaves, config.device, config.options)
        outputs: dict[Value, Buffer] = {value: buffer}
        if along:
            rows = buffer.array.reshape(len(members), *members[0].shape)
            outputs.update((v, host_buffer(rows[places[v]], device.name)) for _, v in along)
        EVALUATOR.settle([(t, value), *along], (), Computed(outputs, (), 0))
        return buffer
    finally:
        EVALUATOR.release(value, mine)


def _held_on_the_way(inner: list[Noted], counts: list[int], seen: list[int]) -> tuple[Kept, list[Held]] | None:
    """The tensors that hold values on the way and become leaves, too, and the positions of these values; None where
    something else refers to such values, of which `seen` references were counted."""
    places: dict[Value, int] = {v: i for i, v in enumerate(inner)}
    held = [(t, v, places[v]) for t, v in held_tensors() if v in places]
    expected = [*counts]
    for _, _, place in held:
        expected[place] += 1
    if expected != seen:
        return None
    along = [(t, v, place) for t, v, place in held if inner[place].note[0] not in NOT_KEPT]
    return tuple(dict.fromkeys([place for _, _, place in along])), [(t, v) for t, v, _ in along]


def _run(line: Line, found: NotedStructure, lines: Lines) -> list[Buffer] | None:
    versions = line.versions()
    if versions is None:
        return None
    _, numbers, leaves, _ = found
    device, options = lines.device, lines.config.options
    constants = tuple([numbers[i] for i in line.numbers]) if numbers else ()
    ready = SESSION.ready(versions, constants, line.nodes, device, options)
    if ready is None:
        return None
    program, extra = ready
    name = device.name
    inputs = [leaves[i].buffer for i in line.inputs]
    for i, buffer in enumerate(inputs):
        if buffer.device != name:
            inputs[i] = placed(leaves[line.inputs[i]], device)
    return program.run([*inputs, *extra] if extra else inputs)


def _unread() -> int:
    """What `getrefcount` gives, as it is asked above, for a value that nobody reads."""
    inner = [Noted(TensorType((), float64), "alias", (), {}, None)]
    return next(map(getrefcount, inner))


UNREAD: Final = _unread()
