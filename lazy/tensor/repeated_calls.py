"""Functions of tensors that are called again: what they noted the last time is noted again, of other operands.

    z = lg.where(x > 0.0, x, y)        select(%0, %1, %2): checked, promoted and inferred once, then a look-up

Array functions look at the types of their operands and at plain arguments (axes, shapes, flags). So where all of these
and what the operands are computed as (`graph.expressions`) are as they were, the same operations come of it. A call
that looked at more isn't remembered: at elements, or between which numbers integers lie that were computed with
numbers which expressions leave open. Only at the top level, and of functions that return tensors: with memory of their
own, or views of their only operand. Regions are made once: loops that a function traces are nodes again without that.

Loops and transforms call functions of the user's: they are traced once where all that these read is as it was
(`lazy.tensor.function_words`), and what they noted is noted again operation by operation, with the lines that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from loopgrad.graph.ambient import AMBIENT
from loopgrad.graph.expressions import OPAQUE, expression_of
from loopgrad.graph.key import RAISING
from loopgrad.graph.location import user_location
from loopgrad.graph.nodes import Leaf, Location, Node, Noted, Value
from loopgrad.graph.primitives.casting import cast_array
from loopgrad.graph.types import float64
from loopgrad.lazy.tensor import view_steps
from loopgrad.lazy.tensor.blamed_arguments import OF_PYTHON, raise_blamed
from loopgrad.lazy.tensor.call_results import CallResults
from loopgrad.lazy.tensor.call_steps import (
    CAPTURED,
    NodeStep,
    NotedStep,
    Step,
    noted,
    step_of,
    steps_to,
    with_expressions,
)
from loopgrad.lazy.tensor.call_words import PLAIN, call_words
from loopgrad.lazy.tensor.config import Config, current
from loopgrad.lazy.tensor.core import Siblings, TensorCore, TensorLeaf, array_leaf, as_tensor, held, next_serial, wrap
from loopgrad.lazy.tensor.long_calls import CLOSED_CALL, SHORTEST, CalledGraphs, call_attributes
from loopgrad.lazy.tensor.ongoing_derivations import reading
from loopgrad.lazy.tensor.storage import LONE, View, is_lone, lone_view, viewed
from loopgrad.lazy.tensor.trees import flatten, unflatten
from loopgrad.lazy.tensor.walk import REFUSED

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.call_programs import CallProgram

F = TypeVar("F", bound=Callable[..., Any])

MOST_KNOWN: Final = 1024  # calls of a function, before all are forgotten
MOST_MISSED: Final = 256
SELDOM: Final = 8
"""After so many calls in a row that weren't known only each eighth is looked at: a loop that writes to one place after
the other makes no call twice, and what its array is computed as gets longer each time."""
MOST_REMEMBERED: Final = 1 << 16  # steps of all calls of a function, before all are forgotten
MOST_TOGETHER: Final = 1 << 16  # bytes of several results, of which somebody may want one only


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
    line of the call. `program`: makes that of some results, where lines can't know it; each of these is `read` by so
    many operations. `siblings`: its tensors are better computed together. `traced`: it calls functions of the user's.
    `shortened`: one call stands for what was noted. Without steps: nothing that could be noted again."""

    config: Config
    captured: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    made: tuple[Made, ...]
    container: Callable[[list[Any]], Any] | None
    sited: bool
    program: Callable[[tuple[int, ...]], CallProgram] | None
    read: tuple[int, ...]
    siblings: bool
    traced: bool
    shortened: bool = False


class _Opened(NamedTuple):
    """A call, its words, and its tensors with their values."""

    args: tuple[Any, ...]
    options: Mapping[str, Any]
    words: tuple[Any, ...]
    tensors: list[TensorCore]
    operands: list[Value]


_NOTHING: Final = Recipe(current(), (), (), (), None, False, None, (), False, False)
_UNKNOWN: Final = _NOTHING._replace(sited=True)  # of a call that wasn't met


