"""Which argument is to blame for an error of Python's own.

Functions check what might be a mistake. What is none of the things that a parameter takes, as None for a list or an
array for a flag, ends somewhere below in an error of Python's or NumPy's that names neither the function nor the
argument. Annotations say what each parameter takes: the first argument that is none of it is named, with the user's
line. Asked only when a call has failed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from loopgrad.graph.errors import LoopgradError, explained
from loopgrad.graph.location import is_of_user, located, user_location

F = TypeVar("F", bound=Callable[..., Any])
OF_PYTHON: Final = (TypeError, ValueError, LookupError, AttributeError, OverflowError)
_SHOWN: Final = 60  # characters of an argument


def _is_one(x: Any) -> bool:
    """Whether that is no array of several elements: those have the methods of numbers, which fail."""
    return getattr(x, "shape", ()) == ()


_TAKEN: Final[Mapping[str, Callable[[Any], bool]]] = {
    "int": lambda x: hasattr(x, "__index__") and _is_one(x),
    "float": lambda x: (hasattr(x, "__float__") or hasattr(x, "__index__")) and _is_one(x),
    "bool": lambda x: isinstance(x, bool | np.bool_ | int | None) or (hasattr(x, "__bool__") and _is_one(x)),
    "str": lambda x: isinstance(x, str),
    "None": lambda x: x is None,
    "Sequence": lambda x: hasattr(x, "__len__") and hasattr(x, "__getitem__") and not isinstance(x, str | Mapping),
    "Callable": callable,
}  # what other names stand for is anything


def blaming(function: F) -> F:
    """The function, of which a failure names the argument that is to blame: of those that aren't remembered by
    `repeated_calls`, which do it themselves."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except OF_PYTHON as error:
            raise_blamed(function, args, options, error)

    return call  # type: ignore[return-value]


def raise_blamed(
    function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any], error: Exception
) -> NoReturn:
    """Raises what says why a call of a function of ours has failed."""
    reason = _reason(function, args, options, error)
    if reason is error:
        raise error
    raise reason from error


def _reason(
    function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any], error: Exception
) -> Exception:
    """The error itself, where it says enough, or comes of a function of the user's, or where a function of ours has
    called."""
    if isinstance(error, LoopgradError) or "\n  at " in str(error) or not _is_between_us(error):
        return error
    try:
        given = inspect.signature(function).bind(*args, **options).arguments
    except TypeError:
        return error  # which says which argument is missing, or one too many
    for name, parameter in inspect.signature(function).parameters.items():
        kind = parameter.annotation
        if name not in given or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if isinstance(kind, str) and not _takes(kind, given[name]):
            got = repr(given[name])
            got = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}..."
            fix = f"see help of {function.__name__}"
            return TypeError(explained(function.__name__, f"{name} of type {kind}", got, fix))
    error.add_note(located(f"in {function.__name__}", user_location()))
    return error


def _is_between_us(error: Exception) -> bool:
    """Whether the user's code called the function, and nothing of the user's failed in it."""
    trace = error.__traceback__
    if trace is None or trace.tb_frame.f_back is None or not is_of_user(trace.tb_frame.f_back):
        return False
    return not any(map(is_of_user, _frames(error)))


def _frames(error: Exception) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _takes(annotation: str, x: Any) -> bool:
    """Whether something is one of what an annotation lists; what we don't know of isn't doubted."""
    return any(_TAKEN.get(kind.partition("[")[0], lambda _: True)(x) for kind in _alternatives(annotation))


def _alternatives(annotation: str) -> Iterator[str]:
    depth, start = 0, 0
    for i, c in enumerate(annotation):
        depth += (c == "[") - (c == "]")
        if c == "|" and not depth:
            yield annotation[start:i].strip()
            start = i + 1
    yield annotation[start:].strip()
