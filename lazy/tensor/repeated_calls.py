"""Functions of tensors that are called again: what they noted the last time is noted again, of other operands.

    z = lg.where(x > 0.0, x, y)        select(%0, %1, %2): checked, promoted and inferred once, then a look-up

Array functions look at the types of their operands and at plain arguments (axes, shapes, flags). So where all of these
and what the operands are computed as (`graph.expressions`) are as they were, the same operations come of it. A call
that looked at more isn't remembered: at elements, or between which numbers integers lie that were computed with
numbers which expressions leave open. Only at the top level, and of functions that return tensors: with memory of their
own, or views of their only operand. Regions are made once: loops that a function traces are nodes again without that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.expressions import OPAQUE, Expression, expression_of
from loopgrad.graph.key import RAISING
from loopgrad.graph.location import user_location
from loopgrad.graph.nodes import NODE, Graph, Leaf, Location, Node, Noted, Value
from loopgrad.graph.types import DType, StackType, TensorType, int64
from loopgrad.lazy.tensor import view_steps
from loopgrad.lazy.tensor.call_results import CallResults
from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf, as_tensor, held, next_serial, wrap
from loopgrad.lazy.tensor.long_calls import CLOSED_CALL, SHORTEST, call_attributes, called_graph
from loopgrad.lazy.tensor.ongoing_derivations import reading
from loopgrad.lazy.tensor.storage import LONE, View, is_lone, lone_view, viewed
from loopgrad.lazy.tensor.walk import REFUSED
from loopgrad.runtime.buffers import Buffer

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.call_programs import CallProgram

F = TypeVar("F", bound=Callable[..., Any])

MOST_KNOWN: Final = 1024  # calls of a function, before all are forgotten
MOST_MISSED: Final = 256
SELDOM: Final = 8
"""After so many calls in a row that weren't known only each eighth is looked at: a loop that writes to one place after
the other makes no call twice, and what its array is computed as gets longer each time."""
MOST_OPERANDS: Final = 8
MOST_STEPS: Final = 8192
MOST_TOGETHER: Final = 1 << 16  # bytes of several results, of which somebody may want one only
MOST_CAPTURED: Final = 1 << 16  # bytes of an array that a call makes of plain arguments
LOOKED_AT: Final = 2  # operations before an operand that decide, at most, how one on it is noted
PLAIN: Final = frozenset({int, bool, str, NoneType, DType})
_new: Final = object.__new__


class NotedStep(NamedTuple):
    """An operation of a call. `operands`: places among the values that the call takes and the results of steps, or
    numbers as floats. `expression`: None where that of the result is to be looked for."""

    op: str
    operands: tuple[int | float, ...]
    attrs: Mapping[str, Any]
    type: TensorType
    expression: Expression | None


class NodeStep(NamedTuple):
    """An operation of a call that has several results, or regions."""

    op: str
    operands: tuple[int, ...]
    attrs: Mapping[str, Any]
    types: tuple[TensorType | StackType, ...]
    regions: tuple[Graph, ...]


class Way(NamedTuple):
    """How a tensor has its memory: as a `step` takes it of the first operand's, or its own, with a `view` where that
    says something of it."""

    step: view_steps.Step | None
    view: View | None


class Made(NamedTuple):
    """A tensor that a call gives: the place of its value, `weak` as of the tensor, and how it has its memory."""

    place: int
    weak: bool
    way: Way


class Recipe(NamedTuple):
    """What a call noted with some settings, after the values of its operands and the leaves that it `captured`, which
    it made itself. `container`: of what is made; None for a tensor alone. `sited`: whether regions or errors name the
    line of the call. `program`: makes that of the call, where lines can't know it. Without steps: nothing that could be
    noted again."""

    config: Config
    captured: tuple[Leaf, ...]
    steps: tuple[NotedStep | NodeStep, ...]
    made: tuple[Made, ...]
    container: Callable[[list[Any]], Any] | None
    sited: bool
    program: Callable[[], CallProgram] | None


_NOTHING: Final = Recipe(current(), (), (), (), None, False, None)
_UNKNOWN: Final = _NOTHING._replace(sited=True)  # of a call that wasn't met


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
        known, loc = self._known, user_location(2)
        recipe = known.get(words, _UNKNOWN)
        if recipe is not None and recipe.sited and recipe.steps:
            recipe = known.get((words, loc))
        if recipe is not None and recipe.steps and is_in_force(recipe.config):
            self._missed = 0
            return made_again(recipe, tensors, operands, loc)
        if recipe is _NOTHING:
            return function(*args, **options)
        if recipe is not _UNKNOWN:
            result, learned = self._learned(function, args, options, tensors, operands)
            known[words] = learned
            if learned.sited:
                known[words, loc] = learned
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
        values, looks, before = [t._value for t in tensors], AMBIENT.looks_at_ranges, next_serial()
        with reading() as read:
            result = function(*args, **options)
        if read or any(t._value is not v for t, v in zip(tensors, values, strict=True)):  # one was written to
            return result, _NOTHING
        if AMBIENT.looks_at_ranges != looks and any(map(_has_open_range, operands)):
            return result, _NOTHING
        return result, _recipe(result, tensors, operands, self._views, before)


def repeated(function: F) -> F:
    """The function, which notes again what it noted for arguments alike. It must look at no tensor but its arguments,
    and at no setting but those of a `Config`."""
    calls = Calls()

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        return function(*args, **options) if AMBIENT.plain is None else calls.result(function, args, options)

    return call  # type: ignore[return-value]


def repeated_method(function: F) -> F:
    """The same of a method whose object is never changed."""
    calls_of: WeakKeyDictionary[Any, Calls] = WeakKeyDictionary()

    @wraps(function)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if AMBIENT.plain is None:
            return function(self, *args, **options)
        calls = calls_of.get(self) or calls_of.setdefault(self, Calls())
        return calls.result(partial(function, self), args, options)

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


def made_again(recipe: Recipe, tensors: Sequence[TensorCore], operands: Sequence[Value], loc: Location | None) -> Any:
    """What a call returns whose operations are noted again for a line."""
    given = [*operands, *recipe.captured]
    values = _noted(recipe.steps, given, loc)
    each = [_tensor(made, values, tensors) for made in recipe.made]
    if recipe.program is not None:
        CallResults(each, recipe.program, given)
    return each[0] if recipe.container is None else recipe.container(each)


def _noted(steps: Sequence[NotedStep | NodeStep], operands: Sequence[Value], loc: Location | None) -> list[Any]:
    """The operands, and what the steps give of them."""
    values: list[Any] = [*operands]
    for step in steps:
        if isinstance(step, NodeStep):
            given = tuple([values[i] for i in step.operands])
            values += Node(step.op, given, step.types, step.attrs, step.regions, loc).results
            continue
        op, places, attrs, type, expression = step
        value: Noted = _new(Noted)
        value.type = type
        value.index = 0
        value.known = value.scope = value.holder = None
        value.expression = expression
        value.note = [op, tuple([i if i.__class__ is float else values[i] for i in places]), attrs, loc]  # type: ignore[index]
        values.append(value)
    return values


def _tensor(made: Made, values: Sequence[Any], tensors: Sequence[TensorCore]) -> Any:
    value = values[made.place]
    if made.way.step is not None:
        return viewed(as_tensor(tensors[0]), made.way.step, value)
    result = held(value, made.weak) if type(value) is Noted else wrap(value, made.weak)
    result._view = made.way.view
    return result


def _recipe(result: Any, tensors: Sequence[TensorCore], operands: Sequence[Value], views: bool, before: int) -> Recipe:
    """How what a call returned is noted again; `before`: leaves with larger serial numbers are the call's own."""
    container, each = _parts(result)
    if (
        not each
        or any(map(_has_more, each))
        or len({*map(id, (*tensors, *each))}) < len({*map(id, tensors)}) + len(each)
    ):
        return _NOTHING  # one of them is an argument, or there twice
    ways = [_way(t, tensors, views) for t in each]
    way = _steps_to([t._value for t in each], operands, before)
    if way is None or None in ways:
        return _NOTHING
    captured, order = way
    places: dict[Value, int] = {v: i for i, v in enumerate((*operands, *captured))}
    steps = [_step(made, places) for made in order]
    read = {place for step in steps for place in step.operands}
    if not steps or not read.issuperset(range(len(operands))):
        return _NOTHING
    made = tuple([Made(places[t._value], t._weak, w) for t, w in zip(each, ways, strict=True) if w is not None])
    sited = any(step.op in RAISING or type(step) is NodeStep or REFUSED in step.attrs for step in steps)
    recipe = _shortened(Recipe(current(), captured, tuple(steps), made, container, sited, None), [*operands, *captured])
    return recipe._replace(program=_program(recipe, [v.type for v in (*operands, *captured)]))


