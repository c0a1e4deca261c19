"""`lg.eval_shape`: what a function returns, as shapes and dtypes, without computing an element.

The function is traced, as `lg.compile` does it, on values of the arguments' types; the graph is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.build import trace
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import DType, TensorType
from loopgrad.lazy.loops.traced_functions import as_result, tensor_type
from loopgrad.lazy.tensor.core import wrap
from loopgrad.lazy.tensor.ongoing_derivations import derivation
from loopgrad.lazy.tensor.promotion import as_dtype
from loopgrad.lazy.tensor.storage import as_array
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, is_dynamic, unflatten
from loopgrad.lazy.transforms.compiled_arguments import argument, is_weak, type_of

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "eval_shape ShapeDtypeStruct"


class ShapeDtypeStruct:
    """A shape and a dtype, in place of an array that isn't there: a leaf of trees.

    >>> lg.ShapeDtypeStruct((2, 3), lg.float32).size
    6
    """

    __slots__ = ("dtype", "shape")

    shape: tuple[int, ...]
    dtype: DType

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape = tuple([int(extent) for extent in shape])
        self.dtype = as_dtype(dtype)
        if any(extent < 0 for extent in self.shape):
            expected = "extents that aren't negative"
            raise ShapeError(explained("ShapeDtypeStruct", expected, self.shape, "give the shape of an array"))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name})"


def stands_for_array(leaf: Any) -> bool:
    """Whether a leaf has a shape and a dtype and no elements: ours, or another library's."""
    return not is_dynamic(leaf) and hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def described(leaf: Any) -> TensorType:
    """The type of an array, a number, or what stands for an array."""
    return TensorType(tuple(leaf.shape), as_dtype(leaf.dtype)) if stands_for_array(leaf) else type_of(leaf)


def stand_in(leaf: Any, value: Value) -> Tensor:
    """What a function that is traced is called with in place of what `described` has the type of."""
    return as_array(wrap(value)) if stands_for_array(leaf) else argument(leaf, value, is_weak(leaf))


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Tree:
    """The tree that `fun(*args, **kwargs)` returns, with a `ShapeDtypeStruct` in place of each tensor.

    Arguments are trees of arrays, numbers, or whatever has a shape and a dtype (`lg.ShapeDtypeStruct`); other leaves,
    as strings, are handed to the function. Nothing is computed and no memory is taken. Raises what the function raises
    when it is traced.

    >>> lg.eval_shape(lambda a, b: {"product": a @ b}, lg.ShapeDtypeStruct((10**6, 3), lg.float32), lg.ones(3))
    {'product': ShapeDtypeStruct(shape=(1000000,), dtype=float64)}
    """
    check_function("eval_shape", fun)
    leaves, structure = flatten((args, kwargs))
    moving = [i for i, x in enumerate(leaves) if is_dynamic(x) or stands_for_array(x)]
    found: list[Any] = []

    def run(*values: Value) -> list[Value]:
        arguments = list(leaves)
        for i, value in zip(moving, values, strict=True):
            arguments[i] = stand_in(leaves[i], value)
        positional, named = unflatten(structure, arguments)
        results, found_structure = flatten(fun(*positional, **named))
        found.append(found_structure)
        return [as_result("eval_shape", x)._value for x in results]

    with derivation():
        graph, _ = trace(run, [described(leaves[i]) for i in moving])
    types = [tensor_type(v) for v in graph.outputs]
    return unflatten(found[0], [ShapeDtypeStruct(t.shape, t.dtype) for t in types])
