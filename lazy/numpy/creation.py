"""New tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, explained
from loopgrad.graph.python_numbers import stands_for_number
from loopgrad.graph.types import DType, TensorType, int64
from loopgrad.lazy.numpy.movement import broadcast_to, reshape, stack, tril
from loopgrad.lazy.tensor.config import default_dtype
from loopgrad.lazy.tensor.core import (
    ArrayLike,
    Scalar,
    TensorCore,
    as_tensor,
    cast,
    cast_operand,
    constant,
    copied,
    from_data,
    is_scalar,
    requested_dtype,
    tracing,
    unmasked,
    wrap,
)
from loopgrad.lazy.tensor.evaluation import to_device, to_numpy
from loopgrad.lazy.tensor.exchange import from_gpu, from_host, placed
from loopgrad.lazy.tensor.operands import normal_shape, positions, whole_number
from loopgrad.lazy.tensor.promotion import as_dtype, scalar_dtype
from loopgrad.lazy.tensor.repeated_calls import repeated
from loopgrad.lazy.tensor.storage import as_array, is_number, whole
from loopgrad.runtime.devices import get_device

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

MOST_AXES: Final = 64  # of an array of NumPy's
PUBLIC: Final = (
    "arange array asarray asanyarray=asarray ascontiguousarray=asarray astype copy "
    "empty empty_like eye from_dlpack fromfunction full full_like identity "
    "indices ones ones_like tri zeros zeros_like"
)


Order: TypeAlias = 'Literal["C", "F", "A", "K"] | None'


def _check_order(order: Any) -> None:
    if order not in ("C", "F", "A", "K", None):
        expected = "order 'C', 'F', 'A' or 'K', which changes nothing: tensors lie row by row"
        raise ValueError(explained("order", expected, repr(order), "leave it out"))


@repeated
def asarray(
    obj: Any, /, dtype: Any = None, order: Order = None, *, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor of `obj`: a tensor, NumPy array, number, nested sequence, or anything with DLPack.

    Of a tensor it is another name for the same memory, unless the elements must be converted or moved (`copy=True`:
    always a copy). Arrays of NumPy's are copied, because they may be written to before a lazy result is computed;
    `copy=False` shares the memory, and then the caller must not write to it again. An array on a GPU stays there.
    ValueError where `copy=False` and a copy is needed, BufferError where it is one of what DLPack hands over.

    Shape and dtype are those of `obj`: Python ints give int64, Python floats the default float dtype. Raises DTypeError
    for what isn't numeric, ShapeError for rows of different lengths.

    >>> lg.asarray([[1, 2], [3, 4]], dtype=lg.float32)
    Tensor([[1., 2.],
            [3., 4.]], dtype=float32)
    """
    wanted = requested_dtype(dtype)
    if order is not None:
        _check_order(order)
    if isinstance(obj, TensorCore):
        t = as_tensor(obj)
        number = wanted is None and t._weak and stands_for_number(t._value)  # of which an array has a dtype of its own
        return _of_tensor("asarray", t, t._value.dtype if number else wanted, device, copy)
    if is_scalar(obj) and (type(obj) is not int or tracing()):
        _refuse_copy("asarray", copy, "a number")
        tensor = as_array(wrap(constant(obj, TensorType((), wanted or scalar_dtype(obj)))))
        return tensor if device is None else to_device(tensor, device)
    if type(obj) is int:  # data: as a constant, an int that counts upwards would be a new program each time
        _refuse_copy("asarray", copy, "a number")
        constant(obj, TensorType((), wanted or int64))  # refuses what doesn't fit
        obj = np.asarray(obj, dtype=(wanted or int64).np)
    if not isinstance(obj, np.ndarray | np.generic | list | tuple):
        if (there := from_gpu(obj, copy is not False)) is not None:
            tensor = there if wanted is None else cast(there, wanted)
            return as_array(placed(tensor, device, copy))
        if hasattr(obj, "__dlpack__"):
            obj = from_host(obj, copy)
    if not isinstance(obj, np.ndarray):
        _refuse_copy("asarray", copy, type(obj).__name__)
    elif wanted is not None and wanted.np != obj.dtype:
        _refuse_copy("asarray", copy, f"an array of {obj.dtype}")
    return as_array(from_data(obj, wanted, device, copy=copy is not False))


