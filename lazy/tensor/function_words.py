"""What decides what a user's function notes when it is called: its code, and all that this reads around it.

    k = 3.0
    lg.cond(p, lambda v: v * k, lg.sin, x)      code that reads `k`: 3.0, and a function of ours

A function is known by its code, what it closes over, its defaults and the globals that it names, of which tensors count
by what they are computed as, numbers by value, modules by what it takes of them, functions again by all of this. What
may be otherwise at the next call without any of these being so isn't known: objects whose attributes change, modules
but for ours and those of numbers, and whatever does more than compute a result, such as printing, drawing numbers, or
changing what lives outside of it. Containers that may change are known by what is in them, as long as no code that is
reached from there changes any.
"""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any, Final

import numpy as np

from loopgrad.graph.types import DType

MOST_CODES: Final = 1024
MOST_FUNCTIONS: Final = 32  # that a call leads to
_PACKAGE: Final = __name__.partition(".")[0]
_FOLDERS: Final = ("loops", "networks", "numpy", "samples", "special", "stats", "transforms")
_COMPUTING: Final = tuple([f"{_PACKAGE}.lazy.{folder}." for folder in _FOLDERS])
_FURTHER: Final = frozenset([f"{_PACKAGE}.graph.errors", f"{_PACKAGE}.graph.types"])
_STATEFUL: Final = ("numpy.float_errors", "numpy.reading", "numpy.text", "transforms.gradients_of_tensors")
_NOT_COMPUTING: Final = frozenset([f"{_PACKAGE}.lazy.{name}" for name in _STATEFUL])
_BUILTINS_NAMES: Final = (
    "abs all any bool complex dict divmod enumerate filter float frozenset int isinstance issubclass len list map "
    "max min pow range reversed round set slice sorted str sum tuple type zip ArithmeticError AssertionError "
    "Exception IndexError KeyError NotImplementedError RuntimeError TypeError ValueError"
)
_OUTSIDE_NAMES: Final = (  # operations that read or change what words say nothing of
    "DELETE_ATTR DELETE_DEREF DELETE_GLOBAL IMPORT_FROM IMPORT_NAME IMPORT_STAR LOAD_BUILD_CLASS LOAD_CLASSDEREF "
    "LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_NAME LOAD_SUPER_ATTR STORE_ATTR STORE_GLOBAL "
    "STORE_NAME"
)
_CHANGING_NAMES: Final = (  # methods of containers
    "add append appendleft clear difference_update discard extend extendleft insert intersection_update "
    "move_to_end pop popitem popleft remove reverse rotate setdefault sort symmetric_difference_update update fill "
    "itemset partition put resize setfield setflags"
)
_WRITING: Final = frozenset({"DELETE_SUBSCR", "STORE_SLICE", "STORE_SUBSCR"})
_UNDECIDED_NAMES: Final = (  # attributes of tensors and arrays of which types say nothing, or that do more than compute
    "backward base block_until_ready cpu ctypes cuda data device dump flags grad strides to to_device tofile"
)


_GENERATOR: Final = inspect.CO_GENERATOR
_BUILTINS: Final = {name: getattr(builtins, name) for name in _BUILTINS_NAMES.split()}
_OUTSIDE, _CHANGING, _UNDECIDED = [
    frozenset(names.split()) for names in (_OUTSIDE_NAMES, _CHANGING_NAMES, _UNDECIDED_NAMES)
]
_COROUTINES: Final = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True, eq=False)
class CodeParts:
    """What code reads: the `globals` by name. `taken`: of variables from outside by their names, which attributes; None
    where the variable itself is handed on. `further`: all other attributes. `changes`: what it is given may be changed.
    `modules`: what it took of them, by the modules and the names there."""

    globals: tuple[str, ...]
    taken: dict[str, set[str] | None]
    further: frozenset[str]
    changes: bool
    modules: dict[tuple[str, ModuleType], list[tuple[ModuleType, str, Any]]] = field(default_factory=dict)

    def add_words(self, name: str, module: ModuleType, words: list[Any]) -> bool:
        """Add what it takes of a module, which has that name and whose attributes may be set; False where that does
        more than compute."""
        found = self.modules.get((name, module))
        if found is None or any(getattr(m, attribute, None) is not x for m, attribute, x in found):
            taken, found = self.taken[name], []
            if taken is None or not _computes(module, taken, self.further, found):
                return False
            self.modules[name, module] = found
        words.append(module)
        words += [x for _, _, x in found]
        return True

    def types_decide(self, name: str) -> bool:
        """Whether what it takes of a tensor with that name depends on what this is computed as, and nothing else."""
        return not (self.taken[name] or frozenset()) & _UNDECIDED


