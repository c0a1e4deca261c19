"""`vmap`: a function of one example, applied to all of them at once.

The function is traced on one example and the graph is emitted for the whole batch
(`graph.batching`); a scalar loop in it becomes a loop with one lane per example.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import index
from typing import Any, Final

from loopgrad.graph import ops
from loopgrad.graph.batching import batch
from loopgrad.graph.build import trace
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType
from loopgrad.lazy.loops.traced_functions import as_result, require_returned_generators
from loopgrad.lazy.tensor.core import as_tensor, wrap
from loopgrad.lazy.tensor.ongoing_derivations import derivation
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.storage import private
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, is_dynamic, leaf_names, prefix_leaves, unflatten
from loopgrad.lazy.transforms.named_axes import naming
from loopgrad.lazy.transforms.transformed import TransformedFunction

PUBLIC: Final = "vmap"
Function = Callable[..., Any]


def vmap(
    fun: Function, in_axes: Any = 0, out_axes: Any = 0, axis_name: Hashable | None = None, axis_size: int | None = None
) -> Function:
    """`fun`, written for one example, over an axis of its arguments.

    `in_axes`: the axis of each argument (an int, or a tree that is a prefix of the arguments; None for an argument that
    all examples share). `out_axes`: where results get the axis. Keyword arguments are shared. A scalar loop in `fun`
    becomes one with a lane for each example. `axis_size` is how many examples there are, where no argument has an axis.

    Examples meet inside `fun` where the axis has a name: `lg.psum(x, axis_name)`, `lg.pmean`, `lg.pmax`,
    `lg.all_gather` and their like are over all of them, `lg.axis_index(axis_name)` says which one this is. Maps with
    names may be inside each other, and in loops that all examples run together.

    Raises ShapeError where no argument has an axis and the size isn't given, or extents differ, DTypeError for a
    batched argument that is no tensor, NamedAxisError for a name that no map around has, or where examples would have
    to meet that don't run together.

    >>> lg.vmap(lambda row, v: lg.sum(row * v), in_axes=(0, None))(lg.ones((2, 3)), lg.arange(3.0))
    Tensor([3., 3.], dtype=float64)
    >>> lg.vmap(lambda x: lg.while_loop(lambda v: v > 1.0, lambda v: v / 2.0, x))(lg.asarray([8.0, 5.0]))
    Tensor([1.   , 0.625], dtype=float64)
    >>> lg.vmap(lambda x: x - lg.pmean(x, "examples"), axis_name="examples")(lg.asarray([8.0, 5.0]))
    Tensor([ 1.5, -1.5], dtype=float64)
    """

    check_function("vmap", fun)

    def batched(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten(args)
        axes = _axes(in_axes, args, structure)
        for i, (x, axis) in enumerate(zip(leaves, axes, strict=True)):
            if axis is not None and not is_dynamic(x):
                name = leaf_names(structure, "arguments")[i]
                raise DTypeError(explained("vmap", f"a tensor at {name}", repr(x), "give it in_axes None"))
        chosen = [i for i, axis in enumerate(axes) if axis is not None]
        if not chosen and axis_size is None:
            raise ShapeError(explained("vmap", "an argument to batch over", "in_axes of None", "name an axis"))
        moved = [_front(as_tensor(leaves[i])._value, axes[i], _name(structure, i)) for i in chosen]
        size = _extent(moved, [_name(structure, i) for i in chosen], axis_size)
        return _run(fun, leaves, structure, chosen, moved, size, kwargs, out_axes, axis_name)

    again = partial(vmap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name, axis_size=axis_size)
    return TransformedFunction(again, fun, batched)


def _axes(in_axes: Any, args: tuple[Any, ...], structure: Any) -> list[int | None]:
    if in_axes is None or isinstance(in_axes, int):
        return [in_axes] * structure.num_leaves
    prefix = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    return prefix_leaves("vmap in_axes", prefix, structure, args)


def _name(structure: Any, position: int) -> str:
    return leaf_names(structure, "arguments")[position]


def _front(value: Value, axis: int | None, name: str) -> Value:
    """The batch axis moved to the front."""
    rank = len(value.shape)
    if not rank:
        raise ShapeError(explained("vmap", f"{name} with an axis to batch over", value.type, "give it in_axes None"))
    d = normal_axis("vmap", axis, rank)
    return ops.transpose(value, (d, *(a for a in range(rank) if a != d)))


def _extent(values: Sequence[Value], names: Sequence[str], wanted: int | None) -> int:
    extents = {v.shape[0] for v in values} | (set() if wanted is None else {index(wanted)})
    if len(extents) != 1:
        got = ", ".join(f"{n}: {v.shape[0]}" for n, v in zip(names, values, strict=True))
        got += "" if wanted is None else f", axis_size: {wanted}"
        raise ShapeError(explained("vmap", "one extent of the batched axes", got, "check in_axes"))
    return extents.pop()


def _run(
    fun: Function, leaves: list[Any], structure: Any, chosen: list[int], moved: list[Value], size: int,
    kwargs: dict[str, Any], out_axes: Any, axis_name: Hashable | None,
) -> Tree:  # fmt: skip
    out_structure: list[Any] = []

    def example(*values: Value) -> list[Value]:
        arguments = [private(x) for x in leaves]
        for i, v in zip(chosen, values, strict=True):
            arguments[i] = wrap(v)
        named = {name: private(x) for name, x in kwargs.items()}
        results = fun(*unflatten(structure, arguments), **named)
        require_returned_generators("vmap", results)
        outputs, found = flatten(results)
        out_structure.append(found)
        return [as_result("vmap", x)._value for x in outputs]

    with derivation(), naming(axis_name, size) as level:
        graph, captures = trace(example, [TensorType(v.shape[1:], v.dtype) for v in moved])
    flags = [True] * len(moved) + [False] * len(captures)
    results, have = batch(graph, (*moved, *captures), flags, size, level)
    axes = _out_axes(out_axes, out_structure[0])
    placed = [_placed(v, h, axis, size) for v, h, axis in zip(results, have, axes, strict=True)]
    return unflatten(out_structure[0], [wrap(v) for v in placed])


def _out_axes(out_axes: Any, structure: Any) -> list[int | None]:
    if out_axes is None or isinstance(out_axes, int):
        return [out_axes] * structure.num_leaves
    return prefix_leaves("vmap out_axes", out_axes, structure, unflatten(structure, [0] * structure.num_leaves))


def _placed(value: Value, batched: bool, axis: int | None, size: int) -> Value:
    """A result with its batch axis where it was asked for."""
    if axis is None:
        if batched:
            fix = "name the axis it shall get"
            raise ShapeError(explained("vmap", "a result that all examples share", "one that may differ", fix))
        return value
    if not batched:
        value = ops.broadcast_to(value, (size, *value.shape))
    d = normal_axis("vmap", axis, len(value.shape))
    rest = list(range(1, len(value.shape)))
    return ops.transpose(value, (*rest[:d], 0, *rest[d:]))
