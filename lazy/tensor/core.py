"""What a tensor is made of, below its operators: the value it wraps, leaves, and conversion.

`TensorCore` holds the slots; `lazy.tensor.tensor.Tensor` is its one subclass and adds operators and methods.
Array functions import this module only, so that the class may import them.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.ambient import AMBIENT, LIMIT, References
from loopgrad.graph.build import Scope, current_scope, emit
from loopgrad.graph.complex_numbers.parts import complex_constant
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Leaf, Noted, Value, attrs_of_const, is_made
from loopgrad.graph.primitives.casting import cast_array
from loopgrad.graph.python_numbers import known_number, require
from loopgrad.graph.ranges import limits, noted, outermost
from loopgrad.graph.types import DType, TensorType, bfloat16, int64
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.promotion import as_dtype, promote_arrays, scalar_dtype
from loopgrad.runtime.buffers import Buffer, dtype_of
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.processes import child_safe_lock
from loopgrad.runtime.rare_collection import RARE_COLLECTION

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.storage import View
    from loopgrad.lazy.tensor.tensor import Tensor

Scalar: TypeAlias = bool | int | float | complex
ArrayLike: TypeAlias = "Tensor | np.ndarray[Any, Any] | np.generic | Scalar | Sequence[Any]"

PYTHON_SCALARS: Final = frozenset({bool, int, float, complex})
next_serial: Final = itertools.count().__next__
"""A number larger than all before."""


class History:
    """What an evaluated tensor was computed as; the tensor owns it, its leaf refers to it weakly. (Values
    and nodes refer to each other, so they would only go when the garbage collector runs.)"""

    __slots__ = ("__weakref__", "value")

    def __init__(self, value: Value) -> None:
        self.value = value


class Siblings:
    """Tensors that one call returned and that are better computed together: a value and its gradient."""

    __slots__ = ("members",)

    def __init__(self, tensors: Sequence[TensorCore]) -> None:
        self.members = [weakref.ref(t) for t in tensors]
        for t in tensors:
            if t._history is None and not isinstance(t._value, Leaf):
                t._history = self

    def elements(self, t: TensorCore) -> Buffer | None:
        """Those of one of them, where they are found without a look at its graph."""
        return None


class TensorLeaf(Leaf):
    """The value of a tensor whose elements exist.

    `serial` orders leaves by age (equal for what was evaluated together). `history` leads to the value
    that was evaluated, for as long as the tensor lives; None for input data. `computed` says that there
    was such a value. `committed`: the user chose its device. `generation`: for a leaf noted in `Value.known`,
    how many evaluations in a row started from such leaves.
    """

    __slots__ = ("committed", "computed", "generation", "history", "serial")

    any_committed: ClassVar[bool] = False  # lets evaluation skip the search for the device

    def __init__(
        self, type: TensorType, buffer: Buffer, history: History | None = None, computed: bool = False,
        committed: bool = False, serial: int | None = None,
    ) -> None:  # fmt: skip
        self.type = type  # as `Leaf.__init__` does, which a leaf for every result shouldn't cost
        self.node = self.known = self.scope = self.expression = None
        self.index = 0
        self.buffer = buffer
        self.serial = next_serial() if serial is None else serial
        self.history = None if history is None else weakref.ref(history)
        self.computed = computed or history is not None
        self.committed = committed
        self.generation = 0
        if committed and not TensorLeaf.any_committed:  # writing to a class has all its attributes looked up anew
            TensorLeaf.any_committed = True


class TensorCore:
    """`_value` is the graph value; `_weak` says that its dtype came from a Python scalar. `_history`:
    before evaluation what to compute along, afterwards what was evaluated, so that gradients find it.
    `_view`: which memory this handle shares with others (`lazy.tensor.storage`); None for memory of its own, and
    without axes for a number, as NumPy's scalars are. `_home`: the function being traced that made the tensor, set
    only where its value is from outside that function."""

    __slots__ = ("__weakref__", "_history", "_home", "_value", "_view", "_weak")

    _value: Value
    _weak: bool
    _history: History | Siblings | None
    _view: View | None
    _home: Scope

    def __init_subclass__(cls) -> None:
        global _concrete
        _concrete = cls


_concrete: Any = TensorCore


FEW_BYTES: Final = 1 << 10
LIVE_KEPT: Final = 1 << 17  # references to tensors that wait, at most: the latest


class _Live(threading.local):
    """`garbage`: bytes that this thread evaluated since it collected garbage. `evaluating`: evaluations that it is in
    the middle of, but for lines that it knows."""

    def __init__(self) -> None:
        self.garbage = 0
        self.evaluating = 0

    @property
    def tensors(self) -> References:
        """This thread's tensors of the top level in order of creation, dead ones among them: evaluation looks
        who still needs what is being computed, and clears the list of those who don't."""
        return AMBIENT.references


