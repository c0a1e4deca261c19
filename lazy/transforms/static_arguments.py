"""Arguments of a compiled function that are part of the program: what they are compared by.

Two static arguments are the same only where no program can tell them apart: `1`, `1.0` and `True` differ, as do `0.0`
and `-0.0`; NaN is NaN. Containers are compared by what they hold at the time of the call, enum members, functions,
classes and modules by identity, functions also by the variables they close over. An object of another class may change
while it stays equal to itself, or be equal to what it isn't: it is refused, unless its class is registered.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from types import BuiltinFunctionType, CellType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, Final, TypeVar

import numpy as np

from loopgrad.graph.errors import explained
from loopgrad.graph.types import DType
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.errors import StaticArgumentError
from loopgrad.lazy.tensor.trees import STATIC_CLASSES, is_dynamic, is_node, leaf_names, register_node
from loopgrad.lazy.transforms.compiled_methods import BoundCompiled

PUBLIC: Final = "register_pytree register_static"
Class = TypeVar("Class", bound=type)
Names = frozenset[str]

_BY_VALUE: Final = frozenset({bool, int, str, bytes, type(None), type(...), range, DType})
_CONTAINERS: Final = frozenset({tuple, list, deque})
_MAPPINGS: Final = frozenset({dict, OrderedDict, defaultdict})
_BY_IDENTITY: Final = (type, ModuleType, np.ufunc, MethodDescriptorType, type(functools.lru_cache(len)))
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_REGISTER: Final = (
    "pass arrays, numbers, strings, enum members, functions, or trees of them; make the class a tree with "
    "lg.register_pytree, or, if its instances never change, a part of the program with lg.register_static"
)


class _Same:
    """Equal to itself and to what wraps the same object, which it keeps alive."""

    __slots__ = ("it",)

    def __init__(self, it: object) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)

    def __repr__(self) -> str:
        return repr(self.it)


class RefusedError(Exception):
    """`it`, a part of an argument, can't be part of a program; `fix` says what to do instead."""

    def __init__(self, it: object, fix: str = _REGISTER) -> None:
        super().__init__(it)
        self.it, self.fix = it, fix

    def explained(self, whole: object, name: str, what: str = "compile") -> StaticArgumentError:
        """The user's error: `it` was met in `whole`, which is called `name`."""
        part = "" if self.it is whole else f", in {type(whole).__name__}"
        expected = f"{name} to be an input or a part of the program"
        return StaticArgumentError(explained(what, expected, f"{_described(self.it)}{part}", self.fix))


class Standing:
    """A callable that stands for a function, `_fun`."""

    _fun: Callable[..., Any]


def register_pytree(
    cls: Class,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]] | None = None,
    unflatten: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> Class:
    """Make instances of a class trees, as lists and dataclasses are; also a decorator.

    `flatten(instance)` gives `(children, auxiliary)`: children are trees; auxiliary is a part of the program, compared
    as a static argument is. `unflatten(auxiliary, children)` makes an instance of them. Without these two the children
    are the instance's attributes (`vars(instance)`), and `__init__` isn't called for what is put together. TypeError
    for a class that is a tree or static already.

    >>> @lg.register_pytree
    ... class Line:
    ...     def __init__(self, slope, shift):
    ...         self.slope, self.shift = slope, shift
    >>> lg.grad(lambda line: line.slope * 3.0 + line.shift)(Line(2.0, 1.0)).slope
    Tensor(3., dtype=float64)
    """
    if not isinstance(cls, type):
        raise TypeError(explained("register_pytree", "a class", repr(cls), "pass the class itself"))
    if is_node(cls) or cls in STATIC_CLASSES:
        got = f"{cls.__name__}, which is {'static' if cls in STATIC_CLASSES else 'a tree'} already"
        raise TypeError(explained("register_pytree", "a class that isn't registered yet", got, "register it once"))
    if (flatten is None) is not (unflatten is None):
        raise TypeError(explained("register_pytree", "both flatten and unflatten, or none", "one", "pass the other"))

    def rebuilt(names: Sequence[str], children: Sequence[Any]) -> Any:
        instance: Any = object.__new__(cls)
        instance.__dict__.update(zip(names, children, strict=True))
        return instance

    def key(auxiliary: Any) -> Hashable:
        try:
            return identity(auxiliary)
        except RefusedError as refused:
            raise refused.explained(auxiliary, f"what {cls.__name__} keeps beside its children", cls.__name__) from None

    register_node(cls, flatten or _attributes, unflatten or rebuilt, key, attributes=flatten is None)
    return cls


def _attributes(instance: Any) -> tuple[Sequence[Any], tuple[str, ...]]:
    names = tuple(vars(instance))
    return [getattr(instance, name) for name in names], names


