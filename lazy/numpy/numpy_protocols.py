"""NumPy's functions called with tensors (NEP 13 and NEP 18).

`np.sin(x)` and `np.concatenate([x, y])` are loopgrad's functions of those names: lazy, traced, differentiated. A NumPy
function that loopgrad hasn't gets the elements, as `np.asarray` gives them, and so does one that is given what no
tensor holds besides (None, texts, dates, objects): that is NumPy's matter. `ours` is the public package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, explained
from loopgrad.lazy.numpy.ufunc_methods import method_of
from loopgrad.lazy.tensor.core import NoNumbersError, TensorCore
from loopgrad.lazy.tensor.evaluation import to_numpy

# NumPy's answer is meant: an array to write to, NumPy's dtypes, a file of NumPy's form
_NUMPYS_OWN: Final = frozenset({"copy", "save", "result_type", "can_cast", "min_scalar_type"})
_OF_DTYPES: Final = frozenset({"result_type", "can_cast"})


def call_ufunc(ours: Any, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`ufunc(*inputs)` as loopgrad's function of that name, with its options, else on the elements."""
    if method != "__call__":
        return _method(ours, ufunc, method, inputs, options)
    function = _namesake(ours, ufunc)
    if function is None:
        return _on_elements(ufunc, ufunc.__name__, inputs, options)
    out = options.pop("out", None)
    if out is not None and len(out) == 1 and out[0] is inputs[0] and isinstance(inputs[0], np.ndarray) and not options:
        out = None  # `array += tensor` makes the name a tensor, as for every number
    if out is not None:
        options["out"] = out
    ours_too = _in_our_terms(f"np.{ufunc.__name__}", function, options)
    with suppress(NoNumbersError):
        return function(*inputs, **ours_too)
    return _on_elements(ufunc, ufunc.__name__, inputs, options)


def _namesake(ours: Any, ufunc: Any) -> Any:
    """Loopgrad's function of a ufunc's name, where it is NumPy's or one of SciPy's special functions; None where there
    is none. Of loopgrad's own functions, whose methods come this way, too, the function."""
    if not isinstance(ufunc, np.ufunc):
        return ufunc
    name = ufunc.__name__
    if getattr(np, name, None) is ufunc:
        return _offered(ours, name)
    if getattr(sys.modules.get("scipy.special"), name, None) is ufunc:
        return _offered(ours.special, name) or _offered(ours, name)
    return None


def _on_elements(function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    """What another library's function gives for the elements of the tensors among its arguments."""

    def elements(t: TensorCore) -> Any:
        return to_numpy(t, name)

    return function(*_with(elements, args), **_with(elements, kwargs))


def _in_our_terms(name: str, function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Options that the function has; a NumPy array to write to, and others, are refused."""
    if any(not isinstance(t, TensorCore) for t in options.get("out", ())):
        fix = "use the result, or write to a tensor"
        raise DTypeError(explained(name, "a tensor as out= beside tensors", "another array", fix))
    known = signature(function).parameters
    refused = [option for option in options if option not in known]
    if refused:
        fix = "use the result, and lg.where or .astype on it"
        raise DTypeError(explained(name, "options that loopgrad's function has", ", ".join(refused), fix))
    return options


def _method(ours: Any, ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """`np.add.reduce(x)` and `lg.add.reduce(x)`, and their like."""
    function, name = _namesake(ours, ufunc), f"{ufunc.__name__}.{method}"
    if function is None:
        return _on_elements(getattr(ufunc, method), name, inputs, options)
    if not hasattr(function, "nin"):
        fix = "use loopgrad's functions, or np.asarray(x)"
        raise DTypeError(explained(name, "a function of elements with one result", "another one", fix))
    if method == "at" and isinstance(inputs[0], np.ndarray):
        raise DTypeError(explained(name, "a tensor to write to beside tensors", "another array", "use lg.asarray"))
    return method_of(method)(function, *inputs, **options)


def call_function(ours: Any, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function of NumPy's as loopgrad's of that name, else on the elements."""
    name = function.__name__
    found = None
    if function.__module__ in ("numpy", "numpy.lib.stride_tricks") and name not in _NUMPYS_OWN:
        found = _offered(ours, name)
    elif function.__module__ in ("numpy.fft", "numpy.linalg"):
        found = _offered(getattr(ours, function.__module__.removeprefix("numpy.")), name)
    if found is not None:
        given, named = _by_position(function, found, args, kwargs) if kwargs else (args, kwargs)
        with suppress(NoNumbersError):
            return found(*given, **named)
    if name in _OF_DTYPES:
        return function(*_with(_dtypes, args), **_with(_dtypes, kwargs))
    return _on_elements(function, f"{function.__module__}.{name}", args, kwargs)


def _by_position(function: Any, found: Any, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Operands by NumPy's names, as in `np.sum(a=x)`, are handed on by position, where the names aren't ours."""
    given, named = list(args), {k: v for k, v in kwargs.items() if not (k == "out" and v is None)}
    known = signature(found).parameters
    if not known.keys() >= named.keys():
        for name in list(signature(function).parameters)[len(args) :]:
            if name in known or name not in named:
                break
            given.append(named.pop(name))
    return given, named


def _offered(ours: Any, name: str) -> Callable[..., Any] | None:
    return getattr(ours, name) if name in ours.__all__ else None


def _with(take: Callable[[TensorCore], Any], tree: Any) -> Any:
    """Arguments with something else for each tensor."""
    if isinstance(tree, TensorCore):
        return take(tree)
    if type(tree) in (list, tuple):
        return type(tree)([_with(take, item) for item in tree])
    return {k: _with(take, v) for k, v in tree.items()} if type(tree) is dict else tree


def _dtypes(t: TensorCore) -> Any:
    return t._value.dtype.np
