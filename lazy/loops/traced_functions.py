"""Python functions over trees, traced to graphs over their leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loopgrad.graph.build import current_scope, inline, trace
from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.ranges import stands_for
from loopgrad.graph.types import TensorType
from loopgrad.lazy.tensor.core import TensorCore, as_tensor, broadcast_value, cast_value, is_scalar, wrap
from loopgrad.lazy.tensor.errors import TracedValueError
from loopgrad.lazy.tensor.storage import as_array, is_array_without_axes
from loopgrad.lazy.tensor.trees import flatten, structure_error, unflatten

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class LeafType:
    """Type of a leaf. `weak`: the dtype gives way to arrays'. `open`: it began as a Python number. `array`: without
    axes it is an array nonetheless, to which one may write, not a number."""

    type: TensorType
    weak: bool = False
    open: bool = False
    array: bool = False

    def handle(self, value: Value) -> Tensor:
        """A value as what a traced function is called with."""
        tensor = wrap(value, self.weak)
        return as_array(tensor) if self.array else tensor


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A function as a graph over leaves: inputs are `extra` values, then leaves, then captures."""

    graph: Graph
    captures: tuple[Value, ...]
    structure: Any
    weak: tuple[bool, ...]


def kind_of(x: Any) -> LeafType:
    """The kind of an initial value."""
    t = as_tensor(x)
    return LeafType(tensor_type(t._value), t._weak, is_scalar(x) or t._weak, is_array_without_axes(x))


def require_returned_generators(what: str, results: Any) -> None:
    """Raises TracedValueError where the function being traced has drawn from a generator that it was given and doesn't
    return: the caller's wouldn't advance, and draw the same numbers again."""
    scope = current_scope()
    if scope is None or not scope.drawn:
        return
    returned = {leaf._value for leaf in flatten(results)[0] if isinstance(leaf, TensorCore)}
    if not scope.drawn <= returned:
        expected = "the generators that its function draws from among the results"
        got = "one that isn't returned, so that its caller would draw the same numbers again"
        fix = "return (result, rng) and go on with that rng, or pass a stream: rng.stream(shape)"
        raise TracedValueError(explained(what, expected, got, fix))


def tensor_type(value: Value) -> TensorType:
    """The type of a value that is a tensor."""
    type = value.type
    assert isinstance(type, TensorType)
    return type


def trace_tree(
    what: str, function: Callable[..., Any], structure: Any, kinds: Sequence[LeafType], extra: Sequence[Value] = (),
    leaves: Sequence[Tensor] = (),
) -> Traced:  # fmt: skip
    """Trace `function(*extra values, tree)`; the extra arguments arrive as graph values. `leaves`: what the tree's are,
    where that doesn't change from run to run."""
    found: list[Any] = []

    def run(*values: Value) -> list[Value]:
        scalars, inner = values[: len(extra)], values[len(extra) :]
        for value, leaf in zip(inner, leaves):  # noqa: B905  # of most functions none is known
            stands_for(value, leaf._value)
        given = [k.handle(v) for v, k in zip(inner, kinds, strict=True)]
        outputs, out_structure = flatten(function(*scalars, unflatten(structure, given)))
        tensors = [as_result(what, x) for x in outputs]
        found.extend((out_structure, tuple([t._weak for t in tensors])))
        return [t._value for t in tensors]

    graph, captures = trace(run, [*(v.type for v in extra), *(k.type for k in kinds)])
    return Traced(graph, captures, found[0], found[1])


def as_result(what: str, x: Any) -> Tensor:
    """What a traced function returned, as a tensor."""
    if isinstance(x, TensorCore) or is_scalar(x) or hasattr(x, "__array__"):
        return as_tensor(x)
    raise DTypeError(explained(what, "tensors or numbers as results", repr(x), "return only those (or None)"))


def check_structure(what: str, expected: Any, traced: Traced) -> None:
    if traced.structure != expected:
        raise structure_error(what, expected, traced.structure)


def adapt(value: Value, type: TensorType) -> Value:
    """A value converted and stretched to a settled type."""
    return broadcast_value(cast_value(value, type.dtype), type.shape)


def initial_values(inits: list[Any], kinds: Sequence[LeafType]) -> list[Value]:
    """The initial values in the settled types."""
    return [
        as_tensor(x, k.type.dtype)._value if is_scalar(x) and not k.type.shape else adapt(as_tensor(x)._value, k.type)
        for x, k in zip(inits, kinds, strict=True)
    ]


def with_output_types(traced: Traced, types: Sequence[TensorType]) -> Traced:
    """The same function with its results converted to `types`."""
    graph = traced.graph
    if graph.output_types == tuple(types):
        return traced

    def run(*values: Value) -> list[Value]:
        return [adapt(v, t) for v, t in zip(inline(graph, values), types, strict=True)]

    converted, captured = trace(run, graph.input_types)
    assert not captured
    return replace(traced, graph=converted)
