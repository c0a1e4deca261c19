"""Functions that transforms return: called like what they were made of, and pickled as the transform of it.

A closure can't be pickled, so a gradient couldn't be sent to another process: a `TransformedFunction` remembers how it
was made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from types import MethodType
from typing import Any

from loopgrad.lazy.tensor.function_words import MadeFrom
from loopgrad.lazy.tensor.repeated_calls import traced_once

Function = Callable[..., Any]


class TransformedFunction(MadeFrom):
    """`transform(fun)`, which `call` computes. It has the name, text and signature of `fun`; of a class it is a method.

    In slots, so that who wraps it, and takes over its `__dict__` as `functools.wraps` does, doesn't take these.
    """

    __slots__ = ("__dict__", "__weakref__", "_call", "_fun", "_transform")

    def __init__(self, transform: partial[Any], fun: Function, call: Function) -> None:
        update_wrapper(self, fun)
        self._transform, self._fun, self._call = transform, fun, call

    @traced_once
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        return where_found(self) or (self._transform, (self._fun,))

    def __repr__(self) -> str:
        return f"<{self._transform.func.__name__} of {getattr(self._fun, '__qualname__', repr(self._fun))}>"


def where_found(function: Any) -> str | None:
    """The name by which `pickle` finds a decorated function, where its own name leads to it."""
    name: str = getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is function else None
