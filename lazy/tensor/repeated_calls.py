"""Functions of tensors that are called again: what they noted the last time is noted again, of other operands.

    z = lg.where(x > 0.0, x, y)        select(%0, %1, %2): checked, promoted and inferred once, then a look-up

Array functions look at the types of their operands and at plain arguments (axes, shapes, flags). So where all of these
and what the operands are computed as (`graph.expressions`) are as they were, the same operations come of it. A call
that looked at more isn't remembered: at elements, or between which numbers integers lie that were computed with
numbers which expressions leave open. Only at the top level, and of functions that return one tensor: with memory of its
own, or a view of its only operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar

from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.expressions import OPAQUE, Expression, expression_of
from loopgrad.graph.location import user_location
from loopgrad.graph.nodes import NODE, Leaf, Location, Noted, Value
from loopgrad.graph.types import DType, TensorType, int64
from loopgrad.lazy.tensor import view_steps
from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import TensorCore, as_tensor, held
from loopgrad.lazy.tensor.ongoing_derivations import reading
from loopgrad.lazy.tensor.storage import LONE, by_rows, is_lone, viewed

F = TypeVar("F", bound=Callable[..., Any])

MOST_KNOWN: Final = 1024  # calls of a function, before all are forgotten
MOST_MISSED: Final = 256
SELDOM: Final = 8
"""After so many calls in a row that weren't known only each eighth is looked at: a loop that writes to one place after
the other makes no call twice, and what its array is computed as gets longer each time."""
MOST_OPERANDS: Final = 8
MOST_STEPS: Final = 256
PLAIN: Final = frozenset({int, bool, str, NoneType, DType})
_new: Final = object.__new__


class NotedStep(NamedTuple):
    """An operation of a call. `operands`: places among the call's operands and the results of steps, or numbers as
    floats."""

    op: str
    operands: tuple[int | float, ...]
    attrs: Mapping[str, Any]
    type: TensorType
    expression: Expression


class Recipe(NamedTuple):
    """What a call noted with some settings, the result last; `weak` as of the tensor. `way`: where the result shares
    its only operand's memory, how it is taken of that. Without steps: nothing that could be noted again."""

    config: Config
    steps: tuple[NotedStep, ...]
    weak: bool
    way: view_steps.Step | None


_NOTHING: Final = Recipe(current(), (), False, None)
_UNKNOWN: Final = _NOTHING._replace(weak=True)  # of a call that wasn't met


class Calls:
    """What is known of the calls of one function, which may give `views`."""

    def __init__(self, views: bool = False) -> None:
        self._views = views
        self._missed = 0  # calls in a row that weren't known
        self._known: dict[tuple[Any, ...], Recipe | None] = {}

    def result(self, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """What a function returns at the top level, for a function of ours that the user's line calls."""
        tensors: list[TensorCore] = []
        operands: list[Value] = []
        self._missed += 1
        seldom = self._missed > MOST_MISSED and self._missed % SELDOM != 0
        words = None if seldom else call_words(args, options, tensors, operands)
        if words is None:
            return function(*args, **options)
        known = self._known
        recipe = known.get(words, _UNKNOWN)
        if recipe is not None and recipe.steps and is_in_force(recipe.config):
            self._missed = 0
            value = noted_again(recipe.steps, operands, user_location(2))
            if recipe.way is None:
                return held(value, recipe.weak)
            return viewed(as_tensor(tensors[0]), recipe.way, value)
        if recipe is _NOTHING:
            return function(*args, **options)
        if recipe is not _UNKNOWN:
            result, known[words] = self._learned(function, args, options, tensors, operands)
            return result
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[words] = None  # most calls are made once
        return function(*args, **options)

    def _learned(
        self, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any],
        tensors: Sequence[TensorCore], operands: Sequence[Value],
    ) -> tuple[Any, Recipe]:  # fmt: skip
        """What the function returns, and how that is noted."""
        values, looks = [t._value for t in tensors], AMBIENT.looks_at_ranges
        with reading() as read:
            result = function(*args, **options)
        if read or any(t._value is not v for t, v in zip(tensors, values, strict=True)):  # one was written to
            return result, _NOTHING
        if AMBIENT.looks_at_ranges != looks and any(map(_has_open_range, operands)):
            return result, _NOTHING
        return result, _recipe(result, tensors, operands, self._views)


def repeated(function: F) -> F:
    """The function, which notes again what it noted for arguments alike. It must look at no tensor but its arguments,
    and at no setting but those of a `Config`."""
    calls = Calls()

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options) if AMBIENT.plain is None else calls.result(function, args, options)

    return call  # type: ignore[return-value]


def repeated_view(function: F) -> F:
    """The same of a function whose first argument's memory the result may share, which depends on nothing else where
    its elements lie row by row."""
    calls = Calls(views=True)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if AMBIENT.plain is None or not args or not _in_rows(args[0]):
            return function(*args, **options)
        return calls.result(function, args, options)

    return call  # type: ignore[return-value]