class _KnownCodes:
    """What is known of code objects by their identity, which they keep while they are here; None for code that does
    more than compute a result."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[CodeType, CodeParts | None]] = {}

    def parts(self, code: CodeType) -> CodeParts | None:
        known = self._known.get(id(code))
        if known is None:
            if len(self._known) >= MOST_CODES:
                self._known.clear()
            known = self._known[id(code)] = code, _code_parts(code)
        return known[1]


_CODES: Final = _KnownCodes()


def _code_parts(code: CodeType) -> CodeParts | None:
    if code.co_flags & (_GENERATOR | _COROUTINES):
        return None
    names: dict[str, None] = {}
    taken: dict[str, set[str] | None] = {name: set() for name in code.co_freevars}
    further: set[str] = set()
    changes = False
    variable: str | None = None  # that the instruction before loads
    for inner, instruction in _instructions(code):
        op, name = instruction.opname, instruction.argval
        if op in _OUTSIDE or inner.co_flags & _COROUTINES or (op == "STORE_DEREF" and name in code.co_freevars):
            return None
        attribute = op in ("LOAD_ATTR", "LOAD_METHOD")
        if variable is not None and not attribute:
            taken[variable] = None
        elif attribute and (attributes := further if variable is None else taken[variable]) is not None:
            attributes.add(name)
        variable = None
        if op == "LOAD_GLOBAL":
            names[name] = None
            taken.setdefault(name, set())
        if op == "LOAD_GLOBAL" or (op == "LOAD_DEREF" and name in taken):
            variable = name
        changes = changes or op in _WRITING or (op == "BINARY_OP" and instruction.argrepr.endswith("="))
        changes = changes or (isinstance(name, tuple) and "out" in name)  # of keywords
    every = further.union(*[attributes or () for attributes in taken.values()])
    if further & _UNDECIDED or any(name.startswith("_") for name in every):
        return None
    return CodeParts(tuple(names), taken, frozenset(further), changes or bool(every & _CHANGING))


def _instructions(code: CodeType) -> Iterator[tuple[CodeType, dis.Instruction]]:
    """Those of the code and of the functions that it makes."""
    pending = [code]
    while pending:
        inner = pending.pop()
        for instruction in dis.get_instructions(inner):
            yield inner, instruction
        pending += [c for c in inner.co_consts if isinstance(c, CodeType)]


class Reached:
    """The functions that one call leads to. `changed`: some code may change containers; `held`: there are such."""

    def __init__(self) -> None:
        self.functions: dict[FunctionType, int] = {}
        self.changed = False
        self.held = False

    @property
    def sure(self) -> bool:
        """Whether all containers are as they were afterwards."""
        return not (self.changed and self.held)


class MadeFrom:
    """A callable that is `_transform` of a function, `_fun`, and nothing else."""

    __slots__ = ()

    _transform: functools.partial[Any]
    _fun: Callable[..., Any]


def is_computing(x: Any) -> bool:
    """Whether a function, a type or a constant is one of ours that only computes."""
    if isinstance(x, DType | float):
        return True
    module: str = getattr(x, "__module__", None) or ""
    return module in _FURTHER or (module.startswith(_COMPUTING) and module not in _NOT_COMPUTING)


def function_parts(f: Any, words: list[Any], reached: Reached) -> list[Any] | None:
    """What else decides, once words are added for the function itself; None for what isn't known."""
    if isinstance(f, FunctionType):
        return _parts_of_function(f, words, reached)
    if isinstance(f, MadeFrom):
        words.append(type(f))
        return None if _has_attributes(f) else [f._transform, f._fun]
    if type(f) is functools.partial:
        words += (functools.partial, len(f.args), *f.keywords)
        return [f.func, *f.args, *f.keywords.values()]
    builtin = isinstance(f, type | BuiltinFunctionType) and getattr(builtins, f.__name__, None) is f
    if builtin:
        known = _BUILTINS.get(f.__name__) is f
    else:
        known = isinstance(f, np.ufunc) or (isinstance(f, BuiltinFunctionType) and f.__self__ is math)
    words.append(f)
    return [] if known else None


def _parts_of_function(f: FunctionType, words: list[Any], reached: Reached) -> list[Any] | None:
    met = len(reached.functions)
    place = reached.functions.setdefault(f, met)
    if place < met:
        words += ("again", place)
        return []
    if f.__globals__.get("__name__", "").partition(".")[0] == _PACKAGE:
        words.append(f)
        return [] if _is_named(f) and is_computing(f) else None
    parts = _CODES.parts(f.__code__)
    if parts is None or met >= MOST_FUNCTIONS or _has_attributes(f):
        return None
    reached.changed = reached.changed or parts.changes
    named = f.__kwdefaults__ or {}
    words += (parts, len(f.__closure__ or ()), len(f.__defaults__ or ()), *named)
    try:
        around = [
            (name, cell.cell_contents) for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
        ]
    except ValueError:  # not assigned yet
        return None
    found: list[Any] = [*(f.__defaults__ or ()), *named.values()]
    for name in parts.globals:
        x = f.__globals__.get(name, _NOWHERE)
        if x is not _NOWHERE:
            around.append((name, x))
        elif getattr(builtins, name, None) is not _BUILTINS.get(name, _NOWHERE):  # or replaced
            return None
        words.append(x is _NOWHERE)
    for name, x in around:
        if isinstance(x, ModuleType):
            if not parts.add_words(name, x, words):
                return None
        elif parts.types_decide(name):
            words.append(None)
            found.append(x)
        else:
            return None
    return found


_NOWHERE: Final = object()


def _has_attributes(f: Any) -> bool:
    """Whether a function has attributes of its own, which code may read."""
    return any(not name.startswith("__") for name in f.__dict__)


def _is_named(f: FunctionType) -> bool:
    """Whether a function is what its module calls by its name."""
    return getattr(sys.modules.get(f.__module__), f.__name__, None) is f


def _computes(
    module: ModuleType, taken: Collection[str], further: Collection[str], found: list[tuple[ModuleType, str, Any]]
) -> bool:
    """Whether what is taken of a module, which is listed, only computes, and what may `further` be taken of modules in
    it."""
    ours = module.__name__.partition(".")[0] == _PACKAGE
    for name in taken:
        x = getattr(module, name, None)
        if isinstance(x, ModuleType):
            known = ours and _computes(x, further, further, found)
        elif ours:
            known = x is None or is_computing(x)
        elif module is math:
            known = isinstance(x, float) or getattr(x, "__self__", None) is math
        else:
            constant = isinstance(x, float | NoneType | np.ufunc) or (isinstance(x, type) and issubclass(x, np.generic))
            known = constant and module is np
        if not known:
            return False
        found.append((module, name, x))
    return True
