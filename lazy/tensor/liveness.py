"""What an evaluation should keep beside what was asked for.

A script that evaluates one tensor of a growing graph must not compute the rest again next time:

    for _ in range(n):
        loss, g = value_and_grad(f)(x);  x = x - 0.1 * g;  print(loss)

Printing computes the old `x` on the way to `loss`; the new `x`, which the script holds, needs it. So an
evaluation also keeps (1) tensors of the user that get computed on the way, and (2) values on the way
that unevaluated tensors of the user read. The latter are noted in `Value.known`, and later evaluations
start there. Derivatives don't look at `known`: the graph itself never changes.

So a state that is never asked for itself (`x` above) would hold its whole past, elements included. After
some evaluations that each started from what the one before had noted, (3) tensors that still wait for such
values are computed too: they become leaves, and the past goes. The line that made such a tensor, and made what was
computed on the way there, is a state's: the next ones that it makes are computed at once. So each step of a loop is
like the one before, and what functions note of it is known (`lazy.tensor.repeated_calls`).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from operator import itemgetter
from sys import getrefcount
from typing import Any, Final, NamedTuple
from weakref import ref

from loopgrad.graph.nodes import NO_ATTRS, NODE, Location, Node, Noted, Value, is_made, node_so_far
from loopgrad.graph.primitives import KEEPING_SPLATS, NULLARY
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.core import LIVE, TensorCore
from loopgrad.lazy.tensor.evaluator import Wanted, known_leaf
from loopgrad.lazy.tensor.walk import Walk

# Elements that cost nothing to compute again, or more to keep than to compute: what they are made of is kept.
NOT_KEPT: Final = NULLARY | KEEPING_SPLATS

# Keeping is worth a bounded effort per evaluation: so many tensors, and so many nodes behind them (beside
# twice as many as are computed), so that a list of lazy tensors evaluated one by one stays linear.
_TENSOR_LIMIT: Final = 256
_NODE_LIMIT: Final = 1000
GENERATIONS: Final = 4  # evaluations in a row that a tensor may wait
_MOST_STATES: Final = 1024  # lines


Held = tuple[TensorCore, Value]
"""A tensor and the value that it referred to: another thread may give it elements meanwhile."""


Kept = tuple[int, ...]
"""Which values on the way tensors hold, by their positions in the program in ascending order."""


class Needed(NamedTuple):
    """`along`: tensors computed on the way. `read`: values on the way that unevaluated tensors read.
    `generation`: evaluations in a row that started from noted values. `waiting`: tensors that read such
    values for too long."""

    along: Sequence[Held]
    read: Sequence[Value]
    generation: int
    waiting: Sequence[Held]


NOTHING: Final = Needed((), (), 0, ())


_States = set[tuple[str, Location | None]]
_STATES: Final[_States] = set()  # lines whose tensors waited, each with the operation that gave them


def waiting_states(walk: Walk, wanted: Wanted) -> list[Held]:
    """The tensors of lines that made states before, which wait for what an evaluation computes."""
    if not _STATES:
        return []
    held = [h for h in held_tensors() if _line_of(h[1]) in _STATES and id(h[0]) not in wanted]
    reading: dict[Value, bool] = {}
    budget = _NODE_LIMIT + 2 * len(walk.nodes)
    return [h for h in held if node_so_far(h[1]) not in walk.nodes and _reads(h[1], walk.nodes, reading, budget)]


def _line_of(value: Value) -> tuple[str, Location | None]:
    """The operation that gives a value which is made, and its line."""
    node = node_so_far(value)
    if node is not None:
        return node.op, node.loc
    op, _, _, loc = value.note[:NODE]  # type: ignore[attr-defined]
    return op, loc


def _note_states(waiting: Sequence[Held], computed: Collection[Node]) -> None:
    """Of lines that made some of these tensors, and what was computed on the way to them, as well."""
    if not waiting:
        return
    if len(_STATES) > _MOST_STATES:
        _STATES.clear()
    _STATES.update({_line_of(value) for _, value in waiting}.intersection([(node.op, node.loc) for node in computed]))


def still_needed(walk: Walk, wanted: Wanted) -> Needed:
    """What an evaluation of the tensors that are wanted, from which that walk went, should give beside them."""
    held = [h for h in held_tensors() if id(h[0]) not in wanted]
    if not held and not walk.starts:
        return NOTHING
    computed: Collection[Node] = walk.nodes
    generation = max([leaf.generation + 1 for leaf in walk.starts.values()], default=0)
    if not walk.plain:
        computed = {*computed, *[node.replaces for node in computed if node.replaces is not None]}
    along: list[Held] = []
    outside: list[Held] = []
    for t, value in held:
        made_by = node_so_far(value)  # those of `computed` are made
        if made_by is not None and made_by in computed and made_by.op not in NOT_KEPT:
            along.append((t, value))
        else:
            outside.append((t, value))
    in_order(along, walk)
    if not outside:
        return Needed(along, [], generation, [])
    outside.reverse()  # the latest tensors are the likeliest to be read again
    read = _values_read([value for _, value in outside], computed)
    waiting = [h for h in outside if _values_read([h[1]], computed)] if read and generation >= GENERATIONS else []
    _note_states(waiting, computed)
    return Needed(along, read, generation, waiting)


def unread(t: TensorCore) -> bool:
    """Whether nobody refers to the tensor's value but the tensor, the value's node (if it is made) and the caller."""
    return COUNTED and getrefcount(t._value) == UNREAD - (type(t._value) is Noted and len(t._value.note) == NODE)


def held_alone(walk: Walk) -> Needed | None:
    """What an evaluation should keep where nobody refers to what a walk's nodes give, its outputs apart, but these
    nodes and for each value one tensor at most: which costs a look at these nodes, however many tensors wait. What
    refers to it otherwise may also be garbage that wasn't collected yet: who gets None has to look at all of them."""
    if not walk.plain or walk.starts:
        return None
    inside: dict[Value, int] = {}
    for node in walk.nodes:
        for v in node.operands:
            inside[v] = inside.get(v, UNUSED) + 1
    for v in walk.inputs:
        inside.pop(v, None)
    seen = [*map(getrefcount, inside)]
    if seen == [*inside.values()]:
        return NOTHING
    holders = [holder_of(v, n - m) for (v, m), n in zip(inside.items(), seen, strict=True) if n != m]
    held = [(t, t._value) for t in holders if t is not None]
    if len(held) != len(holders):
        return None
    if any(v.node.op in KEEPING_SPLATS for _, v in held):  # type: ignore[union-attr]  # read what is to be kept
        return None
    along = [h for h in held if h[1].node.op not in NOT_KEPT]  # type: ignore[union-attr]
    return Needed(in_order(along, walk), (), 0, ())


