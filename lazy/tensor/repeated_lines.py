"""Lines of a script that come again: their programs are found by what is noted of them, without a graph.

    y = x * 2.0 + 1.0;  print(y)       mul(x, 2.0), add(.., 1.0): the third time, a look-up and a call

An evaluation that takes its usual way walks nodes, which have to be made for it, cuts a graph, and looks for what else
is needed. Here one walk over notes (`graph.structure.noted_structure`) gives words by which the program is known, the
numbers and the leaves that it takes, and the values on the way. How often these are referred to says whether anybody
else needs one of them. Whatever isn't as it was the last time takes the usual way.

A line that was run so is found by its expression (`graph.expressions`) from then on, which operators keep up to date:
where the parts are is known, so that they need only be taken and compared. Which of them are the same, and how often
each value on the way is referred to, must be as it was, but for tensors of the user that hold some of these values:
they become leaves, too.

One element of a vector, or a row of a matrix, in the host's memory is taken from where it lies. That of a lazy array
which somebody holds has the whole array computed first: a script that reads one will read the others.

Circle: `lazy/tensor/evaluation.py` asks here first, and computes those vectors; `lazy/tensor/line_programs.py` runs the
programs of lines, whose types it names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from loopgrad.graph.closed_calls import operations
from loopgrad.graph.expressions import OPAQUE, Expression, Taken, expression_of, leaf_expression, places_of, taker
from loopgrad.graph.lift import slots
from loopgrad.graph.nodes import NODE, Leaf, Node, Noted, Value
from loopgrad.graph.noted_lists import NotedList, noted_list
from loopgrad.graph.passes.alike import MANY
from loopgrad.graph.primitives import NULLARY
from loopgrad.graph.structure import NotedStructure, Numbers, Words, noted_structure, number_places
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.alike_tensors import IN_A_ROW, MOST_BYTES, computed_in_a_row
from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf, array_leaf, few_elements
from loopgrad.lazy.tensor.evaluation import buffer_of
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Computed, known_leaf
from loopgrad.lazy.tensor.line_code import LineCode, Running, line_code
from loopgrad.lazy.tensor.line_programs import ready, run_anew, run_line
from loopgrad.lazy.tensor.liveness import Held, Kept, held_on_the_way, holder_of, holders, without_memory
from loopgrad.lazy.tensor.new_lines import computed_from_notes
from loopgrad.lazy.tensor.walk import walked
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import HOST_KINDS, Device, get_device
from loopgrad.runtime.executable import Outgrown
from loopgrad.runtime.processes import renewed_in_children
from loopgrad.runtime.rare_collection import RARE_COLLECTION
from loopgrad.runtime.session import SESSION, evaluate_graph

if TYPE_CHECKING:
    from loopgrad.runtime.session import Versions

MOST_LINES: Final = 4096
MOST_KEPT: Final = 64
MOST_SETTINGS: Final = 16
MOST_WHOLE: Final = 1 << 20  # bytes of a vector that is computed for one element
OFTEN: Final = 16  # times that a line comes before it gets code of its own
MOST_ALIKE: Final = 8  # lines of one expression, which differ in which leaves are the same


@dataclass(slots=True, eq=False)
class Line:
    """`versions`: the session's. `inputs`, `numbers`: where the program's are among those that are noted. `counts`: of
    references to the values on the way where only the line refers to them; `positions`: theirs in the program, which
    has so many `nodes`, those of calls counted. `keeping`: programs that give values on the way as well; None for one
    that was seen once."""

    versions: ref[Versions]
    inputs: tuple[int, ...]
    numbers: tuple[int, ...]
    counts: list[int]
    positions: list[int]
    nodes: int
    keeping: dict[Kept, Line | None]


@dataclass(slots=True, eq=False)
class Tree:
    """A line that is found by its expression, with some settings. Of the values on the way and the leaves, each as
    often as the expression has it, so many are `distinct`, and `firsts` takes for each the place where it is read
    first. `inputs` takes the program's among the leaves, `numbers` the program's among all parts. For each of the
    values on the way, `counts` has the references of the line itself, and `positions` where it is in the program.
    `code` makes code for it (`lazy.tensor.line_code`), once it has come as it is so many `times`.
    """

    lines: Lines
    line: Line
    distinct: int
    firsts: Taken
    inputs: Taken
    numbers: Taken
    counts: list[int]
    positions: list[int]
    code: Callable[[Running], LineCode]
    times: int = 0


class Trees:
    """The lines of an expression, the latest first. `_result`: the expression of the leaf that the value becomes.
    `often`: gives the elements where a line that came often is as it was, and is asked first."""

    __slots__ = ("_each", "_expression", "_places", "_result", "often")

    def __init__(self, expression: Expression) -> None:
        self._expression = expression
        self._each: tuple[Tree, ...] = ()
        self._places = places_of(expression)
        self._result = leaf_expression(expression.type)
        self.often: LineCode = _seldom

    def elements(self, t: TensorCore, value: Noted) -> Buffer | None:
        """As `elements_of`, of a tensor whose value has the expression. What lines of a script cost is decided here."""
        expression = self._expression
        row = IN_A_ROW
        if row.expression is not expression:
            row.begin(expression)
        elif (count := row.count + 1) < row.next:
            row.count = count
        elif (buffer := computed_in_a_row(expression, t, value)) is not None:
            return buffer
        if self._places and (buffer := _element(t, value, self._places, self._result)) is not None:
            return buffer
        places = expression.places
        parts = places.gathered(value)
        if parts is None:
            return None
        inner = places.inner(parts)
        counts = [*map(getrefcount, inner)]
        leaves = places.leaves(parts)
        both, config = inner + leaves, current()
        distinct, lines = len({*both}), SETTINGS.latest
        if lines.config is not config:
            lines = SETTINGS.of(config)
        for tree in self._each:
            if tree.lines is lines and tree.distinct == distinct and tree.firsts(both) == both:
                break
        else:
            return None
        if TensorLeaf.any_committed and any(leaf.committed for leaf in leaves):
            return None
        line: Line | None = tree.line
        along: Sequence[Held] = ()
        if counts != tree.counts and (counts := without_memory(t, inner, counts)) != tree.counts:
            held = holders(inner, counts, tree.counts, tree.positions)
            if held is None:
                return None
            kept, along = held
            line = tree.line.keeping.get(kept) if kept else line
        if not along and t._view is None and not self._places:
            tree.times += 1
            if tree.times == OFTEN:
                self.often = _often(expression, lines, tree.line, tree.code, self._result)
        if line is None or line.versions() is None:  # not learned yet, or forgotten
            return None
        return _elements(t, value, line, tree.inputs(leaves), tree.numbers(parts), lines, along, self._result)

    def add(self, value: Noted, line: Line, lines: Lines) -> None:
        """From now on the line is found by the value's expression."""
        places = self._expression.places
        parts = places.gathered(value)
        if parts is None or any(tree.line is line for tree in self._each):
            return
        inner, leaves = places.inner(parts), places.leaves(parts)
        if any(len(v.note) != NODE and v.note[1] for v in inner):  # somebody looked at it: numbers may be nodes
            return
        met_leaves, met_inner, met_numbers = places.met(parts)
        first: dict[Value, int] = {}
        firsts = [first.setdefault(v, i) for i, v in enumerate(inner + leaves)]
        position = {parts[place]: i for place, i in zip(met_inner, line.positions, strict=True)}
        inputs = [leaves.index(parts[met_leaves[i]]) for i in line.inputs]
        numbers, counts = [met_numbers[i] for i in line.numbers], places.counts(parts)
        given = [places.leaf_places[i] for i in inputs]
        looked_at = [None if v.note[0] in NULLARY else n for v, n in zip(inner, counts, strict=True)]
        tree = Tree(
            lines,
            line,
            len(first),
            taker(firsts),
            taker(inputs),
            taker(numbers),
            counts,
            [position[v] for v in inner],
            partial(line_code, places, firsts, looked_at, given, numbers),
        )
        self._each = (tree, *self._each)[:MOST_ALIKE]


