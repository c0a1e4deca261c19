"""`checkpoint`: a function whose inner values aren't kept for its reverse pass, but computed again.

The function is traced and becomes one region; `autodiff` saves its arguments and what it captured, and its
reverse computes the rest once more when the cotangents arrive. Values and derivatives are those of the
function itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from loopgrad.autodiff.checkpoint import checkpoint_emit
from loopgrad.lazy.loops.traced_functions import kind_of, trace_tree
from loopgrad.lazy.tensor.core import as_tensor, is_scalar, wrap
from loopgrad.lazy.tensor.trees import check_function, flatten, is_dynamic, unflatten


def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun`, rematerialised: differentiating it saves its arguments (trees of tensors) and captures, nothing else.

    Its reverse pass runs `fun` once more; values and derivatives are those of `fun`. Python numbers and what can't be a
    tensor are handed on as they are, so the function may branch on them.

    >>> lg.grad(lambda x: lg.checkpoint(lambda v: lg.sin(lg.sin(v)))(x))(0.0)
    Tensor(1., dtype=float64)
    """

    check_function("checkpoint", fun)

    @wraps(fun)
    def rematerialised(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten((args, kwargs))
        moving = [i for i, x in enumerate(leaves) if is_dynamic(x) and not is_scalar(x)]
        tensors = [as_tensor(leaves[i]) for i in moving]

        def call(inner: Any) -> Any:
            given = list(leaves)
            for i, t in zip(moving, inner, strict=True):
                given[i] = t
            positional, named = unflatten(structure, given)
            return fun(*positional, **named)

        as_tuple = flatten(tuple(tensors))[1]
        traced = trace_tree("checkpoint", call, as_tuple, [kind_of(t) for t in tensors])
        values = checkpoint_emit(traced.graph, (*(t._value for t in tensors), *traced.captures))
        return unflatten(traced.structure, [wrap(v, w) for v, w in zip(values, traced.weak, strict=True)])

    return rematerialised