def holder_of(value: Value, references: int | None = None) -> TensorCore | None:
    """The tensor that was made of a noted value, where it still has it, and where so many `references`, if any are
    named, come from it and its memory."""
    reference = value.holder if type(value) is Noted else None
    t: TensorCore | None = None if reference is None else reference()
    if t is None or t._value is not value:
        return None
    own = 1 if t._view is None or not t._view.refers_to(value) else 2
    return t if references in (None, own) else None


def without_memory(t: TensorCore, inner: Sequence[Noted], counts: list[int]) -> list[int]:
    """The counts of references to values on the way without that of the memory of which the tensor is a view, where
    nobody holds all of it: `np.outer(x, y)` is its product in another shape."""
    root = None if t._view is None else t._view.root_value
    if root is None or holder_of(root) is not None:
        return counts
    return [n - (v is root) for v, n in zip(inner, counts, strict=True)]


def holders(
    inner: Sequence[Noted], counts: Sequence[int], alone: Sequence[int], positions: Sequence[int]
) -> tuple[Kept, list[Held]] | None:
    """The tensors that hold values on the way and become leaves, too, in the order of the program, and where these
    values are in it; None where something else refers to such values than what they were expected `alone` for, and one
    tensor at most."""
    found: dict[int, Held] = {}
    for v, seen, expected, position in zip(inner, counts, alone, positions):  # noqa: B905  # half the time
        if seen != expected and v.note[0] not in NULLARY:  # constants are made again
            t = holder_of(v, seen - expected)
            if t is None:
                return None
            if v.note[0] not in NOT_KEPT:
                found[position] = t, v
    kept = tuple(sorted(found))
    return kept, [found[position] for position in kept]