def _of_tensor(op: str, x: Tensor, dtype: DType | None, device: str | None, copy: bool | None) -> Tensor:
    """x itself as another handle, or a copy where one is asked for or needed."""
    converts = dtype is not None and dtype is not x._value.dtype
    moves = device is not None and get_device(device).name != x.device
    if converts or moves or is_number(x):
        _refuse_copy(op, copy, f"a tensor {x._value.type} on {x.device}")
    elif not copy:
        return whole(x)
    tensor = copied(x) if dtype is None else copied(cast(x, dtype))
    return as_array(tensor if device is None or not moves else to_device(tensor, device))


def _refuse_copy(op: str, copy: bool | None, got: str) -> None:
    if copy is False:
        fix = "leave copy=False out"
        raise ValueError(explained(op, "what needn't be copied or converted where copy=False", got, fix))


def array(
    obj: Any,
    /,
    dtype: Any = None,
    *,
    device: str | None = None,
    copy: bool | None = True,
    order: Order = "K",
    ndmin: int = 0,
) -> Tensor:
    """`asarray`, with memory of its own unless told otherwise, and new axes in front until there are `ndmin`.

    Shapes, dtypes and errors are those of `asarray`.

    >>> lg.array([1.5, 2.5])
    Tensor([1.5, 2.5], dtype=float64)
    """
    made = asarray(obj, dtype, order, device=device, copy=copy)
    least, rank = whole_number("array", "a number of axes as ndmin", ndmin), len(made._value.shape)
    if least > MOST_AXES:
        raise ValueError(explained("array", f"an ndmin of at most {MOST_AXES} axes, as NumPy has", least, "pass less"))
    return reshape(made, (1,) * (least - rank) + made._value.shape) if least > rank else made


