"""Tracing functions over trees, and settling the types of loop carries.

A carry has one type for all trips. Where the initial value was a Python number its dtype is open: it
joins the dtype of what the body returns, and its shape may grow to the body's. Where it was an array
the body must return its type; what differs is reported by the leaf's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.location import located
from loopgrad.graph.nodes import Graph, Location, Value
from loopgrad.graph.types import DType, TensorType
from loopgrad.lazy.core import TensorCore, as_tensor, broadcast_value, cast_value, is_scalar, wrap
from loopgrad.lazy.memory import as_array, is_array_without_axes
from loopgrad.lazy.operands import Shape, joined_shape
from loopgrad.lazy.promotion import promote_all, promote_weak
from loopgrad.lazy.trees import flatten, leaf_names, structure_error, unflatten

if TYPE_CHECKING:
    from loopgrad.lazy.tensor import Tensor

Leaves = list[Any]


@dataclass(frozen=True, slots=True)
class Kind:
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


def kind_of(x: Any) -> Kind:
    """The kind of an initial value."""
    t = as_tensor(x)
    return Kind(_type(t._value), t._weak, is_scalar(x) or t._weak, is_array_without_axes(x))


def _type(value: Value) -> TensorType:
    type = value.type
    assert isinstance(type, TensorType)
    return type


def trace_tree(
    what: str, function: Callable[..., Any], structure: Any, kinds: Sequence[Kind], extra: Sequence[Value] = ()
) -> Traced:
    """Trace `function(*extra values, tree)`; the extra arguments arrive as graph values."""
    found: list[Any] = []

    def run(*values: Value) -> list[Value]:
        scalars = values[: len(extra)]
        leaves = [k.handle(v) for v, k in zip(values[len(extra) :], kinds, strict=True)]
        outputs, out_structure = flatten(function(*scalars, unflatten(structure, leaves)))
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


def join_carries(what: str, structure: Any, kinds: Sequence[Kind], traced: Traced) -> list[Kind]:
    """The kinds after seeing what one trip makes of them; equal to `kinds` when they are settled."""
    joined = []
    for i, (kind, value, weak) in enumerate(zip(kinds, traced.graph.outputs, traced.weak, strict=True)):
        result = _join(kind, _type(value), weak)
        if result is None:
            name = leaf_names(structure, "carry")[i]
            raise mismatch(what, name, kind.type, value)
        joined.append(result)
    return joined


def _join(kind: Kind, out: TensorType, weak: bool) -> Kind | None:
    dtype, still_weak = _join_dtype(kind, out.dtype, weak)
    if dtype is None:
        return None
    shape = kind.type.shape
    if out.shape != shape:
        if not kind.open or not _stretches(shape, out.shape):
            return None
        shape = out.shape
    return replace(kind, type=TensorType(shape, dtype), weak=still_weak)


def _join_dtype(kind: Kind, out: DType, weak: bool) -> tuple[DType | None, bool]:
    dtype = kind.type.dtype
    if out is dtype:
        return dtype, kind.weak and weak
    if not kind.open:
        fits = weak and promote_weak(dtype, out) is dtype
        return (dtype if fits else None), False
    return promote_all((dtype, kind.weak), (out, weak))


def _stretches(shape: Shape, target: Shape) -> bool:
    try:
        return joined_shape("carry", (shape, target)) == target
    except ShapeError:
        return False


def mismatch(what: str, name: str, expected: TensorType, result: Value) -> DTypeError | ShapeError:
    """A leaf whose type changed, and the line that changed it."""
    got = _type(result)
    other_dtype = expected.dtype is not got.dtype
    fix = "return the shape that came in"
    if other_dtype:
        fix = f"cast one of them with .astype (the initial value to {got.dtype}, or the result to {expected.dtype})"
    text = explained(what, f"{name} of type {expected}", got, fix)
    loc = _origin(result, expected) if other_dtype else _made(result)
    if loc is not None:
        text = located(f"{text}\nit became {got.dtype if other_dtype else got}", loc)
    return DTypeError(text) if other_dtype else ShapeError(text)


def _made(value: Value) -> Location | None:
    return value.node.loc if value.node is not None else None


def _origin(result: Value, expected: TensorType) -> Location | None:
    """Where a value of the expected dtype was first given the result's dtype; where the result was made if nowhere."""
    pending, seen = [result], {result}
    for value in pending:
        node = value.node
        if node is None:
            continue
        if node.op == "cast" and node.operands[0].dtype is expected.dtype:
            return node.loc
        for operand in node.operands:
            if operand not in seen and isinstance(operand.type, TensorType) and operand.dtype is result.dtype:
                seen.add(operand)
                pending.append(operand)
    return _made(result)


def adapt(value: Value, type: TensorType) -> Value:
    """A value converted and stretched to a settled type."""
    return broadcast_value(cast_value(value, type.dtype), type.shape)


def stretch_lanes(value: Value, shape: Shape) -> Value:
    """`broadcast_value`, but dims are aligned at the front where the value has the lanes already."""
    if value.shape == shape[: len(value.shape)]:
        return value if value.shape == shape else _leading(value, shape)
    return broadcast_value(value, shape)


def _leading(value: Value, shape: Shape) -> Value:
    return emit("broadcast", (value,), {"shape": shape, "dims": tuple(range(len(value.shape)))})[0]


def initial_values(inits: Leaves, kinds: Sequence[Kind]) -> list[Value]:
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


def same_dtype(types: Sequence[tuple[TensorType, bool]]) -> DType | None:
    """The one dtype of several results, of which weak ones give way; None where arrays differ."""
    strong = [t.dtype for t, weak in types if not weak]
    if not strong:
        dtype, _ = promote_all(*[(t.dtype, True) for t, _ in types])
        return dtype
    first = strong[0]
    if any(d is not first for d in strong):
        return None
    fits = all(promote_weak(first, t.dtype) is first for t, weak in types if weak)
    return first if fits else None