def _shortened(recipe: Recipe, given: Sequence[Value]) -> Recipe:
    """With one call in place of many steps, of these values."""
    steps, made, count = recipe.steps, recipe.made, len(given)
    if len(steps) < SHORTEST or any(REFUSED in step.attrs for step in steps):
        return recipe
    if any(m.way.step or m.place < count for m in made):
        return recipe
    loc = user_location()
    function = called_graph([v.type for v in given], lambda vs: [_noted(steps, vs, loc)[m.place] for m in made])
    step: NotedStep | NodeStep
    operands, types = tuple(range(count)), tuple([v.type for v in function.outputs])
    if len(made) == 1:
        (type,) = types
        attrs = call_attributes(function)
        expression = expression_of(Noted(type, "call", tuple(given), attrs, loc))
        step = NotedStep("call", operands, attrs, type, None if expression is OPAQUE else expression)  # type: ignore[arg-type]
    else:
        step = NodeStep("call", operands, CLOSED_CALL, types, (function,))
    placed = [m._replace(place=count + i) for i, m in enumerate(made)]
    return recipe._replace(steps=(step,), made=tuple(placed))


def _has_more(t: TensorCore) -> bool:
    """Whether more is to be computed along with a tensor than what the call gives that it came from."""
    return t._history is not None and type(t._history) is not CallResults