class Calls:
    """What is known of the calls of one function, which may give `views`. `often`: each call is looked at, however many
    before it weren't known. `opens`: tensors may stand for its numbers."""

    def __init__(self, views: bool = False, often: bool = False, opens: bool = False) -> None:
        self._views = views
        self._often = often
        self._opens = opens
        self._open: set[tuple[Any, ...]] = set()  # words of calls with numbers, as if these were tensors
        self._missed = 0  # calls in a row that weren't known
        self._known: dict[tuple[Any, ...], Recipe | None] = {}
        self._steps = 0  # of all that are known
        self._graphs = CalledGraphs()

    def result(self, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """What a function returns at the top level, for a function of ours that the user's line calls."""
        if AMBIENT.within_call:
            return function(*args, **options)
        tensors: list[TensorCore] = []
        operands: list[Value] = []
        self._missed += 1
        seldom = self._missed > MOST_MISSED and self._missed % SELDOM != 0 and not self._often
        words = None if seldom else call_words(args, options, tensors, operands)
        if words is None:
            operands.clear()  # where the function asks for elements, it is counted what refers to values
            return function(*args, **options)
        known, loc = self._known, user_location(2)
        recipe = known.get(words, _UNKNOWN)
        if recipe is _UNKNOWN and self._opens and (opened := self._opened(args, options)) is not None:
            args, options, words, tensors, operands = opened
            recipe = known.get(words, _UNKNOWN)
        if recipe is not None and recipe.sited and recipe.steps:
            recipe = known.get((words, loc))
        if recipe is not None and recipe.steps and is_in_force(recipe.config):
            self._missed = 0
            if len(args) == 1 == len(operands) and not options and (step := _only_step(recipe, args[0])) is not None:
                operands[0].expression.further[self] = recipe.config, step
            return made_again(recipe, tensors, operands, loc)
        if recipe is _NOTHING:
            operands.clear()  # as above
            return function(*args, **options)
        if recipe is not _UNKNOWN:
            result, learned = self._learned(function, args, options, tensors, operands, loc, words[0])
            if learned.traced and call_words(args, options, [], []) != words:  # it changed what decides
                learned = _NOTHING
            self._steps += len(learned.steps)
            if self._steps > MOST_REMEMBERED:
                known.clear()
                self._steps = len(learned.steps)
            known[words] = learned
            if learned.sited:
                known[words, loc] = learned
            if learned.program is None and not learned.shortened:
                return result
            return made_again(learned, tensors, operands, loc)  # as the next ones, whose line is known sooner then
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[words] = None  # most calls are made once
        operands.clear()  # as above
        return _within_call(function, args, options)

    def _opened(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> _Opened | None:
        """A call with other numbers than one before that was alike, of tensors in place of these: what is computed of
        numbers is computed anew for each, what is computed of tensors is one program."""
        if float not in {*map(type, args), *map(type, options.values())}:
            return None
        given = tuple([_number_leaf(x) for x in args])
        named = {name: _number_leaf(x) for name, x in options.items()}
        tensors: list[TensorCore] = []
        operands: list[Value] = []
        words = call_words(given, named, tensors, operands)
        if words is None or not _hold_numbers(operands):
            return None
        if words in self._open:
            return _Opened(given, named, words, tensors, operands)
        if len(self._open) >= MOST_KNOWN:
            self._open.clear()
        self._open.add(words)
        return None

    def _learned(
        self, function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any],
        tensors: Sequence[TensorCore], operands: Sequence[Value], loc: Location | None, traced: bool,
    ) -> tuple[Any, Recipe]:  # fmt: skip
        """What the call returns, and how that is noted; `traced`: with functions of the user's."""
        values, looks, before = [t._value for t in tensors], AMBIENT.looks_at_ranges, next_serial()
        with reading() as read:
            result = _within_call(function, args, options)
        if read or any(t._value is not v for t, v in zip(tensors, values, strict=True)):  # one was written to
            return result, _NOTHING
        if AMBIENT.looks_at_ranges != looks and any(map(_has_open_range, operands)):
            return result, _NOTHING
        recipe = _recipe(result, tensors, operands, self._views, before, loc)
        CAPTURED.update(recipe.captured)
        if traced:  # what is noted again must be what was traced, which is compiled
            recipe = recipe._replace(traced=bool(recipe.steps))
        elif recipe.steps:
            recipe = _shortened(recipe, [*operands, *recipe.captured], self._graphs)
        types = [v.type for v in (*operands, *recipe.captured)]
        if recipe.steps and (program := _program(recipe, types)) is not None:
            places = [place for step in recipe.steps for place in step.operands if type(place) is int]
            counts = tuple([places.count(m.place) for m in recipe.made])
            recipe = recipe._replace(program=program, read=counts)
        return result, recipe


def _within_call(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """What a function returns whose own calls needn't be remembered: the next time it is noted with what it noted."""
    AMBIENT.within_call = True
    try:
        return function(*args, **options)
    finally:
        AMBIENT.within_call = False


def _number_leaf(x: Any) -> Any:
    """A float as the tensor that `as_tensor` makes of it, with a leaf in place of a constant."""
    if type(x) is not float:
        return x
    dtype, array = current().dtype, np.asarray(x)
    return wrap(array_leaf(array if dtype is float64 else cast_array(array, dtype), copy=False), True)


def _hold_numbers(operands: Sequence[Value]) -> bool:
    """Whether leaves of the default dtype stand for numbers beside these values. A constant has all digits until it is
    cast to the dtype of what it meets: a wider one would miss some, a narrower one would be rounded to twice."""
    dtype = current().dtype
    return dtype is float64 or all(v.dtype.part is dtype or not v.dtype.part.is_float for v in operands)


def repeated(function: F) -> F:
    """The function, which notes again what it noted for arguments alike. It must look at no tensor but its arguments,
    and at no setting but those of a `Config`."""
    return _remembering(function, Calls())


def repeated_formula(function: F) -> F:
    """The same of a function that takes numbers for tensors everywhere: those that differ from call to call are."""
    return _remembering(function, Calls(opens=True))


def traced_once(function: F) -> F:
    """The same of a function that traces functions of the user's, which takes much longer than to look for a call."""
    return _remembering(function, Calls(often=True))


def _remembering(function: F, calls: Calls) -> F:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            if AMBIENT.plain is None:
                return function(*args, **options)
            if len(args) == 1 and not options and isinstance(x := args[0], TensorCore):
                value = x._value
                known = None if value.expression is None else value.expression.further.get(calls)
                if known is not None and known[0] is current() and not x._weak and (x._view is None or value.shape):
                    op, _, attrs, type_, _, expression = known[1]
                    made = Noted(type_, op, (value,), attrs, user_location(1))
                    made.expression = expression
                    return held(made, False)
            return calls.result(function, args, options)
        except OF_PYTHON as error:
            raise_blamed(function, args, options, error)

    return call  # type: ignore[return-value]


def _only_step(recipe: Recipe, x: Any) -> NotedStep | None:
    """The step of a call of one tensor that notes nothing else: the next call finds it beside the tensor's expression
    (`graph.expressions`)."""
    if not isinstance(x, TensorCore) or x._weak or len(recipe.steps) > 1 or recipe.captured:
        return None
    if x._view is not None and not x._value.type.shape:  # type: ignore[union-attr]  # an array without axes
        return None
    step = recipe.steps[0]
    if recipe.sited or recipe.traced or recipe.program is not None or recipe.container is not None:
        return None
    plain = type(step) is NotedStep and step.operands == (0,) and step.loc is None and step.expression is not None
    return step if plain and recipe.made == (Made(1, False, Way(None, None)),) else None  # type: ignore[return-value]


def repeated_method(function: F) -> F:
    """The same of a method whose object is never changed, and that is a formula."""
    calls_of: WeakKeyDictionary[Any, Calls] = WeakKeyDictionary()

    @wraps(function)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if AMBIENT.plain is None:
            return function(self, *args, **options)
        calls = calls_of.get(self) or calls_of.setdefault(self, Calls(opens=True))
        return calls.result(partial(function, self), args, options)

    return call  # type: ignore[return-value]


def repeated_view(function: F) -> F:
    """The same of a function whose first argument's memory the result may share, which depends on nothing else where
    its elements lie row by row."""
    calls = Calls(views=True)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            if AMBIENT.plain is None or not args or not _in_rows(args[0]):
                return function(*args, **options)
            return calls.result(function, args, options)
        except OF_PYTHON as error:
            raise_blamed(function, args, options, error)

    return call  # type: ignore[return-value]


def _in_rows(x: Any) -> bool:
    """Whether a tensor has memory of its own, or is all of what others share."""
    view = x._view if isinstance(x, TensorCore) else LONE
    return view is None or (view.storage is not None and view.parent is None and view.in_rows)


def is_in_force(config: Config) -> bool:
    """Whether these are the settings."""
    latest = current()
    return config is latest or config == latest


def _has_open_range(value: Value) -> bool:
    """Whether values with the expression of this one may lie between other numbers."""
    return value.dtype.kind in "iu" and bool(expression_of(value).op)


def made_again(recipe: Recipe, tensors: Sequence[TensorCore], operands: Sequence[Value], loc: Location | None) -> Any:
    """What a call returns whose operations are noted again for a line."""
    given = [*operands, *map(_alike, recipe.captured)] if recipe.traced else [*operands, *recipe.captured]
    values = noted(recipe.steps, given, loc)
    each = [_tensor(made, values, tensors) for made in recipe.made]
    if recipe.program is not None:
        CallResults(each, recipe.program, given, recipe.read)
    elif recipe.siblings:
        Siblings(each)
    return each[0] if recipe.container is None else recipe.container(each)


def _alike(leaf: Leaf) -> TensorLeaf:
    """Another leaf with the same elements, as each call would make one."""
    return TensorLeaf(leaf.buffer.type, leaf.buffer)


def _tensor(made: Made, values: Sequence[Any], tensors: Sequence[TensorCore]) -> Any:
    value = values[made.place]
    if made.way.step is not None:
        return viewed(as_tensor(tensors[0]), made.way.step, value)
    alone = type(value) is Noted and value.holder is None
    result = held(value, made.weak) if alone else wrap(value, made.weak)
    result._view = made.way.view
    return result


def _recipe(
    result: Any, tensors: Sequence[TensorCore], operands: Sequence[Value], views: bool, before: int,
    loc: Location | None,
) -> Recipe:  # fmt: skip
    """How what a call at that line returned is noted again; `before`: leaves with larger serial numbers are the call's
    own."""
    container, each = _parts(result)
    if not each or _has_more(each) or len({*map(id, (*tensors, *each))}) < len({*map(id, tensors)}) + len(each):
        return _NOTHING  # one of them is an argument, or there twice
    if any(t._value in operands for t in each):  # it may have a history
        return _NOTHING
    ways = [_way(t, tensors, views) for t in each]
    way = steps_to([t._value for t in each], operands, before)
    if way is None or None in ways:
        return _NOTHING
    captured, order = way
    places: dict[Value, int] = {v: i for i, v in enumerate((*operands, *captured))}
    steps = with_expressions([step_of(made, places, loc) for made in order], [*operands, *captured], loc)
    for i, made_by in enumerate(order):
        if type(made_by) is Node and made_by.replaces is not None:
            steps[i] = steps[i]._replace(replaces=places.get(made_by.replaces.results[0]))  # type: ignore[call-arg]
    read = {place for step in steps for place in step.operands}
    if not steps or any(i not in read and not isinstance(v, Leaf) for i, v in enumerate(operands)):
        return _NOTHING
    made = tuple([Made(places[t._value], t._weak, w) for t, w in zip(each, ways, strict=True) if w is not None])
    sited = any(step.op in RAISING or type(step) is NodeStep or REFUSED in step.attrs for step in steps)
    siblings = len(each) > 1 and any(type(t._history) is Siblings for t in each)
    return Recipe(current(), captured, tuple(steps), made, container, sited, None, (), siblings, False)


def _shortened(recipe: Recipe, given: Sequence[Value], graphs: CalledGraphs) -> Recipe:
    """With one call in place of many steps, of these values."""
    steps, made, count = recipe.steps, recipe.made, len(given)
    if len(steps) < SHORTEST or any(REFUSED in step.attrs for step in steps):
        return recipe
    if any(m.way.step or m.place < count for m in made):
        return recipe
    loc = user_location()
    function = graphs.graph([v.type for v in given], lambda vs: [noted(steps, vs, loc)[m.place] for m in made])
    if function is None:
        return recipe
    step: Step
    operands, types = tuple(range(count)), tuple([v.type for v in function.outputs])
    if len(made) == 1:
        (type,) = types
        attrs = call_attributes(function)
        expression = expression_of(Noted(type, "call", tuple(given), attrs, loc))
        known = None if expression is OPAQUE else expression
        step = NotedStep("call", operands, attrs, type, None, known)  # type: ignore[arg-type]
    else:
        step = NodeStep("call", operands, CLOSED_CALL, types, None, (function,), None)
    placed = [m._replace(place=count + i) for i, m in enumerate(made)]
    return recipe._replace(steps=(step,), made=tuple(placed), shortened=True)


def _has_more(each: Sequence[TensorCore]) -> bool:
    """Whether more is to be computed along with these tensors than what the call gives that they came from, or than
    themselves."""
    along = {id(t._history): t._history for t in each if t._history is not None and type(t._history) is not CallResults}
    ours = {*map(id, each)}
    for history in along.values():
        if type(history) is not Siblings:
            return True
        if not ours.issuperset([id(t) for member in history.members if (t := member()) is not None]):
            return True
    return False


def _program(recipe: Recipe, types: Sequence[Any]) -> Callable[[tuple[int, ...]], CallProgram] | None:
    """What makes the program, for some of the results, of a call that notes more than lines know: nodes, tests, several
    results."""
    made, steps = recipe.made, recipe.steps
    plain = len(made) == 1 and not any(type(step) is NodeStep or REFUSED in step.attrs for step in steps)
    if plain or len({m.place for m in made}) < len(made) or any(m.way.step or m.place < len(types) for m in made):
        return None
    loc = user_location()

    def note(kept: Sequence[int], operands: Sequence[Value]) -> list[Any]:
        values = noted(steps, operands, loc)
        return [values[made[i].place] for i in kept]

    results = note(range(len(made)), [Value(type) for type in types])
    if len(made) > 1 and sum([v.type.nbytes for v in results]) > MOST_TOGETHER:
        return None

    @cache
    def program(kept: tuple[int, ...]) -> CallProgram:
        from loopgrad.lazy.tensor.call_programs import CallProgram  # late: building graphs needs no session

        return CallProgram(types, partial(note, kept))

    return program


def _parts(result: Any) -> tuple[Callable[[list[Any]], Any] | None, list[TensorCore]]:
    """What makes the result of a call of its tensors, and these; none where it holds anything else."""
    if isinstance(result, TensorCore):
        return None, [result]
    if not isinstance(result, list | tuple | dict):
        return None, []
    flat = not isinstance(result, dict) and all(isinstance(x, TensorCore) or type(x) in PLAIN for x in result)
    items, structure = (result, None) if flat else flatten(result)
    if not flat and not all(isinstance(x, TensorCore) or type(x) in PLAIN for x in items):
        return None, []
    make: Any = getattr(type(result), "_make", type(result)) if flat else partial(unflatten, structure)
    each = [x for x in items if isinstance(x, TensorCore)]
    if len(each) == len(items):
        return make, each
    kept = [None if isinstance(x, TensorCore) else (x,) for x in items]

    def made(tensors: list[Any]) -> Any:
        left = iter(tensors)
        return make([next(left) if item is None else item[0] for item in kept])

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
