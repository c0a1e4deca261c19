"""What a primitive is: one record, which everybody asks; and how records refuse operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import numpy as np

from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.intervals import IntervalRule
from loopgrad.graph.types import DType, StackType, TensorType, bool_

Attrs = Mapping[str, Any]
Types = tuple[TensorType | StackType, ...]
Array = np.ndarray[Any, Any]
Infer = Callable[[tuple[Value, ...], Attrs, tuple[Graph, ...]], Types]
Reference = Callable[..., tuple[Array, ...]]
Axes = tuple[int, ...]
AxisRule = Callable[[Node, int, Axes], Axes | None]
BatchRule = Callable[[Attrs, int], Attrs]
ExactRule = Callable[[Node], bool]

KIND_NAMES: Final = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "float", "c": "complex"}
LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Silent:
    """A reference without NumPy's warnings of overflow and the like. Those who run many in a row turn them off once and
    call `bare`: turning them off takes as long as computing a few elements."""

    bare: Reference

    def __call__(self, attrs: Attrs, *arrays: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return self.bare(attrs, *arrays)


class Kind(Enum):
    """How the elements of a result come from those of the operands."""

    NULLARY = "no operands"
    ELEMENTWISE = "an element from those at its own index"
    MOVEMENT = "an element of an operand, at a place that shapes and attributes give"
    REDUCTION = "one element from many along some axes, which disappear"
    SHARDS = "one element from some neighbours along the first axis, for all of them"
    RUNNING_TOTAL = "an element from those before it along an axis"
    INDEXING = "elements at places that operands give"
    PARTS = "complex numbers from and to their parts, gone before code is made (`graph.complex_pairs`)"
    CONTRACTION = "sums of products along axes of two operands"
    LIBRARY = "a routine over whole arrays"
    NAMED_AXIS = "what the examples of a batch have, gone once the batch is made (`graph.batching`)"
    STACK = "stacks, of which each is used once"
    REGION = "Graphs that run in the node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """An operation: what it computes, and what passes, schedulers and derivatives may know of it.

    Rules:

    name       what nodes call it
    public     what its function is called, empty where it is `name` too; None where there is none
    kind       see Kind
    kinds      the kinds of dtype (see KIND_NAMES) that its operands may have, predicates and indices aside
    infer      (operands, attrs, regions) -> the result types; raises ShapeError or DTypeError
    reference  (attrs, *arrays) -> the results in plain NumPy; None where the interpreter runs it (regions, stacks)
    function   of what works on elements: (*arrays) -> the reference's result for NumPy's own dtypes, a scalar perhaps
               where there is one element, with NumPy's warnings
    python     (*ints) -> what Python's operator gives of ints, which have no limits; None where none does
    interval   between which integers the elements of the result lie (`primitives.intervals`); None: anywhere
    axes       (node, operand, axes) -> the axes of the result along which elements have the coordinates that they had
               along `axes` of the operand, counted in row-major order: {perm=(1, 0)} takes (0,) to (1,), a reshape
               of (2, 3) to (6,) takes (0, 1) to (0,). `axes` itself where they are the same with the same extents.
               None where elements along `axes` meet or change places; no rule says that they always may
    batched    (attrs, n) -> the attributes with which it does the same for n operands at once: these, and the result,
               have an axis of n in front. {perm=(1, 0)} becomes {perm=(0, 2, 1)}. None: see `graph.batching`
    exact      whether the bits of a node's result are settled by what the operation means, NaN's own aside: integers,
               tests, elements that only move, floats rounded once. Then compiled code and the reference have the same.
               None: never; an expansion of ours, or the order of a sum, decides as well

    unrounded  floats of a dtype give floats that this dtype has, however few bits it has

    For derivatives:

    not_differentiable  why it has none; empty where it has one
    linear              piecewise linear in all operands together: its derivatives are finite constants
    singular            has an infinite or undefined derivative at an ordinary finite argument
    heavy               too much work, or too many elements in, to do again for one element out: it is saved for reverse

    For passes and schedulers:

    gives_bool          the result is bool, whatever the operands are
    commutes            the kinds of dtype of which two operands may change places (min of 0.0 and -0.0 is the second)
    neutral             the integer that changes no other as the second operand (as the first too where it commutes)
    keeps_splats        every element of the result is one of its only operand: nothing is computed, and where all
                        elements of that are equal, so are the result's
    updates             the first result is the first operand after an update, in the same memory
    combine             the elementwise primitive of which it is the fold: reduce_sum is that of add. `logaddexp`, of
                        which logcumsumexp is, isn't one: no value of its own leaves a running total
    collective          all processes of a mesh do it together: it is neither merged nor moved nor computed beforehand
    pairs               complex numbers reach it whole, as pairs of reals; the attribute `pairs` says of which operands
    finds               of a position: the reduction whose result stands there
    combine_parts       of a test that takes complex numbers: the primitive that combines the answers of both parts
    mirrored, negated   of a comparison: the one with its operands exchanged; the one that is true where it is false
                        (if no operand is NaN)
    cost                computing one element, in units of one vector addition per lane (`codegen.schedule.cost`)
    weight              about the number of instructions that it is in code, of floats
    calls               about the number of NumPy's functions that its reference calls
    """

    name: str
    kind: Kind
    infer: Infer
    public: str | None = ""
    kinds: str = "biufc"
    reference: Reference | None = None
    function: Callable[..., Any] | None = None
    python: Callable[..., Any] | None = None
    interval: IntervalRule | None = None
    axes: AxisRule | None = None
    batched: BatchRule | None = None
    exact: ExactRule | None = None
    unrounded: bool = False
    not_differentiable: str = ""
    linear: bool = False
    singular: bool = False
    heavy: bool = False
    gives_bool: bool = False
    commutes: str = ""
    neutral: int | None = None
    keeps_splats: bool = False
    updates: bool = False
    combine: str = ""
    finds: str = ""
    combine_parts: str = ""
    collective: bool = False
    pairs: bool = False
    mirrored: str = ""
    negated: str = ""
    cost: float = 1.0
    weight: int = 1
    calls: int = 1


def table(*rows: Primitive) -> dict[str, Primitive]:
    """The rows by their names."""
    return {row.name: row for row in rows}


def always_exact(node: Node) -> bool:
    return True


def exact_of(kinds: str) -> ExactRule:
    """Where the first operand has a dtype of these kinds."""

    def rule(node: Node) -> bool:
        return node.operands[0].dtype.kind in kinds

    return rule


def same_axes(node: Node, operand: int, axes: Axes) -> Axes:
    """The rule of what has its operands' shape, element by element."""
    return axes