def _seldom(t: TensorCore, value: Noted) -> None:
    """Of lines without code of their own."""


def _often(
    expression: Expression, lines: Lines, line: Line, code: Callable[[Running], LineCode], result: Expression
) -> LineCode:
    """What gives the elements of tensors that end in a line as its code finds it, with the settings of `lines`; None
    where anything isn't as it was. `result`: the expression of the leaves."""
    run = EVALUATOR.run_line

    def otherwise(t: TensorCore, value: Noted, inputs: list[Buffer], constants: Numbers) -> Buffer | None:
        found = ready(line, constants, lines)
        if found is None:
            return None
        try:
            return run(t, value, found[0], [*inputs, *found[1]], result)
        except Outgrown:
            if (versions := line.versions()) is not None:
                SESSION.outgrew(versions)
            return None

    batched, config, name, versions = partial(computed_in_a_row, expression), lines.config, lines.name, line.versions
    return code(Running(IN_A_ROW, expression, batched, config, current, name, versions, run, otherwise, result))


class Lines:
    """The lines known with some settings; None for one that was seen once. Threads that look at it at the same time may
    learn a line twice. `name`: the device's, in full."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.name = get_device(config.device).name
        self.known: dict[Words, Line | None] = {}

    @property
    def device(self) -> Device:
        """Asked for each time: another may have come under this name, and memory of the one before isn't its own."""
        return get_device(self.name)

    def line(self, value: Noted, found: NotedStructure) -> Line | None:
        """What is known of a line that was seen before; it is learned when it is seen for the second time."""
        known, words = self.known, found[0]
        line = known.get(words)
        if line is not None and line.versions() is not None:
            return line
        if line is not _USUAL:
            line = known[words] = self._learned((value,), found)
        return None if line is _USUAL else line

    def note(self, words: Words) -> None:
        """A line was seen once."""
        if len(self.known) >= MOST_LINES:
            self.known.clear()
        self.known[words] = None

    def keeping(
        self, line: Line, value: Noted, found: NotedStructure, kept: Kept, along: Sequence[Held]
    ) -> Line | None:
        """The same with values on the way, which tensors along hold."""
        known = line.keeping
        further = known.get(kept)
        if further is not None and further.versions() is not None:
            return further
        if kept in known:
            known[kept] = self._learned((value, *dict.fromkeys([v for _, v in along])), found)  # type: ignore[arg-type]
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
            return _USUAL if walk.plain else None
        graph, given = walk.cut(outputs)
        versions = SESSION.found(graph, self.device, self.config.options)[0]
        places: dict[Value, int] = {leaf: i for i, leaf in enumerate(leaves)}
        numbers = {place: i for i, place in enumerate(number_places(value, known_leaf))}
        order: dict[Node | None, int] = {node: i for i, node in enumerate(graph.nodes)}
        if len(numbers) != len(found[1]):
            return None  # another thread has computed something on the way since the line was looked at
        try:
            read = tuple([places[leaf] for leaf in given])
            open = tuple([numbers[place] for node in graph.nodes for place in slots(node)])
            positions = [order[v.node] for v in inner]
        except KeyError:
            return None  # as above
        return Line(ref(versions), read, open, list(counts.values()), positions, operations(graph), {})


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