def held_on_the_way(
    inner: Sequence[Noted], counts: list[int], alone: Sequence[int], positions: Sequence[int]
) -> tuple[Kept, list[Held]] | None:
    """As `holders`, and where tensors share a value, which it doesn't know: all tensors that live are looked at."""
    if (known := holders(inner, counts, alone, positions)) is not None:
        return known
    places: dict[Value, int] = {v: i for i, v in enumerate(inner)}
    held = [(t, v, places[v]) for t, v in held_tensors() if type(v) is Noted and v in places]
    expected = [*alone]
    for _, _, place in held:
        expected[place] += 1
    if expected != counts:
        return None
    along = [(positions[place], t, v) for t, v, place in held if v.note[0] not in NOT_KEPT]
    along.sort(key=itemgetter(0))
    return tuple(dict.fromkeys([position for position, _, _ in along])), [(t, v) for _, t, v in along]


def in_order(held: list[Held], walk: Walk) -> list[Held]:
    """Tensors in the order of the program, as `lazy.tensor.repeated_lines` has them."""
    if len(held) > 1:
        order: dict[Node | None, int] = {node: i for i, node in enumerate(walk.nodes)}
        held.sort(key=lambda h: order.get(h[1].node, 0))
    return held


def _values_read(values: Sequence[Value], computed: Collection[Node]) -> list[Value]:
    """Results of `computed` nodes on which `values` depend."""
    met: dict[Value, None] = {}
    _reach(values, computed, met, _NODE_LIMIT + 2 * len(computed))
    return [v for v in met if isinstance(v.type, TensorType)]


def held_tensors() -> list[Held]:
    """The latest unevaluated tensors that somebody holds; forgets those among them that are neither."""
    held: dict[int, tuple[ref[TensorCore], TensorCore, Value]] = {}
    live = LIVE.tensors
    first = end = len(live)
    for reference in reversed(live):
        first -= 1
        t = reference()
        if t is not None and is_made(value := t._value):
            if id(t) not in held:
                held[id(t)] = reference, t, value
            if len(held) == _TENSOR_LIMIT:
                break
    live[first:end] = [reference for reference, _, _ in reversed(held.values())]
    return [(t, value) for _, t, value in reversed(held.values())]


def _reach(values: Sequence[Value], border: Collection[Node], met: dict[Value, None], budget: int) -> None:
    """Walk to the operands of `values`, so many operations, up to known values and to nodes in `border`; the values at
    which the walk met those go to `met`. Makes no nodes, so that lines with these operations stay known."""
    passed: set[Node | Value] = set()
    pending: list[Any] = list(reversed(values))
    while pending and budget != 0:
        value = pending.pop()
        if type(value) is float or not is_made(value):
            continue
        node = node_so_far(value)
        step = value if node is None else node
        if step in passed or known_leaf(value) is not None:
            continue
        if node is not None and node in border and node.op not in NOT_KEPT:
            met[value] = None
            continue
        passed.add(step)
        budget -= 1
        pending.extend(reversed(value.note[1] if node is None else node.operands))


def _reads(value: Value, border: Collection[Node], reading: dict[Value, bool], budget: int) -> bool:
    """Whether a value depends on nodes in `border`, as `_reach` finds it, which looks at as many values at most; what
    is known of values is in `reading`, and goes there."""
    pending = [value]
    while pending and len(reading) < budget:
        v = pending[-1]
        if v in reading:
            pending.pop()
            continue
        node = node_so_far(v)
        if node is not None and node in border and node.op not in NOT_KEPT:
            reading[v] = True
            continue
        if not is_made(v) or known_leaf(v) is not None:
            reading[v] = False
            continue
        operands = [x for x in (v.note[1] if node is None else node.operands) if type(x) is not float]  # type: ignore[attr-defined]
        missing = [x for x in operands if x not in reading]
        if missing:
            pending += missing
        else:
            reading[v] = any(map(reading.__getitem__, operands))
    return reading.get(value, False)


def _counts() -> tuple[int, int]:
    """What `getrefcount` gives, as the functions above see it: for the value of a tensor, and for a value that no
    node reads."""
    made_by = Node("alias", (), (TensorType((), float64), TensorType((), float64)))
    probe, value = TensorCore(), made_by.results[0]
    probe._value = value  # which the caller of `unread` holds, too
    unused = dict.fromkeys(made_by.results[1:])
    return getrefcount(probe._value), next(map(getrefcount, unused))


def _alone() -> int:
    """The same for a value that a tensor holds, and who asks."""
    probe = TensorCore()
    probe._value = Noted(TensorType((), float64), "alias", (), NO_ATTRS, None)
    value = probe._value
    return getrefcount(value)


UNREAD, UNUSED = _counts()
COUNTED: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()
ALONE: Final = _alone() if COUNTED else 0
