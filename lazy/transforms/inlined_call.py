"""A compiled function that is called within a larger program, of which it becomes a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loopgrad.lazy.tensor.core import TensorCore, as_tensor, copied
from loopgrad.lazy.tensor.trees import flatten, unflatten
from loopgrad.lazy.transforms.static_arguments import StaticParameters, with_static


def inlined(fun: Callable[..., Any], static: StaticParameters, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `fun` returns, traced into the program around it.

    As of a call that is computed, containers of arguments are the function's own, and results share memory neither with
    arguments nor with each other: a program means the same whether its pieces are compiled or all of it is.
    """
    apart: dict[int | str, Any] = {}
    if static:
        args, kwargs, apart = static.split(args, kwargs)
    leaves, structure = flatten((args, kwargs))
    positional, named = with_static(unflatten(structure, leaves), apart)
    results, structure = flatten(fun(*positional, **named))
    return unflatten(structure, [copied(as_tensor(x)) if isinstance(x, TensorCore) else x for x in results])