SETTINGS: Final = _BySettings()
_USUAL: Final = Line(lambda: None, (), (), [], [], 0, {})  # type: ignore[arg-type]  # for lines with tests


def forget() -> None:
    """See _BySettings.clear."""
    SETTINGS.clear()


renewed_in_children(forget)  # GPUs don't survive a fork


def elements_of(t: TensorCore, value: Noted, read: bool = False) -> Buffer | None:
    """The elements of a tensor, which becomes a leaf, where it ends a line that is known, or notes will do; None where
    more is to be looked at. The caller has seen that nobody else refers to its value but its memory (or says that it is
    `read`), that the tensor has no history, that no derivation is under way, and that the trees of the expression don't
    know the line."""
    if read:
        listed = value.note[0] == "concat" and len(value.note[1]) >= MANY
        return None if listed else computed_from_notes(t, value, current(), read)
    expression: Expression = value.expression or expression_of(value)
    if expression.known is None and (buffer := computed_in_a_row(expression, t, value)) is not None:
        return buffer
    if value.note[0] == "concat" and (pieces := noted_list(value, _whole, few_elements)) is not None:
        return _list_elements(t, value, pieces)
    return _looked_up(t, value, expression)


def _looked_up(t: TensorCore, value: Noted, expression: Expression) -> Buffer | None:
    """The elements by words."""
    found = noted_structure(value, known_leaf)
    lines = SETTINGS.of(current())
    if found is None or found[0] not in lines.known:
        if found is not None:
            lines.note(found[0])
            found = None  # which refers to values: these are counted
        return computed_from_notes(t, value, lines.config)
    line = lines.line(value, found)
    if line is None:
        return None
    if expression is not OPAQUE:
        if expression.known is None:
            expression.known = Trees(expression)
        expression.known.add(value, line, lines)
    along: list[Held] = []
    seen = [*map(getrefcount, found[3])]
    if seen != line.counts and (seen := without_memory(t, found[3], seen)) != line.counts:
        held = held_on_the_way(found[3], seen, line.counts, line.positions)
        if held is None:
            return None
        kept, along = held
        if along:
            line = lines.keeping(line, value, found, kept, along)
            if line is None:
                return None
    if TensorLeaf.any_committed and any(leaf.committed for leaf in found[2]):  # type: ignore[attr-defined]
        return None
    inputs, constants = [found[2][i] for i in line.inputs], tuple([found[1][i] for i in line.numbers])
    return _elements(t, value, line, inputs, constants, lines, along)


