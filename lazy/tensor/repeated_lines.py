"""Lines of a script that come again: their programs are found by what is noted of them, without a graph.

    y = x * 2.0 + 1.0;  print(y)       mul(x, 2.0), add(.., 1.0): the third time, a look-up and a call

An evaluation that takes its usual way walks nodes, which have to be made for it, cuts a graph, and looks for what else
is needed. Here one walk over notes (`graph.structure.noted_structure`) gives words by which the program is known, the
numbers and the leaves that it takes, and the values on the way. How often these are referred to says whether anybody
else needs one of them. Whatever isn't as it was the last time takes the usual way.

A line that was run so, and in which each value on the way is read once and by nobody else, is found by its expression
(`graph.expressions`) from then on, which operators keep up to date: where the parts are is known, so that they need
only be taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import ref

from loopgrad.graph.expressions import OPAQUE, Expression, Places, Taken, expression_of, leaf_expression, taker
from loopgrad.graph.lift import slots
from loopgrad.graph.nodes import Leaf, Noted, Value
from loopgrad.graph.noted_lists import NotedList, noted_list
from loopgrad.graph.structure import NotedStructure, Numbers, Words, noted_structure, number_places
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.alike_tensors import IN_A_ROW, computed_together
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
    from loopgrad.runtime.executable import DirectProgram, Executable
    from loopgrad.runtime.session import Versions

MOST_LINES: Final = 4096
MOST_KEPT: Final = 64
MOST_SETTINGS: Final = 16
MOST_ALIKE: Final = 8  # lines of one expression, which differ in which leaves are the same


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


class Tree(NamedTuple):
    """A line that is found by its expression, with some settings. Of its leaves, each as often as it is read, so many
    are `distinct`, and `firsts` takes for each the place where it is read first; `inputs` takes the program's among
    them, `numbers` the program's among all parts. `result`: the expression of the leaf that the value becomes."""

    lines: Lines
    line: Line
    distinct: int
    firsts: Taken
    inputs: Taken
    numbers: Taken
    result: Expression


class Trees(NamedTuple):
    """The lines of an expression, the latest first, and where its parts are."""

    places: Places
    each: tuple[Tree, ...]


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


class _BySettings:
    """The lines of all settings, and of those that were used last."""

    def __init__(self) -> None:
        self.latest = Lines(current())
        self._known: dict[Config, Lines] = {}

    def of(self, config: Config) -> Lines:
        """Those of the settings."""
        lines = self.latest
        if lines.config is not config:
            known = self._known.get(config)
            if known is None:
                if len(self._known) >= MOST_SETTINGS:
                    self._known.clear()
                known = self._known.setdefault(config, Lines(config))
            known.config = config  # equal: the next look sees it at once
            self.latest = lines = known
        return lines

    def clear(self) -> None:
        """Know no lines any more: all take the usual way once."""
        self._known.clear()
        self.latest = Lines(current())


_SETTINGS: Final = _BySettings()


def forget() -> None:
    """See _BySettings.clear."""
    _SETTINGS.clear()


renewed_in_children(forget)  # GPUs don't survive a fork


def elements_of(t: TensorCore, value: Noted) -> Buffer | None:
    """The elements of a tensor, which becomes a leaf, where it ends a line that is known; None where more is to be
    looked at. The caller has seen that nobody else refers to its value, and that no derivation is under way."""
    if t._history is not None or t._view is not None:
        return None
    expression: Expression = value.expression or expression_of(value)
    if IN_A_ROW.worth_a_look(expression) and (buffer := computed_together(t, value, expression)) is not None:
        return buffer
    if expression.known is not None and (found := _tree(expression.known, value)) is not None:
        return _elements(t, value, *found)
    if value.note[0] == "concat" and (pieces := noted_list(value)) is not None:
        return _list_elements(t, value, pieces)
    return _looked_up(t, value, expression)