def _in_rows(x: Any) -> bool:
    """Whether a tensor has memory of its own, or is all of what others share."""
    view = x._view if isinstance(x, TensorCore) else LONE
    return view is None or (view.storage is not None and view.parent is None and view.in_rows)


def is_in_force(config: Config) -> bool:
    """Whether these are the settings."""
    latest = current()
    return config is latest or config == latest


def call_words(
    args: Sequence[Any], options: Mapping[str, Any], tensors: list[TensorCore], operands: list[Value]
) -> tuple[Any, ...] | None:
    """What decides which operations a call notes; None where more does. Its tensors are listed, and their values, each
    once."""
    words: list[Any] = []
    if not _add_words(args, tensors, operands, words):
        return None
    for name, x in options.items():
        words.append(name)
        if not _add_words((x,), tensors, operands, words):
            return None
    return tuple(words) if len(operands) <= MOST_OPERANDS else None


def _add_words(args: Sequence[Any], tensors: list[TensorCore], operands: list[Value], words: list[Any]) -> bool:
    for x in args:
        cls = type(x)
        if isinstance(x, TensorCore):
            tensors.append(x)
            value = x._value
            expression: Expression = value.expression or expression_of(value)
            if expression is OPAQUE or _is_open_constant(expression):  # which may be looked at
                return False
            if x._weak and value.dtype is int64 and isinstance(value, Leaf):  # what it meets must be able to hold it
                return False
            if value in operands:
                words += ("again", operands.index(value), x._weak)
            else:
                operands.append(value)
                words += (expression, x._weak)
            if not expression.type.shape:
                words.append(x._view is None)  # a number, which shares no memory
        elif cls in PLAIN:
            words += (cls, x)
        elif cls is float:
            words += (cls, x or str(x))  # a zero has a sign
        elif cls is tuple or cls is list:
            words += (cls, len(x))
            if len(x) > MOST_OPERANDS or not _add_words(x, tensors, operands, words):
                return False
        elif cls is slice:
            words.append(cls)
            if not _add_words((x.start, x.stop, x.step), tensors, operands, words):
                return False
        elif x is Ellipsis or x is slice:
            words.append(x)
        else:
            return False
    return True


def _is_open_constant(expression: Expression) -> bool:
    """Whether an expression is a constant that it leaves open, or an operation on such: a complex number has two."""
    operands = expression.operands
    if not expression.op or any(isinstance(x, Expression) and (not x.op or x.operands) for x in operands):
        return False
    return expression.open > 0 or any(x.open > 0 if isinstance(x, Expression) else x is None for x in operands)


def _has_open_range(value: Value) -> bool:
    """Whether values with the expression of this one may lie between other numbers."""
    return value.dtype.kind in "iu" and bool(expression_of(value).op)


def noted_again(steps: Sequence[NotedStep], operands: Sequence[Value], loc: Location | None) -> Noted:
    """The result of these steps, noted now for a line."""
    values: list[Any] = [*operands]
    for op, places, attrs, type, expression in steps:
        value: Noted = _new(Noted)
        value.type = type
        value.index = 0
        value.known = value.scope = value.holder = None
        value.expression = expression
        value.note = [op, tuple([i if i.__class__ is float else values[i] for i in places]), attrs, loc]  # type: ignore[index]
        values.append(value)
    return value


def steps_to(result: Value, operands: Sequence[Value]) -> tuple[NotedStep, ...]:
    """How a value was noted of all these operands; no steps where it is one of them, or where more than their notes
    leads to it: elements that were looked at."""
    places: dict[Value, int] = {v: i for i, v in enumerate(operands)}
    steps: list[NotedStep] = []
    pending = [result]
    while pending:
        value = pending[-1]
        if value in places:
            pending.pop()
            continue
        if type(value) is not Noted or value.known is not None or len(value.note) != NODE or len(steps) >= MOST_STEPS:
            return ()
        op, given, attrs, _ = value.note
        if op == "literal":
            return ()
        if missing := [v for v in given if type(v) is not float and v not in places]:
            pending += missing
            continue
        pending.pop()
        expression, made = expression_of(value), value.type
        if not isinstance(made, TensorType):
            return ()
        places[value] = len(operands) + len(steps)
        taken = tuple([v if type(v) is float else places[v] for v in given])
        steps.append(NotedStep(op, taken, attrs, made, expression))
    read = {place for step in steps for place in step.operands if type(place) is int}
    return tuple(steps) if read.issuperset(range(len(operands))) else ()


def _recipe(result: Any, tensors: Sequence[TensorCore], operands: Sequence[Value], views: bool) -> Recipe:
    if not isinstance(result, TensorCore) or result._history is not None or any(t is result for t in tensors):
        return _NOTHING
    view, steps = result._view, steps_to(result._value, operands)
    if not steps:
        return _NOTHING
    if view is None or (bool(result._value.shape) and is_lone(result) and by_rows(result)):
        return Recipe(current(), steps, result._weak, None)
    shared = views and len(tensors) == 1 and view.parent is not None and view.parent is tensors[0]._view
    return Recipe(current(), steps, result._weak, view.step) if shared else _NOTHING
