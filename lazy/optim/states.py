"""What gradient transformations keep from step to step: named tuples of tensors, so trees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.numpy.tree_functions import map as map_trees
from loopgrad.lazy.tensor.core import as_tensor, wrap
from loopgrad.lazy.tensor.promotion import float_dtype
from loopgrad.lazy.tensor.trees import Tree, flatten, leaf_names

if TYPE_CHECKING:
    from typing import Any

    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_OPTIM: Final = "AdamState EmptyState LbfgsState OptimizeResult RmsState ScheduleState TraceState"


class EmptyState(NamedTuple):
    """Of a transformation that keeps nothing."""


class ScheduleState(NamedTuple):
    """`count`: the steps that were made, int64."""

    count: Tensor  # type: ignore[assignment]  # as Optax calls it; tuples have a method of this name


class TraceState(NamedTuple):
    """`trace`: the decaying sum of gradients, like the parameters."""

    trace: Tree


class AdamState(NamedTuple):
    """`count`: the steps that were made; `mu` and `nu`: running means of gradients and of their squares."""

    count: Tensor  # type: ignore[assignment]  # as Optax calls it; tuples have a method of this name
    mu: Tree
    nu: Tree


class RmsState(NamedTuple):
    """`nu`: the running mean of squared gradients; `mu` of gradients, where it is centred (else None)."""

    nu: Tree
    mu: Tree


class LbfgsState(NamedTuple):
    """The latest steps `s` and changes `y` of the gradient, a row each, the newest last; `count`: how many there
    are. `curvature`: the product of each pair; `inverse` of the upper triangle of s y^T; `yy` is y y^T."""

    count: Tensor  # type: ignore[assignment]  # as above
    s: Tensor
    y: Tensor
    curvature: Tensor
    inverse: Tensor
    yy: Tensor


class OptimizeResult(NamedTuple):
    """Where a search ended: `x`, `value` and gradient `grad` there, after so many `iterations`; `converged` says
    whether it ended because of a tolerance."""

    x: Tree
    value: Tensor
    grad: Tree
    iterations: Tensor
    converged: Tensor


STATES: Final = (EmptyState, ScheduleState, TraceState, AdamState, RmsState, LbfgsState, OptimizeResult)


def no_steps() -> Tensor:
    """A count of steps."""
    return wrap(ops.full(0, TensorType((), int64)))


def check_numbers(what: str, tree: Tree) -> None:
    """DTypeError that names the first leaf which isn't a number or an array of numbers."""
    leaves, structure = flatten(tree)
    for i, leaf in enumerate(leaves):
        try:
            as_tensor(leaf)
        except (TypeError, ValueError):
            name = leaf_names(structure, "parameters")[i]
            fix = 'leave it out of the tree; a field of a dataclass: field(metadata={"static": True})'
            raise DTypeError(explained(what, f"numbers as {name}", repr(leaf), fix)) from None


def zeros_like_floats(tree: Tree, real: bool = False) -> Tree:
    """Zeros like the tensors of a tree; in the dtypes of real parts, where asked for; integers have the default
    float's."""

    check_numbers("init", tree)

    def zeros(x: Any) -> Tensor:
        value = as_tensor(x)._value
        dtype = float_dtype(value.dtype)
        return wrap(ops.full(0, TensorType(value.shape, dtype.part if real else dtype)))

    return map_trees(zeros, tree)