def register_static(cls: Class) -> Class:
    """Let instances of a class be static arguments of compiled functions; also a decorator.

    They are compared by their `==` and `hash`, beside their class, so they must never change: what a program has read
    of them is part of it. Subclasses are registered by themselves. TypeError for a class that isn't hashable, that is
    a tree, or that is none.

    >>> @lg.register_static
    ... class Grid:
    ...     def __init__(self, count):
    ...         self.count = count
    >>> lg.compile(lambda x, grid: lg.sum(x[: grid.count]))(lg.arange(5.0), Grid(3))
    Tensor(3., dtype=float64)
    """
    if not isinstance(cls, type):
        raise TypeError(explained("register_static", "a class", repr(cls), "pass the class itself"))
    if cls.__hash__ is None:
        fix = "define __hash__, or make it a frozen dataclass"
        raise TypeError(explained("register_static", "a class whose instances are hashable", cls.__name__, fix))
    if is_node(cls):
        fix = "register it before it is first used, and not with lg.register_pytree"
        raise TypeError(explained("register_static", "a class that isn't a tree", cls.__name__, fix))
    STATIC_CLASSES.add(cls)
    return cls


def is_static(x: object) -> bool:
    """Whether a leaf of the arguments is part of the program rather than an input."""
    return not is_dynamic(x) or isinstance(x, Enum)


def fixed_identities(
    fixed: Sequence[int], leaves: Sequence[Any], names: Callable[[], Sequence[str]]
) -> tuple[Hashable, ...]:
    """What the leaves in the positions `fixed` are compared by, each with its position; StaticArgumentError where one
    can't be compared, with its name."""
    found = []
    for i in fixed:
        try:
            found.append((i, identity(leaves[i])))
        except RefusedError as refused:
            raise refused.explained(leaves[i], names()[i]) from None
    return tuple(found)


def static_identities(static: dict[int | str, Any]) -> tuple[Hashable, ...]:
    """As `fixed_identities`, of arguments that were named static."""
    found = []
    for name, x in static.items():
        try:
            found.append((name, identity(x)))
        except RefusedError as refused:
            raise refused.explained(x, f"argument {name}") from None
    return tuple(found)


def _described(x: object) -> str:
    if isinstance(x, TensorCore):
        return f"a tensor {x._value.type} in a static argument"
    if isinstance(x, np.ndarray):
        return f"an array {x.dtype}{list(x.shape)} in a static argument"
    return f"an instance of {type(x).__qualname__}"


def identity(x: Any) -> Hashable:
    """What a static argument contributes to the key of its program; RefusedError where it can't be compared."""
    cls = type(x)
    if cls in _BY_VALUE:
        return cls, x
    if cls is float:
        return float, repr(x)  # tells 0.0 from -0.0, and doesn't tell NaN from NaN
    if cls is complex:
        return complex, repr(x.real), repr(x.imag)
    if cls in STATIC_CLASSES:
        return cls, x
    if cls in _CONTAINERS or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return cls, tuple([identity(item) for item in x])
    if cls in _MAPPINGS:
        return cls, tuple([(identity(k), identity(v)) for k, v in x.items()])
    if cls in (set, frozenset):
        return cls, frozenset([identity(item) for item in x])
    return _identity_of_object(x, cls)


def _identity_of_object(x: Any, cls: type) -> Hashable:
    if isinstance(x, FunctionType):
        return _function_identity(x, set())
    if isinstance(x, Standing):
        return cls, _Same(x), identity(x._fun)
    if isinstance(x, MethodType | BoundCompiled):
        return cls, identity(x.__func__), _bound(x)
    if isinstance(x, BuiltinFunctionType) and not (x.__self__ is None or isinstance(x.__self__, type | ModuleType)):
        raise RefusedError(x, "pass a function that isn't bound to an object that may change")
    if isinstance(x, (*_BY_IDENTITY, BuiltinFunctionType, Enum)):
        return cls, _Same(x)
    if isinstance(x, functools.partial):
        return cls, identity(x.func), identity(x.args), identity(x.keywords)
    if isinstance(x, slice):
        return cls, identity((x.start, x.stop, x.step))
    if isinstance(x, np.dtype):
        return cls, x
    if isinstance(x, np.generic) and not isinstance(x, np.object_):
        return cls, x.dtype, x.tobytes()
    if isinstance(x, TensorCore) or hasattr(x, "__array__"):
        raise RefusedError(x, "pass it as an ordinary argument, which is an input")
    if dataclasses.is_dataclass(x):
        return cls, tuple([(f.name, identity(getattr(x, f.name, None))) for f in dataclasses.fields(x)])
    raise RefusedError(x)


def _bound(x: MethodType | BoundCompiled) -> Hashable:
    """What a bound method is bound to."""
    owner = x.__self__
    if isinstance(owner, type) or type(owner) in STATIC_CLASSES:
        return identity(owner)
    fix = f"pass the {type(owner).__name__} itself (a tree, see lg.register_pytree) and call the method inside"
    raise RefusedError(x, fix)