@repeated
def astype(x: ArrayLike, /, dtype: Any, *, copy: bool = True, device: str | None = None) -> Tensor:
    """The elements converted to `dtype`, on `device` where one is named; the shape stays.

    A float becomes an integer by dropping its fraction, NaN 0, and what the dtype can't hold its nearest end.
    `copy=False` shares the memory where the dtype is that already.

    >>> lg.astype(lg.asarray([1.9, -1.9, 300.0]), lg.int8)
    Tensor([  1,  -1, 127], dtype=int8)
    """
    t, wanted = as_tensor(x), as_dtype(dtype)
    if device is not None and get_device(device).name != t.device:
        return as_array(to_device(cast(t, wanted), device))
    if not copy and wanted is t._value.dtype:
        return whole(t)
    result = cast(t, wanted)
    if result is t:
        result = copied(t)
    return result if is_number(t) else as_array(result)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor of any object that exports DLPack.

    Memory of a GPU is shared, unless `copy=True`: it must not be written to again. Memory of the host is copied, unless
    `copy=False`. A tensor's is shared, as by `asarray`.

    Shape and dtype are those of `x`. Raises DTypeError for an object without `__dlpack__`, BufferError for a dtype that
    tensors haven't, for memory of a GPU that isn't dense, and for memory of devices that tensors can't be on.

    >>> lg.from_dlpack(np.arange(3))
    Tensor([0, 1, 2], dtype=int64)
    """
    if isinstance(x, TensorCore):
        return _of_tensor("from_dlpack", as_tensor(x), None, device, copy)
    if not hasattr(x, "__dlpack__"):
        fix = "use lg.asarray for numbers and sequences"
        raise DTypeError(explained("from_dlpack", "an array that exports DLPack", type(x).__name__, fix))
    if (there := from_gpu(x, copy)) is not None:
        return as_array(placed(there, device, copy))
    array = from_host(unmasked(x) if isinstance(x, np.ndarray) else x, copy)
    return as_array(from_data(array, None, device, copy=copy is not False))


@repeated
def full(
    shape: Any, fill_value: ArrayLike, dtype: Any = None, order: Order = "C", *, device: str | None = None
) -> Tensor:
    """Every element is `fill_value`, which is broadcast to `shape` (an int or a tuple of ints).

    The dtype is that of `fill_value` unless given. Raises ShapeError where it doesn't broadcast, OverflowError for a
    Python int that the dtype can't hold.

    >>> lg.full((2, 2), 7)
    Tensor([[7, 7],
            [7, 7]], dtype=int64)
    """
    _check_order(order)
    target = normal_shape("full", shape)
    wanted = requested_dtype(dtype)
    if is_scalar(fill_value):
        scalar: Scalar = fill_value  # type: ignore[assignment]
        if wanted is not None and wanted.kind in "iuf" and scalar_dtype(scalar).kind == "c":
            raise DTypeError(explained("full", f"a real number for {wanted}", scalar, "take .real, or a complex dtype"))
        result = wrap(constant(scalar, TensorType(target, wanted or scalar_dtype(scalar))))
    else:
        fill = as_tensor(fill_value)
        fill = wrap(fill._value if wanted is None else cast_operand(fill, wanted))
        result = copied(broadcast_to(fill, target))
    return as_array(result if device is None else to_device(result, device))


@repeated
def zeros(shape: Any, dtype: Any = None, order: Order = "C", *, device: str | None = None) -> Tensor:
    """Zeros of `shape`, of the default float dtype unless given.

    >>> lg.zeros((2, 3), dtype=lg.int32)
    Tensor([[0, 0, 0],
            [0, 0, 0]], dtype=int32)
    """
    return full(shape, 0, default_dtype() if dtype is None else dtype, order, device=device)


@repeated
def ones(shape: Any, dtype: Any = None, order: Order = "C", *, device: str | None = None) -> Tensor:
    """Ones of `shape`, of the default float dtype unless given.

    >>> lg.ones(3)
    Tensor([1., 1., 1.], dtype=float64)
    """
    return full(shape, 1, default_dtype() if dtype is None else dtype, order, device=device)


@repeated
def empty(shape: Any, dtype: Any = None, order: Order = "C", *, device: str | None = None) -> Tensor:
    """Zeros of `shape`, of the default float dtype unless given: no tensor has elements that aren't defined.

    >>> lg.empty(2)
    Tensor([0., 0.], dtype=float64)
    """
    return zeros(shape, dtype, order, device=device)


@repeated
def full_like(
    x: ArrayLike,
    /,
    fill_value: ArrayLike,
    dtype: Any = None,
    order: Order = "K",
    *,
    device: str | None = None,
    shape: Any = None,
) -> Tensor:
    """`full` with the shape, and unless given the dtype, of `x`; with another `shape` where one is given.

    >>> lg.full_like(lg.asarray([1, 2]), 5)
    Tensor([5, 5], dtype=int64)
    """
    t = as_tensor(x)
    extents = t._value.shape if shape is None else shape
    return full(extents, fill_value, t._value.dtype if dtype is None else dtype, order, device=device)


@repeated
def zeros_like(
    x: ArrayLike, /, dtype: Any = None, order: Order = "K", *, device: str | None = None, shape: Any = None
) -> Tensor:
    """`zeros` with the shape, and unless given the dtype, of `x`; with another `shape` where one is given.

    >>> lg.zeros_like(lg.asarray([1, 2]))
    Tensor([0, 0], dtype=int64)
    """
    return full_like(x, 0, dtype, order, device=device, shape=shape)


@repeated
def ones_like(
    x: ArrayLike, /, dtype: Any = None, order: Order = "K", *, device: str | None = None, shape: Any = None
) -> Tensor:
    """`ones` with the shape, and unless given the dtype, of `x`; with another `shape` where one is given.

    >>> lg.ones_like(lg.asarray([1, 2]), dtype=lg.float32)
    Tensor([1., 1.], dtype=float32)
    """
    return full_like(x, 1, dtype, order, device=device, shape=shape)


@repeated
def empty_like(
    x: ArrayLike, /, dtype: Any = None, order: Order = "K", *, device: str | None = None, shape: Any = None
) -> Tensor:
    """`empty` with the shape, and unless given the dtype, of `x`; with another `shape` where one is given.

    >>> lg.empty_like(lg.asarray([1, 2]))
    Tensor([0, 0], dtype=int64)
    """
    return zeros_like(x, dtype, order, device=device, shape=shape)


def _known_bound(bound: Any) -> Any:
    if isinstance(bound, np.generic | np.ndarray) and not bound.shape:
        return bound.item()  # of small integers, `stop - start` would wrap
    if not isinstance(bound, TensorCore):
        return bound
    if bound._value.scope is not None:
        fix = "the length must be known while tracing: name it in static_argnums, or loop with lg.fori_loop"
        raise DTypeError(explained("arange", "Python numbers", "a tensor", fix))
    return to_numpy(bound, "arange").item()


@repeated
def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """start, start + step, ... below `stop` (one argument: 0 .. start); a vector.

    int64 of ints, the default float dtype of floats, unless given. Bounds decide the shape, so tensors among them are
    evaluated: raises DTypeError for those of a function that is being traced, ValueError for NaN, infinities and a step
    of 0.

    >>> lg.arange(3), lg.arange(1.0, 0.0, -0.25)
    (Tensor([0, 1, 2], dtype=int64), Tensor([1.  , 0.75, 0.5 , 0.25], dtype=float64))
    """
    if stop is None:
        start, stop = 0, start
    start, stop, step = [_known_bound(b) for b in (start, stop, step)]
    for bound in (start, stop, step):
        if not math.isfinite(bound):
            raise ValueError(explained("arange", "finite numbers", bound, "the length must be known"))
    if step == 0:
        raise ValueError(explained("arange", "a step other than 0", 0, "pass a step"))
    whole = all(isinstance(b, int) for b in (start, stop, step))
    wanted: DType = requested_dtype(dtype) or (int64 if whole else default_dtype())
    length = len(range(int(start), int(stop), int(step))) if whole else max(math.ceil((stop - start) / step), 0)
    counter = ops.iota(TensorType((length,), int64 if wanted.kind == "b" else wanted.part), 0)
    result = wrap(counter)
    if step != 1:
        result = wrap(ops.mul(counter, step))
    if start != 0:
        result = wrap(ops.add(result._value, start))
    result = cast(result, wanted)
    return result if device is None else to_device(result, device)


@repeated
def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, order: Order = "C", *, device: str | None = None
) -> Tensor:
    """Ones on diagonal `k`, zeros elsewhere: shape (N, M), square unless told.

    The default float dtype unless given.

    >>> lg.eye(2, 3, k=1)
    Tensor([[0., 1., 0.],
            [0., 0., 1.]], dtype=float64)
    """
    _check_order(order)
    shape = normal_shape("eye", (N, N if M is None else M))
    wanted: DType = requested_dtype(dtype) or default_dtype()
    type = TensorType(shape, int64)
    offset = min(max(k, -shape[0]), shape[1])  # beyond the corners there is none
    on_diagonal = ops.eq(ops.iota(type, 1), ops.add(ops.iota(type, 0), offset))
    result = cast(wrap(on_diagonal), wanted)
    return result if device is None else to_device(result, device)


@repeated
def identity(n: int, dtype: Any = None) -> Tensor:
    """The identity matrix of shape (n, n), of the default float dtype unless given.

    >>> lg.identity(2)
    Tensor([[1., 0.],
            [0., 1.]], dtype=float64)
    """
    return eye(n, dtype=dtype)


@repeated
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """Ones at and below diagonal `k`, zeros above: shape (N, M), square unless told.

    The default float dtype unless given.

    >>> lg.tri(2, 3)
    Tensor([[1., 0., 0.],
            [1., 1., 0.]], dtype=float64)
    """
    return tril(ones((N, N if M is None else M), dtype=dtype), k=k)


@repeated
def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The index of every element along each axis, stacked: shape (rank, *dimensions), int64 unless given.

    With `sparse` a tuple, in which the other axes have extent 1.

    >>> lg.indices((2, 2))[1]
    Tensor([[0, 1],
            [0, 1]], dtype=int64)
    """
    shape = normal_shape("indices", dimensions)
    wanted: DType = requested_dtype(dtype) or int64
    if sparse:
        open_shapes = [tuple([n if d == a else 1 for d, n in enumerate(shape)]) for a in range(len(shape))]
        return tuple([cast(wrap(positions(s, d)), wanted) for d, s in enumerate(open_shapes)])
    if not shape:
        return zeros((0,), dtype=wanted)
    return stack([cast(wrap(positions(shape, d)), wanted) for d in range(len(shape))])


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = None, **kwargs: Any) -> Any:
    """`function` called once, with the index of every element along each axis as tensors of that shape, and `kwargs`.

    The indices are of the default float dtype unless given; the result is what `function` returns.

    >>> lg.fromfunction(lambda i, j: 10 * i + j, (2, 2), dtype=lg.int64)
    Tensor([[ 0,  1],
            [10, 11]], dtype=int64)
    """
    wanted: DType = requested_dtype(dtype) or default_dtype()
    extents = normal_shape("fromfunction", shape)
    return function(*[cast(wrap(positions(extents, d)), wanted) for d in range(len(extents))], **kwargs)


@repeated
def copy(x: ArrayLike, /, order: Order = "K") -> Tensor:
    """The same elements, shape and dtype in memory of their own: writing to one leaves the other.

    >>> x = lg.zeros(2)
    >>> y = lg.copy(x)
    >>> y[0] = 1.0
    >>> x, y
    (Tensor([0., 0.], dtype=float64), Tensor([1., 0.], dtype=float64))
    """
    _check_order(order)
    return as_array(copied(as_tensor(x)))
