"""Arguments of a compiled function that are part of the program, and classes that are trees or parts of programs.

What static arguments are compared by is `lazy.tensor.static_identity`'s.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from reprlib import Repr
from typing import Any, Final, TypeVar

import numpy as np

from loopgrad.graph.errors import explained
from loopgrad.lazy.tensor.static_identity import STATIC_CLASSES, RefusedError, identity
from loopgrad.lazy.tensor.trees import (
    auxiliary_key,
    has_fields,
    is_dynamic,
    is_node,
    leaf_names,
    register_fields,
    register_node,
)

PUBLIC: Final = "register_pytree register_static"
Class = TypeVar("Class", bound=type)
Names = frozenset[str]

_SHOWN: Final = Repr()  # not what is nested without end, as far as Python's own text of it goes
_SHOWN.maxtuple = _SHOWN.maxfrozenset = 32
_SHOWN.maxstring = _SHOWN.maxother = 256

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def register_pytree(
    cls: Class,
    flatten: Callable[[Any], tuple[Sequence[Any], Any]] | None = None,
    unflatten: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> Class:
    """Make instances of a class trees, as lists and dataclasses are; also a decorator.

    `flatten(instance)` gives `(children, auxiliary)`: children are trees; auxiliary is a part of the program, compared
    as a static argument is. `unflatten(auxiliary, children)` makes an instance of them. Without these two the children
    are the fields of a dataclass or a class of attrs, which are trees anyway, or else the instance's attributes
    (`vars(instance)`), and `__init__` isn't called for what is put together. TypeError for a class that is a tree or
    static already.

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

    if flatten is None and has_fields(cls):
        register_fields(cls)
        return cls
    key = auxiliary_key(cls, "what {} keeps beside its children")
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


def text_of(kind: Any) -> str:
    """What a key says of an argument, a static one or an input, for people."""
    if isinstance(kind, tuple) and kind and isinstance(kind[0], type):  # a static argument
        return " ".join([part if isinstance(part, str) else _SHOWN.repr(part) for part in kind[1:]])
    return kind.__name__ if isinstance(kind, type) else str(kind)


# ---- which parameters are static


class StaticParameters:
    """The parameters of a function that the caller of `lg.compile` named as static, by position, by name, or both."""

    __slots__ = ("names", "positions")

    def __init__(self, fun: Callable[..., Any], argnums: int | Sequence[int], argnames: str | Sequence[str]) -> None:
        given = [argnums] if isinstance(argnums, int | np.integer) else list(argnums)
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
    if not isinstance(given, int | np.integer) or isinstance(given, bool):
        raise TypeError(explained("compile", "static_argnums of ints", repr(given), "names go into static_argnames"))
    if count is None and given < 0:
        fix = "count from the front, or use static_argnames"
        raise ValueError(explained("compile", "static_argnums of at least 0 beside *args", given, fix))
    if count is not None and not -count <= given < count:
        expected = f"static_argnums from {-count} to {count - 1}, the function's positional parameters"
        raise ValueError(explained("compile", expected, given, "count the parameters"))
    return int(given) if count is None else int(given) % count


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
