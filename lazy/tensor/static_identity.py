"""What parts of programs are compared by: static arguments, static fields, and what classes keep beside their children.

Two of them are the same only where no program can tell them apart: `1`, `1.0` and `True` differ, as do `0.0` and
`-0.0`; NaN is NaN. Containers are compared by what they hold at the time of the call, enum members, functions, classes
and modules by identity, functions also by the variables they close over. An object of another class may change while
it stays equal to itself, or be equal to what it isn't: it is refused, unless its class is registered.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable
from enum import Enum
from types import BuiltinFunctionType, CellType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import explained
from loopgrad.graph.types import DType
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.errors import StaticArgumentError

STATIC_CLASSES: Final[set[type]] = set()  # registered as parts of programs: never nodes of trees
_BY_VALUE: Final = frozenset({bool, int, str, bytes, type(None), type(...), range, DType})
_CONTAINERS: Final = frozenset({tuple, list, deque})
_MAPPINGS: Final = frozenset({dict, OrderedDict, defaultdict})
_BY_IDENTITY: Final = (type, ModuleType, np.ufunc, MethodDescriptorType, type(functools.lru_cache(len)))
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


class BoundStanding:
    """A method of an instance, `__self__`, of which `__func__` stands for the function."""

    __func__: Any
    __self__: Any


def fields_of(cls: type) -> dict[str, bool] | None:
    """The fields of a dataclass or of a class that attrs made, and whether each is static, `metadata={"static": True}`;
    None for other classes."""
    if dataclasses.is_dataclass(cls):
        return {f.name: bool(f.metadata.get("static")) for f in dataclasses.fields(cls)}
    attributes = getattr(cls, "__attrs_attrs__", None)
    return None if attributes is None else {a.name: bool(a.metadata.get("static")) for a in attributes}


def _described(x: object) -> str:
    if isinstance(x, TensorCore):
        return f"a tensor {x._value.type} in a static argument"
    if isinstance(x, np.ndarray):
        return f"an array {x.dtype}{list(x.shape)} in a static argument"
    return f"an instance of {type(x).__qualname__}"


def identity(x: Any) -> Hashable:
    """What a static argument contributes to the key of its program; RefusedError where it can't be compared."""
    return _identity(x, set())


def _identity(x: Any, seen: set[FunctionType]) -> Hashable:
    """As `identity`, in functions that were `seen`: what they close over may hold them again."""
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
        return cls, tuple([_identity(item, seen) for item in x])
    if cls in _MAPPINGS:
        return cls, tuple([(_identity(k, seen), _identity(v, seen)) for k, v in x.items()])
    if cls in (set, frozenset):
        return cls, frozenset([_identity(item, seen) for item in x])
    return _identity_of_object(x, cls, seen)


def _identity_of_object(x: Any, cls: type, seen: set[FunctionType]) -> Hashable:
    if isinstance(x, FunctionType):
        return _function_identity(x, seen)
    if isinstance(x, Standing):
        return cls, _Same(x), _identity(x._fun, seen)
    if isinstance(x, MethodType | BoundStanding):
        return cls, _identity(x.__func__, seen), _bound(x)
    if isinstance(x, BuiltinFunctionType) and not (x.__self__ is None or isinstance(x.__self__, type | ModuleType)):
        raise RefusedError(x, "pass a function that isn't bound to an object that may change")
    if isinstance(x, (*_BY_IDENTITY, BuiltinFunctionType, Enum)):
        return cls, _Same(x)
    if isinstance(x, functools.partial):
        return cls, _identity(x.func, seen), _identity(x.args, seen), _identity(x.keywords, seen)
    if isinstance(x, slice):
        return cls, _identity((x.start, x.stop, x.step), seen)
    if isinstance(x, np.dtype):
        return cls, x
    if isinstance(x, np.generic) and not isinstance(x, np.object_):
        return cls, x.dtype, x.tobytes()
    if isinstance(x, TensorCore) or hasattr(x, "__array__"):
        raise RefusedError(x, "pass it as an ordinary argument, which is an input")
    if (fields := fields_of(cls)) is not None:
        return cls, tuple([(name, _identity(getattr(x, name, None), seen)) for name in fields])
    raise RefusedError(x)


def _bound(x: MethodType | BoundStanding) -> Hashable:
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
        return _identity(content, seen)
    except (RefusedError, RecursionError):  # it may hold the function again
        return _Same(content)