LIVE: Final = _Live()
# Whoever makes a tensor refer to another value holds it, and nothing is computed meanwhile: see lazy.evaluator.
CHANGES: Final = child_safe_lock()
_new: Final = object.__new__


def wrap(value: Value, weak: bool = False) -> Tensor:
    """The tensor of a graph value."""
    tensor: Tensor = _new(_concrete)
    tensor._value = value
    tensor._weak = weak
    tensor._history = None
    tensor._view = None
    scope = current_scope()
    if scope is not None and value.scope is not scope:
        tensor._home = scope
    if value.scope is None and is_made(value):
        note_holder(tensor, value)
    return tensor


def held(value: Noted, weak: bool) -> Tensor:
    """`wrap` for a value that was noted at the top level now."""
    tensor: Tensor = _new(_concrete)
    tensor._value = value
    tensor._weak = weak
    tensor._history = tensor._view = None
    value.holder = reference = weakref.ref(tensor)
    live = AMBIENT.references
    live.append(reference)
    if len(live) > live.limit:
        forget_dead(live)
    return tensor


def passing(value: Value) -> Tensor:
    """A tensor that is only handed on: nobody takes it for a holder of its value."""
    tensor: Tensor = _new(_concrete)
    tensor._value = value
    tensor._weak = False
    tensor._history = tensor._view = None
    return tensor


def note_holder(tensor: TensorCore, value: Value) -> None:
    """The tensor has a value of the top level that a node gives."""
    live, reference = AMBIENT.references, weakref.ref(tensor)
    live.append(reference)
    if len(live) > live.limit:
        forget_dead(live)
    if type(value) is Noted:
        first = value.holder  # of one tensor there is one reference
        alone = first is None or first is reference or (first is not several and first() is None)
        value.holder = reference if alone else several


def several() -> None:
    """What stands for the holders of a value where there are several."""


def few_elements(leaf: Leaf) -> np.ndarray[Any, Any] | None:
    """The elements of a leaf that are few, in the host's memory, and on no device that the user chose; else None."""
    if not isinstance(leaf, TensorLeaf) or leaf.committed or type(leaf.buffer) is not Buffer:
        return None
    array = leaf.buffer.array
    return array if array.nbytes <= FEW_BYTES else None


def computed_leaf(buffer: Buffer, expression: Any = None) -> TensorLeaf:
    """A leaf for elements that a program gave, on the device of the settings: made in half the time of a call of the
    class, since every result costs one."""
    leaf: TensorLeaf = _new(TensorLeaf)
    leaf.type = buffer._type or buffer.type
    leaf.node = leaf.known = leaf.scope = leaf.history = None
    leaf.expression = expression
    leaf.index = leaf.generation = 0
    leaf.buffer = buffer
    leaf.serial = next_serial()
    leaf.computed = True
    leaf.committed = False
    return leaf


def computed_tensor(buffer: Buffer, committed: bool) -> Tensor:
    """The tensor of elements that a program gave: `wrap` of a leaf, which every result costs."""
    leaf = computed_leaf(buffer)
    leaf.committed = committed
    if committed and not TensorLeaf.any_committed:
        TensorLeaf.any_committed = True
    tensor: Tensor = _new(_concrete)
    tensor._value = leaf
    tensor._weak = False
    tensor._history = tensor._view = None
    return tensor


def forget_dead(live: References) -> None:
    """Drop the references to tensors that nobody holds or that have their elements: a thread that builds and never
    evaluates must not remember all that it built. They are looked for when there are twice as many as were left."""
    live[:] = [r for r in live if (t := r()) is not None and is_made(t._value)][-LIVE_KEPT:]
    live.limit = max(LIMIT, 2 * len(live))


def copied(x: Tensor) -> Tensor:
    """Another tensor of the same elements: writing to one leaves the other."""
    other = wrap(x._value, x._weak)
    other._history = x._history
    return other


def computed_as(x: TensorCore) -> Value:
    """What the tensor was computed as, evaluated or not."""
    value, history = x._value, x._history  # in this order: another thread may be evaluating it
    return history.value if isinstance(history, History) else value


def node(op: str, operands: Sequence[Value], weak: bool = False, **attrs: Any) -> Tensor:
    """The only result of a new node, as a tensor."""
    return wrap(emit(op, operands, attrs)[0], weak)


def constant(value: Scalar, type: TensorType) -> Value:
    """A value whose every element is `value`, which the dtype must be able to hold."""
    kind = type.dtype.kind
    if kind == "c":
        return ops.full(value, type)
    if kind == "f":
        value = float(value)  # type: ignore[arg-type]
        if type.dtype is bfloat16:  # rounded here: NumPy makes a float32 first, and rounds twice
            value = float(cast_array(np.asarray(value), bfloat16))
    elif kind in "iu":
        value = _checked_integer(value, type.dtype)
    elif kind == "b":
        value = bool(value)
    return emit("const", (), {"value": value, "type": type})[0]