def _function_identity(f: FunctionType, seen: set[FunctionType]) -> Hashable:
    """A function and what it closes over now: what compares by value, by value; other objects by identity."""
    if f in seen:
        return _Same(f)
    seen.add(f)
    return FunctionType, _Same(f), tuple([_cell_identity(c, seen) for c in f.__closure__ or ()])


def _cell_identity(cell: CellType, seen: set[FunctionType]) -> Hashable:
    try:
        content = cell.cell_contents
    except ValueError:  # not assigned yet
        return None
    if isinstance(content, FunctionType):
        return _function_identity(content, seen)
    if isinstance(content, TensorCore):
        return TensorCore, _Same(content)
    try:
        return identity(content)
    except (RefusedError, RecursionError):  # it may hold the function again
        return _Same(content)


# ---- which parameters are static


class StaticParameters:
    """The parameters of a function that the caller of `lg.compile` named as static, by position, by name, or both."""

    __slots__ = ("names", "positions")

    def __init__(self, fun: Callable[..., Any], argnums: int | Sequence[int], argnames: str | Sequence[str]) -> None:
        given = [argnums] if isinstance(argnums, int) else list(argnums)
        named = [argnames] if isinstance(argnames, str) else list(argnames)
        self.positions: frozenset[int] = frozenset()
        self.names: Names = frozenset()
        if given or named:
            self.positions, self.names = _resolved(_parameters(fun), given, named)

    def __bool__(self) -> bool:
        return bool(self.positions or self.names)

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[int | str, Any]]:
        """The arguments without the static ones (None in their positions), and those."""
        static: dict[int | str, Any] = {i: args[i] for i in sorted(self.positions) if i < len(args)}
        static.update((name, x) for name, x in sorted(kwargs.items()) if name in self.names)
        others = tuple([None if i in static else x for i, x in enumerate(args)])
        return others, {name: x for name, x in kwargs.items() if name not in static}, static


def with_static(
    others: tuple[Sequence[Any], dict[str, Any]], static: dict[int | str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with the static ones back in their places."""
    args, kwargs = others
    positional = [static.get(i, x) for i, x in enumerate(args)]
    return positional, {**kwargs, **{name: x for name, x in static.items() if isinstance(name, str)}}


def _parameters(fun: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have none
        return None


def _resolved(
    parameters: list[inspect.Parameter] | None, argnums: Sequence[int], argnames: Sequence[str]
) -> tuple[frozenset[int], Names]:
    """Positions from the front, and names, of the same parameters."""
    kinds = inspect.Parameter
    ordered = [p for p in parameters or () if p.kind in _POSITIONAL]
    count = None if parameters is None or any(p.kind is kinds.VAR_POSITIONAL for p in parameters) else len(ordered)
    positions = [_position(i, count) for i in argnums]
    keywords = {p.name for p in parameters or () if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    free = parameters is None or any(p.kind is kinds.VAR_KEYWORD for p in parameters)
    for name in argnames:
        if not isinstance(name, str) or not (free or name in keywords):
            expected = f"static_argnames among {', '.join(sorted(keywords)) or 'no names'}"
            raise ValueError(explained("compile", expected, repr(name), "check the spelling"))
    names = {*argnames, *(ordered[i].name for i in positions if i < len(ordered) and ordered[i].name in keywords)}
    positions += [i for i, p in enumerate(ordered) if p.name in names]
    return frozenset(positions), frozenset(names)


def _position(given: int, count: int | None) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(explained("compile", "static_argnums of ints", repr(given), "names go into static_argnames"))
    if count is None and given < 0:
        fix = "count from the front, or use static_argnames"
        raise ValueError(explained("compile", "static_argnums of at least 0 beside *args", given, fix))
    if count is not None and not -count <= given < count:
        expected = f"static_argnums from {-count} to {count - 1}, the function's positional parameters"
        raise ValueError(explained("compile", expected, given, "count the parameters"))
    return given if count is None else given % count


# ---- names for messages


def argument_names(structure: Any, fun: Callable[..., Any]) -> list[str]:
    """How the user calls each leaf of `(args, kwargs)`: `argument 0 (params)['w']`, `argument scale`."""
    parameters = [p.name for p in _parameters(fun) or () if p.kind in _POSITIONAL]
    return [_argument_name(text, parameters) for text in leaf_names(structure, "")]


def _argument_name(path: str, parameters: Sequence[str]) -> str:
    positional = re.match(r"\[0\]\[(\d+)\]", path)
    if positional is not None:
        position = int(positional[1])
        known = f" ({parameters[position]})" if position < len(parameters) else ""
        return f"argument {position}{known}{path[positional.end() :]}"
    named = re.match(r"\[1\]\['(\w+)'\]", path)
    return f"argument {named[1]}{path[named.end() :]}" if named else f"arguments{path}"