def _program(recipe: Recipe, types: Sequence[Any]) -> Callable[[], CallProgram] | None:
    """What makes the program of a call that notes more than lines know: nodes, tests, several results."""
    made, steps = recipe.made, recipe.steps
    plain = len(made) == 1 and not any(type(step) is NodeStep or REFUSED in step.attrs for step in steps)
    if plain or len({m.place for m in made}) < len(made) or any(m.way.step or m.place < len(types) for m in made):
        return None
    loc = user_location()

    def note(operands: Sequence[Value]) -> list[Any]:
        values = _noted(steps, operands, loc)
        return [values[m.place] for m in made]

    if len(made) > 1 and sum([v.type.nbytes for v in note([Value(type) for type in types])]) > MOST_TOGETHER:
        return None

    @cache
    def program() -> CallProgram:
        from loopgrad.lazy.tensor.call_programs import CallProgram  # late: building graphs needs no session

        return CallProgram(types, note)

    return program


def _parts(result: Any) -> tuple[Callable[[list[Any]], Any] | None, list[TensorCore]]:
    """What makes the result of a call of its tensors, and these; none where it is anything else."""
    if isinstance(result, TensorCore):
        return None, [result]
    if not isinstance(result, list | tuple) or not all(isinstance(x, TensorCore) or type(x) in PLAIN for x in result):
        return None, []
    make: Any = getattr(type(result), "_make", type(result))  # of a named tuple
    each = [x for x in result if isinstance(x, TensorCore)]
    if len(each) == len(result):
        return make, each
    items = [None if isinstance(x, TensorCore) else (x,) for x in result]

    def made(tensors: list[Any]) -> Any:
        left = iter(tensors)
        return make([next(left) if item is None else item[0] for item in items])

    return made, each


def _way(t: TensorCore, tensors: Sequence[TensorCore], views: bool) -> Way | None:
    """How a result has its memory; None where that isn't sure."""
    view = t._view
    if view is None:
        return Way(None, None)
    if is_lone(t):
        return None if view.read_only else Way(None, lone_view(t))
    shared = views and len(tensors) == 1 and view.parent is not None and view.parent is tensors[0]._view
    return Way(view.step, None) if shared else None


def _steps_to(
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
        if type(made) is Node and made.replaces is not None:
            return None
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
    """Whether a value is a small leaf in the host's memory that the call made, of plain arguments."""
    if not isinstance(value, TensorLeaf) or value.serial <= before or value.committed:
        return False
    return type(value.buffer) is Buffer and value.buffer.nbytes <= MOST_CAPTURED


def _step(made: Noted | Node, places: dict[Value, int]) -> NotedStep | NodeStep:
    """An operation of a call; its results get places."""
    if type(made) is Node:
        given = tuple([places[v] for v in made.operands])
        for v in made.results:
            places[v] = len(places)
        return NodeStep(made.op, given, made.attrs, tuple([v.type for v in made.results]), made.regions)
    assert isinstance(made, Noted)
    op, operands, attrs = made.note[:3]
    taken = tuple([v if type(v) is float else places[v] for v in operands])
    expression = expression_of(made) if len(made.note) == NODE else None  # else numbers may be nodes by now
    places[made] = len(places)
    return NotedStep(op, taken, attrs, made.type, None if expression is OPAQUE else expression)  # type: ignore[arg-type]