def _checked_integer(value: Scalar, dtype: DType) -> int:
    low, high = limits(dtype)
    integer = int(value)  # type: ignore[arg-type]
    if not low <= integer <= high:
        message = explained(dtype.name, f"an integer from {low} to {high}", integer, "use a wider dtype")
        raise OverflowError(message)
    return integer


def array_leaf(
    array: np.ndarray[Any, Any], device: str | None = None, copy: bool = True, computed: bool = False
) -> TensorLeaf:
    """A leaf that holds the elements of a NumPy array."""
    buffer = get_device(current().device if device is None else device).put(array, copy)
    return TensorLeaf(buffer.type, buffer, computed=computed, committed=device is not None)


class NoNumbersError(DTypeError):
    """Elements that no tensor holds: texts, dates, objects."""


def is_scalar(x: object) -> bool:
    """Whether `x` is a Python number (NumPy's scalars are arrays of rank 0)."""
    return type(x) in PYTHON_SCALARS or (isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic))


def as_tensor(x: Any, dtype: DType | None = None) -> Tensor:
    """`x` as a tensor; a Python scalar becomes a weak one unless `dtype` is given."""
    if isinstance(x, TensorCore):
        tensor: Tensor = x  # type: ignore[assignment]
        return tensor if dtype is None or tensor._value.dtype is dtype else cast(tensor, dtype)
    if is_scalar(x):
        return wrap(constant(x, TensorType((), dtype or scalar_dtype(x))), dtype is None)
    if isinstance(x, np.floating | np.bool_) and x.dtype.itemsize <= 8:  # no input of its own: it may be folded
        return wrap(constant(x.item(), TensorType((), dtype or dtype_of(x.dtype))))
    return from_data(x, dtype)


def from_data(x: Any, dtype: DType | None = None, device: str | None = None, copy: bool = True) -> Tensor:
    """A tensor of the elements of an array, of nested sequences (tensors among them), or of a scalar."""
    if isinstance(x, list | tuple) and _holds_tensors(x):
        return _joined(x, dtype)
    array = unmasked(x) if isinstance(x, np.ndarray) else _as_array(x)
    python_numbers = not isinstance(x, np.ndarray | np.generic) and not hasattr(x, "__array__")
    if python_numbers and dtype is None and array.dtype in (np.float64, np.complex128):
        dtype = current().dtype if array.dtype.kind == "f" else current().complex_dtype
    if array.dtype.kind in "OUSMm":
        message = explained("asarray", "numbers", f"{type(x).__name__} of {array.dtype}", "convert it to numbers first")
        raise NoNumbersError(message)
    if dtype is not None and array.dtype != dtype.np:
        array, copy = _of_numbers(x, array, dtype) if python_numbers else _converted(array, dtype), False
    return wrap(array_leaf(array, device, copy))