def axis_after_batch(attrs: Attrs, size: int) -> Attrs:
    """The batched attributes of what works along `axis`."""
    return {**attrs, "axis": attrs["axis"] + 1}


def axes_after_batch(attrs: Attrs, size: int) -> Attrs:
    """The batched attributes of what works along `axes`."""
    return {**attrs, "axes": tuple([axis + 1 for axis in attrs["axes"]])}


def kinds_text(kinds: str) -> str:
    return " or ".join(KIND_NAMES[k] for k in kinds)


def types_text(values: Sequence[Value]) -> str:
    return ", ".join(str(v.type) for v in values) or "nothing"


def shape_error(op: str, expected: object, got: object, fix: str) -> ShapeError:
    return ShapeError(explained(op, expected, got, fix))


def dtype_error(op: str, expected: object, got: object, fix: str) -> DTypeError:
    return DTypeError(explained(op, expected, got, fix))


_INTEGERS: Final = frozenset({int})
"""What extents are; those that note what is done with them (codegen.extents) are only asked for what is needed, and
not to be kept."""


def bool_type(shape: tuple[int, ...]) -> TensorType:
    return _bool_type(shape) if _INTEGERS.issuperset(map(type, shape)) else TensorType(shape, bool_)


@lru_cache(maxsize=4096)
def _bool_type(shape: tuple[int, ...]) -> TensorType:
    return TensorType(shape, bool_)


def tensor_type(op: str, value: Value) -> TensorType:
    """The operand's type; refuses a stack."""
    if not isinstance(value.type, TensorType):
        raise dtype_error(op, "a tensor", value.type, "a stack can only be pushed to and popped from")
    return value.type


def require_kinds(op: str, type: TensorType, kinds: str) -> None:
    if type.dtype.kind not in kinds:
        raise dtype_error(op, f"{kinds_text(kinds)} elements", type, "cast the operand first")


def sized(op: str, shape: Sequence[int], dtype: DType) -> TensorType:
    """The type of a result whose size is new; refuses what 63 bits can't count in bytes."""
    shape = tuple(shape)
    return (_known if _INTEGERS.issuperset(map(type, shape)) else _sized)(op, shape, dtype)


def _sized(op: str, shape: tuple[int, ...], dtype: DType) -> TensorType:
    size = dtype.itemsize
    for extent in shape:
        if extent < 0:
            raise shape_error(op, "extents of at least 0", tuple(shape), "check the sizes")
        size *= extent or 1  # an empty array of absurd extents is refused too, as in NumPy
    if size > LARGEST:
        raise shape_error(op, "fewer than 2**63 bytes", f"{dtype}[{','.join(map(str, shape))}]", "check the sizes")
    return TensorType(shape, dtype)


_known: Final = lru_cache(maxsize=4096)(_sized)


def axis_in_range(op: str, axis: int, rank: int) -> None:
    if not 0 <= axis < rank:
        raise shape_error(op, f"an axis in 0..{rank - 1}", axis, f"the operand has {rank} dimensions")


def axes_in_range(op: str, axes: Sequence[int], rank: int) -> None:
    for axis in axes:
        axis_in_range(op, axis, rank)
    if len(set(axes)) != len(axes):
        raise shape_error(op, "each axis once", tuple(axes), "remove the repeated axis")


def added_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What elements of a NumPy dtype are added up in: floats in more digits than they have, as far as NumPy has them
    (a longdouble has 64 bits of mantissa on x86; elsewhere it may be a float64)."""
    if dtype.kind not in "fV":  # bfloat16 is V
        return dtype
    return np.dtype(np.longdouble if dtype == np.float64 else np.float64)
