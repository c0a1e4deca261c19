"""The operations of a call, as they are noted again (`lazy.tensor.repeated_calls`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from loopgrad.graph.expressions import OPAQUE, Expression, expression_of
from loopgrad.graph.nodes import NODE, Graph, Leaf, Location, Node, Noted, Value
from loopgrad.graph.types import StackType, TensorType
from loopgrad.lazy.tensor.core import TensorLeaf
from loopgrad.runtime.buffers import Buffer

MOST_STEPS: Final = 8192
MOST_CAPTURED: Final = 1 << 16  # bytes of an array that a call makes of plain arguments
LOOKED_AT: Final = 2  # operations before an operand that decide, at most, how one on it is noted
CAPTURED: Final[WeakSet[Leaf]] = WeakSet()  # by what is known of calls
_new: Final = object.__new__


class NotedStep(NamedTuple):
    """An operation of a call. `operands`: places among the values that the call takes and the results of steps, or
    numbers as floats. `loc`: a line of a function that the call was given; else it is that of the call. `expression`:
    None where that of the result is to be looked for."""

    op: str
    operands: tuple[int | float, ...]
    attrs: Mapping[str, Any]
    type: TensorType
    loc: Location | None
    expression: Expression | None


class NodeStep(NamedTuple):
    """An operation of a call that has several results, or regions."""

    op: str
    operands: tuple[int, ...]
    attrs: Mapping[str, Any]
    types: tuple[TensorType | StackType, ...]
    loc: Location | None
    regions: tuple[Graph, ...]
    replaces: int | None  # the place of the first result of another operation


Step = NotedStep | NodeStep


def noted(steps: Sequence[Step], operands: Sequence[Value], loc: Location | None) -> list[Any]:
    """The operands, and what the steps give of them."""
    values: list[Any] = [*operands]
    replacing: list[tuple[Node, int]] = []
    for step in steps:
        if isinstance(step, NodeStep):
            given = tuple([values[i] for i in step.operands])
            node = Node(step.op, given, step.types, step.attrs, step.regions, step.loc or loc)
            values += node.results
            if step.replaces is not None:
                replacing.append((node, step.replaces))
            continue
        op, places, attrs, type, own, expression = step
        value: Noted = _new(Noted)
        value.type = type
        value.index = 0
        value.known = value.scope = value.holder = None
        value.expression = expression
        value.note = [op, tuple([i if i.__class__ is float else values[i] for i in places]), attrs, own or loc]  # type: ignore[index]
        values.append(value)
    for node, place in replacing:
        node.replaces = values[place].node
    return values


def steps_to(
    results: Sequence[Value], operands: Sequence[Value], before: int
) -> tuple[tuple[Leaf, ...], list[Noted | Node]] | None:
    """The leaves that a call made, and what it noted, in order; None where more leads to the results than that: what
    operands are computed from, elements that were looked at."""
    captured: dict[Value, None] = {}
    order: dict[Noted | Node, None] = {}
    done, behind = {*operands}, _behind(operands)
    pending = [*results]
    while pending:
        value = pending[-1]
        made: Noted | Node | None = value if type(value) is Noted else value.node
        if value in done or made in order:
            pending.pop()
            continue
        if value in behind or value.known is not None or len(order) >= MOST_STEPS:
            return None
        if made is None:
            if not _is_own(value, before):
                return None
            captured[value] = None
            done.add(value)
            continue
        given: Sequence[Any] = made.note[1] if isinstance(made, Noted) else made.operands
        read = [v for v in given if type(v) is not float]
        missing = [v for v in read if v not in done and (v if type(v) is Noted else v.node or v) not in order]
        pending += missing
        if not missing:
            pending.pop()
            order[made] = None
    return tuple(captured), [*order]  # type: ignore[arg-type]


def _behind(operands: Sequence[Value]) -> set[Value]:
    """What operands are computed from, as far as operations look at what they are given."""
    found: set[Value] = set()
    latest: list[Value] = [*operands]
    for _ in range(LOOKED_AT):
        latest = [x for v in latest if type(v) is Noted for x in v.note[1] if type(x) is not float]
        found.update(latest)
    return found.difference(operands)


def _is_own(value: Value, before: int) -> bool:
    """Whether a value is a small leaf in the host's memory that the call made of plain arguments, or a call before from
    which it has it."""
    if not isinstance(value, TensorLeaf) or value.committed or (value.serial <= before and value not in CAPTURED):
        return False
    return type(value.buffer) is Buffer and value.buffer.nbytes <= MOST_CAPTURED


def step_of(made: Noted | Node, places: dict[Value, int], loc: Location | None) -> Step:
    """An operation of a call at that line; its results get places. The expression is to be looked for."""
    if type(made) is Node:
        given = tuple([places[v] for v in made.operands])
        for v in made.results:
            places[v] = len(places)
        own, types = None if made.loc == loc else made.loc, tuple([v.type for v in made.results])
        return NodeStep(made.op, given, made.attrs, types, own, made.regions, None)
    assert isinstance(made, Noted)
    op, operands, attrs, line = made.note[:NODE]
    taken = tuple([v if type(v) is float else places[v] for v in operands])
    places[made] = len(places)
    return NotedStep(op, taken, attrs, made.type, None if line == loc else line, None)  # type: ignore[arg-type]


def with_expressions(steps: Sequence[Step], given: Sequence[Value], loc: Location | None) -> list[Step]:
    """The steps with what they give of such values computed as. (What somebody looked at meanwhile, a derivative say,
    was computed as something else: its numbers are values by now.)"""
    place = len(given)
    values = noted(steps, given, loc)
    found: list[Step] = []
    for step in steps:
        if isinstance(step, NotedStep):
            known = expression_of(values[place])
            found.append(step._replace(expression=None if known is OPAQUE else known))
        else:
            found.append(step)
        place += 1 if isinstance(step, NotedStep) else len(step.types)
    return found
