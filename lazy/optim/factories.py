"""Functions that are made by a call, and pickled as that call: closures can't be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from loopgrad.lazy.tensor.blamed_arguments import OF_PYTHON, raise_blamed
from loopgrad.lazy.tensor.static_identity import Standing

P = ParamSpec("P")
Made = TypeVar("Made", bound=Callable[..., Any] | tuple[Any, ...])


class MadeFunction(Standing):
    """A function that `again()` makes, or the one at a place of the tuple that it makes."""

    def __init__(self, function: Callable[..., Any], again: Callable[[], Any], place: int | None) -> None:
        self._fun, self._again, self._place = function, again, place

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fun(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _made_again, (self._again, self._place)

    def __repr__(self) -> str:
        return f"<function of {self._again!r}>"


def _made_again(again: Callable[[], Any], place: int | None) -> Any:
    return again() if place is None else again()[place]


def picklable(factory: Callable[P, Made]) -> Callable[P, Made]:
    """The factory, of a function or a named tuple of them, whose results can be pickled where its arguments can."""

    @wraps(factory)
    def call(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            made: Any = factory(*args, **kwargs)
        except OF_PYTHON as error:
            raise_blamed(factory, args, kwargs, error)
        again = partial(call, *args, **kwargs)
        if isinstance(made, tuple):
            functions: list[Any] = [MadeFunction(f, again, i) for i, f in enumerate(made)]
            return type(made)(*functions)
        return MadeFunction(made, again, None)

    return call