def _element(t: TensorCore, value: Noted, places: int, result: Expression) -> Buffer | None:
    """The element of a vector, the row of a matrix and the like, from where it lies in the host's memory: no program is
    needed."""
    sliced = value.note[1][0]
    start = sliced.note[2]["start"]
    if any(start[places:]):  # taken backwards
        return None
    leaf = sliced.note[1][0]
    if type(leaf) is not TensorLeaf:
        leaf = _whole(leaf)
        if leaf is None:
            return None
    buffer: Buffer = leaf.buffer
    if sliced.known is not None or type(buffer) is not Buffer or buffer.device != current().device or leaf.committed:
        return None
    array = buffer.array[(*start[:places], ...)].copy()
    array.flags.writeable = False
    found = Buffer(array, buffer.device, result.type)
    EVALUATOR.settle_line(t, value, (), (found,), result)
    return found


def _whole(vector: Value) -> TensorLeaf | None:
    """The leaf of a vector, which is computed now where a tensor holds it; None where that would be much."""
    leaf = known_leaf(vector)
    if leaf is None and vector.type.nbytes <= MOST_WHOLE and (holder := holder_of(vector)) is not None:  # type: ignore[union-attr]
        buffer_of(holder)
        leaf = known_leaf(vector)
    return leaf


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
        if t._value is not value:
            return None
        buffers = run_line(line, inputs, constants, lines) or run_anew((value, *[v for _, v in along]), lines)
        if len(along) < len(buffers):
            EVALUATOR.settle_line(t, value, along, buffers, result)
        else:  # several tensors hold a value
            outputs = dict(zip([value, *dict.fromkeys([v for _, v in along])], buffers, strict=True))
            EVALUATOR.settle([(t, value), *along], (), Computed(outputs, (), 0))
        return buffers[0]
    finally:
        EVALUATOR.release(value, mine)


@RARE_COLLECTION
def _list_elements(t: TensorCore, value: Noted, found: NotedList) -> Buffer | None:
    """As above, of a list of pieces that are alike. Large ones that somebody holds become leaves; small ones are
    computed again in less time than that takes."""
    graph, given, members = found
    config = current()
    device = get_device(config.device)
    if TensorLeaf.any_committed and any(isinstance(x, TensorLeaf) and x.committed for x in given):
        return None
    places: dict[Value, int] = {}
    if members[0].type.nbytes > MOST_BYTES:  # type: ignore[union-attr]
        places = {v: i for i, v in enumerate(members)}
    along = [(other, v) for v in places if (other := holder_of(v)) is not None]
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
            rows, row = buffer.array.reshape(len(members), *members[0].shape), members[0].type
            outputs.update((v, Buffer(rows[places[v], ...], device.name, row)) for _, v in along)  # type: ignore[arg-type]
        EVALUATOR.settle([(t, value), *along], (), Computed(outputs, (), 0))
        return buffer
    finally:
        EVALUATOR.release(value, mine)


def _unread() -> int:
    """What `getrefcount` gives, as it is asked above, for a value that nobody reads."""
    inner = [Noted(TensorType((), float64), "alias", (), {}, None)]
    return next(map(getrefcount, inner))


UNREAD: Final = _unread()