def _tree(known: Trees, value: Noted) -> tuple[Line, Sequence[Any], Numbers, Lines, tuple[()], Expression] | None:
    """What `_elements` is told of a value whose expression is that of known lines; None where it isn't read as those
    are."""
    places, trees = known
    parts = places.gathered(value)
    if parts is None:
        return None
    leaves = places.leaves(parts)
    lines, distinct = _SETTINGS.of(current()), len({*leaves})
    for tree in trees:
        if tree.lines is lines and tree.distinct == distinct and tree.firsts(leaves) == leaves:
            if tree.line.versions() is None:  # forgotten: it is learned anew
                continue
            if TensorLeaf.any_committed and any(leaf.committed for leaf in leaves):
                return None
            return tree.line, tree.inputs(leaves), tree.numbers(parts), lines, (), tree.result
    return None


def _looked_up(t: TensorCore, value: Noted, expression: Expression) -> Buffer | None:
    """The elements by words."""
    found = noted_structure(value)
    if found is None:
        return None
    lines = _SETTINGS.of(current())
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
    _, numbers, leaves, inner = found
    if not along and expression is not OPAQUE:
        del found, inner
        _note_tree(expression, value, line, lines)
    inputs, constants = [leaves[i] for i in line.inputs], tuple([numbers[i] for i in line.numbers])
    return _elements(t, value, line, inputs, constants, lines, along)


def _note_tree(expression: Expression, value: Noted, line: Line, lines: Lines) -> None:
    """From now on the line is found by the value's expression, if it is a tree."""
    known: Trees = expression.known or Trees(expression.places, ())
    places = known.places
    parts = places.gathered(value)
    if parts is None:
        return
    leaves = places.leaves(parts)
    first: dict[Value, int] = {}
    firsts = [first.setdefault(leaf, i) for i, leaf in enumerate(leaves)]
    distinct = [*first.values()]
    tree = Tree(
        lines,
        line,
        len(distinct),
        taker(firsts),
        taker([distinct[i] for i in line.inputs]),
        taker([places.numbers[i] for i in line.numbers]),
        leaf_expression(expression.type),
    )
    expression.known = Trees(places, (tree, *known.each)[:MOST_ALIKE])


def _elements(
    t: TensorCore, value: Noted, line: Line, inputs: Sequence[Any], constants: Numbers, lines: Lines,
    along: Sequence[Held] = (), result: Expression | None = None,
) -> Buffer | None:  # fmt: skip
    """The elements of the tensor, which is to have the expression `result`, and of those along; nobody else computes
    them meanwhile."""
    mine = EVALUATOR.claim(value)
    if mine is None:
        return None
    try:
        buffers = _run(line, inputs, constants, lines) if t._value is value else None
        if buffers is None:
            return None
        if along:
            outputs = dict(zip([value, *dict.fromkeys([v for _, v in along])], buffers, strict=True))
            EVALUATOR.settle([(t, value), *along], (), Computed(outputs, (), 0))
        else:
            EVALUATOR.settle_alone(t, value, buffers[0], result)
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


def _run(line: Line, leaves: Sequence[Any], constants: Numbers, lines: Lines) -> list[Buffer] | None:
    versions = line.versions()
    if versions is None:
        return None
    device = lines.device
    executable = versions.exact.get(constants)
    if executable is not None:
        versions.used = True
        program: Executable | DirectProgram = executable
        extra: Sequence[Buffer] = ()
    else:
        ready = SESSION.ready(versions, constants, line.nodes, device, lines.config.options)
        if ready is None:
            return None
        program, extra = ready
    name = device.name
    inputs = [leaf.buffer for leaf in leaves]
    for i, buffer in enumerate(inputs):
        if buffer.device != name:
            inputs[i] = placed(leaves[i], device)
    return program.run([*inputs, *extra] if extra else inputs)


def _unread() -> int:
    """What `getrefcount` gives, as it is asked above, for a value that nobody reads."""
    inner = [Noted(TensorType((), float64), "alias", (), {}, None)]
    return next(map(getrefcount, inner))


UNREAD: Final = _unread()