def _of_numbers(x: Any, array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Python numbers in a dtype, in which integers must fit. `array`: what NumPy makes of them by itself; of integers
    of more than 63 bits beside others, or beside floats, these are floats that lack digits."""
    if not dtype.is_integer or array.dtype.kind not in "iuf":
        return _converted(array, dtype)
    low, high = limits(dtype)
    got: object = None
    if array.dtype.kind != "f":
        got = next((int(v) for v in (array.min(initial=0), array.max(initial=0)) if not low <= v <= high), None)
    else:
        try:
            with np.errstate(invalid="raise"):
                array = np.asarray(x, dtype=dtype.np)
        except (OverflowError, ValueError, FloatingPointError) as error:
            got = error
    if got is not None:
        raise OverflowError(explained(dtype.name, f"integers from {low} to {high}", got, "use a wider dtype"))
    return array.astype(dtype.np)


def _converted(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """An array's elements in a dtype, as a cast on any device gives them."""
    if array.dtype.kind == "c" and dtype.kind not in "bc":
        raise _imaginary_lost("asarray", dtype)
    return cast_array(array, dtype)


def unmasked(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that isn't one of numpy.ma's with masked elements: what a mask hides must not come back."""
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        got = f"a masked array, {int(np.count_nonzero(np.ma.getmaskarray(array)))} of its {array.size} elements masked"
        fix = "pass x.filled(value), or x.data and x.mask and choose with lg.where"
        raise DTypeError(explained("asarray", "an array without masked elements", got, fix))
    return array


def _as_array(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, list | tuple):
        _refuse_masked(x)
    try:
        return np.asarray(x)
    except (ValueError, OverflowError) as error:  # rows of different lengths, numbers of more than 64 bits
        raise ShapeError(explained("asarray", "rows of one length, of numbers", error, "pad or convert them")) from None


def _refuse_masked(items: Sequence[Any]) -> None:
    for item in items:
        if isinstance(item, np.ndarray):
            unmasked(item)
        elif isinstance(item, list | tuple):
            _refuse_masked(item)


def _holds_tensors(items: Sequence[Any]) -> bool:
    return any(isinstance(i, TensorCore) or (isinstance(i, list | tuple) and _holds_tensors(i)) for i in items)


@RARE_COLLECTION
def _joined(items: Sequence[Any], dtype: DType | None) -> Tensor:
    """Nested sequences with tensors among them: stacked along a new first axis."""
    parts = [_joined(i, dtype) if isinstance(i, list | tuple) else as_tensor(i, dtype) for i in items]
    kinds = dict.fromkeys([(p._value.dtype, p._weak) for p in parts])
    joined = promote_arrays(*kinds)
    if len(kinds) == 1 and (joined, False) in kinds:  # thousands are alike
        return wrap(ops.stacked([p._value for p in parts], 0))
    return wrap(ops.stacked([cast_operand(part, joined) for part in parts], 0))


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` with elements of `dtype`, strong."""
    value = x._value
    if value.dtype is dtype:
        return wrap(value) if x._weak else x
    if x._weak and dtype.is_integer:
        _require_of_python(value, dtype)
    return wrap(cast_value(value, dtype))


def cast_value(value: Value, dtype: DType) -> Value:
    """A graph value with elements of `dtype`; a constant stays a constant."""
    if value.dtype is dtype:
        return value
    constant_of = attrs_of_const(value)
    if constant_of is not None and dtype.kind in "fc" and value.dtype.kind in "biuf":
        return constant(float(constant_of["value"]), TensorType(value.shape, dtype))
    if value.dtype.kind == "c" and dtype.kind not in "bc":
        raise _imaginary_lost("astype", dtype)
    return ops.cast(value, dtype)


def open_integer(x: Any) -> int | None:
    """The number where x is a Python int, or a tensor that stands for one and whose dtype is open still."""
    if type(x) is int:
        return x
    if not isinstance(x, TensorCore) or not x._weak or x._value.dtype is not int64:
        return None
    number = known_number(x._value)
    return number if type(number) is int else None


def cast_operand(x: TensorCore, dtype: DType) -> Value:
    """The value of an operand in the dtype that all of them promote to; OverflowError where it is a Python integer
    that this one can't hold, or a loop's index that grows beyond it. Of what Python would compute of arguments of a
    compiled function the calls check it."""
    if not x._weak or x._value.dtype is not int64:
        if x._weak and dtype.is_integer:
            _require_of_python(x._value, dtype)
        return cast_value(x._value, dtype)
    narrow = dtype.is_integer and dtype is not int64
    number = open_integer(x)
    if number is not None:
        return constant(number, TensorType(x._value.shape, dtype)) if narrow else cast_value(x._value, dtype)
    if narrow:
        for end in _ends(x._value):
            _checked_integer(end, dtype)
    require(x._value, *limits(dtype if narrow else int64))
    return cast_value(x._value, dtype)


def _ends(value: Value) -> tuple[int, ...]:
    """The smallest and the largest number of a loop's index, the number of one that has been computed."""
    value = outermost(value)
    if isinstance(value, Leaf) and not value.shape:
        return (int(get_device(value.buffer.device).get(value.buffer)),)
    return noted(value)


def _require_of_python(value: Value, dtype: DType) -> None:
    """Callers of the function being traced check that a number of theirs, without its fraction, is one of the dtype."""
    whole = value if value.dtype.kind != "f" else ops.cast(value, int64)
    if whole.dtype is int64:
        require(whole, *limits(dtype))


def broadcast_value(value: Value, shape: tuple[int, ...]) -> Value:
    """NumPy's broadcasting of one value to `shape`."""
    if value.shape == shape:
        return value
    constant_of = attrs_of_const(value)
    if constant_of is not None:
        attrs = {"value": constant_of["value"], "type": TensorType(shape, value.dtype)}
        return emit("const", (), attrs)[0]
    if (number := complex_constant(value)) is not None:
        return constant(number, TensorType(shape, value.dtype))
    first = len(shape) - len(value.shape)
    return emit("broadcast", (value,), {"shape": shape, "dims": tuple(range(first, len(shape)))})[0]


def requested_dtype(dtype: Any) -> DType | None:
    """The dtype a caller asked for, None where it didn't."""
    return None if dtype is None else as_dtype(dtype)


def tracing() -> bool:
    """Whether a function is being traced now."""
    return current_scope() is not None


def _imaginary_lost(operation: str, dtype: DType) -> DTypeError:
    fix = "take .real, or lg.abs: a cast would drop the imaginary part"
    return DTypeError(explained(operation, "a complex dtype or bool for complex elements", dtype, fix))
