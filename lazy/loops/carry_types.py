"""Settling the types of loop carries.

A carry has one type for all trips. Where the initial value was a Python number its dtype is open: it
joins the dtype of what the body returns, and its shape may grow to the body's. Where it was an array
the body must return its type; what differs is reported by the leaf's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.location import located
from loopgrad.graph.nodes import Location, Value
from loopgrad.graph.types import DType, TensorType
from loopgrad.lazy.loops.traced_functions import LeafType, Traced, tensor_type
from loopgrad.lazy.tensor.operands import Shape, joined_shape
from loopgrad.lazy.tensor.promotion import promote_all, promote_weak
from loopgrad.lazy.tensor.trees import leaf_names

TracedT = TypeVar("TracedT")

_ROUNDS: Final = 8  # a carry's type settles in two or three; more means that its shape keeps growing


def settle(
    what: str, kinds: list[LeafType], trip: Callable[[list[LeafType]], tuple[TracedT, list[LeafType]]]
) -> tuple[TracedT, list[LeafType]]:
    """`trip` traces one trip with carries of these kinds, and says of which kinds they should be: trace until these
    are the same. Gives what the last trip was traced to, and the kinds."""
    for _ in range(_ROUNDS):
        traced, wanted = trip(kinds)
        if wanted == kinds:
            return traced, kinds
        kinds = wanted
    fix = "start from an array of the final shape"
    raise ShapeError(explained(what, "carries whose type settles", f"growth for {_ROUNDS} rounds", fix))


def kinds_after(
    what: str, structure: Any, kinds: list[LeafType], body: Traced, lanes: Shape, skip: int
) -> list[LeafType]:
    """The kinds for the next round; the same ones when nothing is left to change."""
    stretched = _with_lanes(kinds, body, lanes, skip)
    return stretched if stretched != kinds else join_carries(what, structure, kinds, body)


def _with_lanes(kinds: list[LeafType], body: Traced, lanes: Shape, skip: int) -> list[LeafType]:
    """Scalars that the body changes, stretched to the lanes."""
    if not lanes:
        return kinds
    result = []
    for i, kind in enumerate(kinds):
        unchanged = body.graph.outputs[i] is body.graph.inputs[skip + i]
        stretch = not kind.type.shape and not unchanged
        result.append(replace(kind, type=TensorType(lanes, kind.type.dtype)) if stretch else kind)
    return result


def join_carries(what: str, structure: Any, kinds: Sequence[LeafType], traced: Traced) -> list[LeafType]:
    """The kinds after seeing what one trip makes of them; equal to `kinds` when they are settled."""
    joined = []
    for i, (kind, value, weak) in enumerate(zip(kinds, traced.graph.outputs, traced.weak, strict=True)):
        result = _join(kind, tensor_type(value), weak)
        if result is None:
            name = leaf_names(structure, "carry")[i]
            raise _mismatch(what, name, kind.type, value)
        joined.append(result)
    return joined


def _join(kind: LeafType, out: TensorType, weak: bool) -> LeafType | None:
    dtype, still_weak = _join_dtype(kind, out.dtype, weak)
    if dtype is None:
        return None
    shape = kind.type.shape
    if out.shape != shape:
        if not kind.open or not _stretches(shape, out.shape):
            return None
        shape = out.shape
    return replace(kind, type=TensorType(shape, dtype), weak=still_weak)


def _join_dtype(kind: LeafType, out: DType, weak: bool) -> tuple[DType | None, bool]:
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


def _mismatch(what: str, name: str, expected: TensorType, result: Value) -> DTypeError | ShapeError:
    """A leaf whose type changed, and the line that changed it."""
    got = tensor_type(result)
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
