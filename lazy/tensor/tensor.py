"""`Tensor`: an array whose elements are computed when somebody asks for them.

Operators build graph nodes. Asking for elements (`np.asarray`, `float`, `print`, `tolist`, DLPack)
evaluates; inside a function that is being traced it raises and names the user's line. `x[i] = v` and
`x += y` write to the array: other names of it and views (`x[0]`, `x.T`) see that, as in NumPy, and
what was computed from the elements before stays as it is.

Circle: the class has the array functions as operators and methods, and the functions, in `lazy/numpy/`, `lazy/loops/`
and `lazy/tensor/`, say in annotations that they give tensors. When loaded they know `TensorCore` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import DTypeError, IndexRangeError, ShapeError, explained
from loopgrad.graph.nodes import Leaf
from loopgrad.graph.types import DType, TensorType
from loopgrad.lazy.numpy import (
    complex_functions,
    elementwise,
    found_positions,
    matrix_products,
    movement,
    numpy_protocols,
    rearranging,
    reduction,
    repetition,
    running_totals,
    sorting,
    special_values,
    text,
    writes,
)
from loopgrad.lazy.numpy.at_updates import At
from loopgrad.lazy.numpy.constants import array_api_versions
from loopgrad.lazy.numpy.creation import asarray, astype
from loopgrad.lazy.numpy.flat import flat
from loopgrad.lazy.numpy.not_offered import TENSOR_ABSENT, AbsentAttribute
from loopgrad.lazy.numpy.taking import take
from loopgrad.lazy.numpy.views_and_assignment import set_item, subscript
from loopgrad.lazy.tensor import exchange
from loopgrad.lazy.tensor.core import ArrayLike, copied
from loopgrad.lazy.tensor.errors import traced_value_error
from loopgrad.lazy.tensor.evaluation import device_of, part_of, to_device, to_numpy
from loopgrad.lazy.tensor.operators import Operators, unary_operator
from loopgrad.lazy.tensor.outputs import Out, assign
from loopgrad.lazy.tensor.promotion import allow_cast, as_dtype
from loopgrad.lazy.tensor.storage import as_array, viewed, whole
from loopgrad.lazy.tensor.view_steps import Reinterpreted

PUBLIC: Final = "Tensor"


_REAL: Final = unary_operator(complex_functions.real)
_IMAG: Final = unary_operator(complex_functions.imag)


class Tensor(Operators):
    """A dense array of one dtype. Make one with `lg.asarray` or a creation function."""

    __slots__ = ()
    __array_priority__ = 1000
    __hash__ = None  # == compares elements

    def __new__(cls, *_: Any, **__: Any) -> Tensor:
        raise TypeError("expected lg.asarray(...) or a creation function, got a call of Tensor; use one of those")

    # ---- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent of every axis."""
        return self._value.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        raise AttributeError(explained("shape", "no assignment to it", repr(shape), "write x = x.reshape(shape)"))

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self._value.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._value.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._type.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._type.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._type.dtype.itemsize

    @property
    def device(self) -> str:
        """Where the elements are, or will be computed."""
        return device_of(self)

    @property
    def _type(self) -> TensorType:
        type = self._value.type
        assert isinstance(type, TensorType)
        return type

    def to_device(self, device: str, /, *, stream: Any = None) -> Tensor:
        """`lg.to_device`: this tensor on another device, with its shape, dtype and errors.

        `stream` is taken for the array API standard's sake: who reads the result waits for the copy on every stream.

        >>> lg.ones(2).to_device("interpreter").device
        'interpreter'
        """
        return to_device(self, device)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The module that holds the array functions; ValueError for a version of the array API standard that it doesn't
        follow."""
        import loopgrad  # late: the package imports this module

        if api_version is not None and api_version not in array_api_versions:
            fix = "leave the version out"
            expected = f"a version among {', '.join(array_api_versions)}"
            raise ValueError(explained("__array_namespace__", expected, repr(api_version), fix))

        return loopgrad

    # ---- elements

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a read-only NumPy array of the tensor's shape and dtype; evaluates.

        Raises TracedValueError while a function is traced or a derivative through the tensor is taken.

        >>> lg.arange(3).numpy()
        array([0, 1, 2])
        """
        return to_numpy(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = to_numpy(self)
        if dtype is None and copy is None:
            return array
        if dtype is not None and np.dtype(dtype) != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return numpy_protocols.call_ufunc(self.__array_namespace__(), ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return numpy_protocols.call_function(self.__array_namespace__(), function, args, kwargs)

    def item(self, *index: int) -> bool | int | float | complex:
        """The only element (or the one at `index`) as a Python number; evaluates.

        Raises ShapeError where there are more, IndexRangeError for an index out of range, TracedValueError as `numpy`
        does.

        >>> lg.sum(lg.ones(3)).item(), lg.arange(3).item(2)
        (3.0, 2)
        """
        array = to_numpy(self, "item")
        try:
            return array.item(*index)  # type: ignore[no-any-return]
        except ValueError:
            fix = "name the element, or use .tolist()"
            raise ShapeError(explained("item", "a tensor of one element", self._value.type, fix)) from None
        except IndexError as error:
            raise IndexRangeError(explained("item", f"an index into {self._value.type}", index, str(error))) from None

    def tolist(self) -> Any:
        """Nested lists of Python numbers, or one of shape (); evaluates. Raises TracedValueError as `numpy` does.

        >>> lg.ones((2, 1)).tolist()
        [[1.0], [1.0]]
        """
        return to_numpy(self, "tolist").tolist()

    def __bool__(self) -> bool:
        if self.size != 1 and self._value.scope is None:
            fix = "use .any() or .all(): the truth value of an array is ambiguous"
            raise ShapeError(explained("bool", "a tensor of one element", self._value.type, fix))
        return bool(to_numpy(self, "bool"))

    def __float__(self) -> float:
        type = self._type
        if type.dtype.is_float and not type.shape:
            return float(to_numpy(self, "float")[()])
        return float(self._real("float"))

    def __int__(self) -> int:
        return int(self._real("int"))

    def __complex__(self) -> complex:
        return complex(self._single("complex"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DTypeError(explained("index", "an integer tensor", self._value.type, "convert it with .astype"))
        return int(self._single("index"))

    def _real(self, purpose: str) -> Any:
        type = self._type
        if type.dtype.kind == "c":
            fix = "take .real, or complex(x)"
            raise DTypeError(explained(purpose, "a tensor of real numbers", type, fix))
        return self._single(purpose)

    def _single(self, purpose: str) -> Any:
        type = self._type
        if not type.shape:
            return to_numpy(self, purpose)[()]
        if type.size != 1:
            fix = "index or reduce it first"
            raise DTypeError(explained(purpose, "a tensor of one element", type, fix))
        return to_numpy(self, purpose).reshape(())[()]

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(explained("len", "a tensor with at least one axis", "a scalar", "use .size"))
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError(explained("iteration", "a tensor with at least one axis", "a scalar", "use the scalar"))
        return map(self.__getitem__, range(self.shape[0]))  # one by one, as rows may be written to meanwhile

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __dlpack__(
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """A DLPack capsule of the elements; evaluates. Whoever takes it must not write to it."""
        return exchange.to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return exchange.dlpack_device(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return exchange.cuda_interface(self)

    # ---- text

    def __repr__(self) -> str:
        if self._value.scope is not None:
            return f"Tensor({self._described()})"
        if part := part_of(self):
            return f"Tensor({part}, shape={self.shape}, dtype={self.dtype})"
        array = to_numpy(self, "text")
        body = np.array2string(array, separator=", ", prefix="Tensor(")
        return f"Tensor({body}, dtype={self.dtype})"

    def __str__(self) -> str:
        return self.__repr__() if self._value.scope is not None or part_of(self) else str(to_numpy(self, "text"))

    def __format__(self, spec: str) -> str:
        if self._value.scope is not None:
            return repr(self)
        return format(to_numpy(self, "text").item(), spec) if self.size == 1 and spec else format(str(self), spec)

    def _described(self) -> str:
        made_by = self._value.node
        origin = f"made at {made_by.loc}" if made_by is not None and made_by.loc else "an argument"
        return f"traced {self._value.type}, {origin}"

    def _repr_html_(self) -> str:
        from html import escape  # late: notebooks only

        state = "evaluated" if isinstance(self._value, Leaf) else "lazy"
        if self._value.scope is not None:
            return f"<code>Tensor({escape(self._described())})</code>"
        text = part_of(self) or escape(np.array2string(to_numpy(self, "text"), separator=", ", threshold=200))
        head = f"Tensor <b>{escape(str(self._value.type))}</b> on {escape(self.device)}, {state}"
        return f"<div><div>{head}</div><pre>{text}</pre></div>"

    # ---- subscripts

    __getitem__ = subscript

    def __setitem__(self, index: Any, values: ArrayLike) -> None:
        set_item(self, index, values)

    @property
    def at(self) -> At:
        """`x.at[index].set(v)`, add, multiply, min, max, ...: a new tensor of x's shape and dtype with elements
        updated.

        Updates that meet at one element are combined, of `set` the last one wins; an index that is data and out of
        range is dropped.

        >>> lg.zeros(3).at[lg.asarray([0, 2, 2])].add(1.0)
        Tensor([1., 0., 2.], dtype=float64)
        """
        return At(self)

    # ---- methods that are functions

    T = property(movement.transpose, doc="The axes reversed.")
    mT = property(movement.matrix_transpose, doc="The last two axes exchanged.")

    @property
    def real(self) -> Tensor:
        """The real parts, in the tensor's memory; `x.real = values` writes them."""
        return _REAL(self)

    @real.setter
    def real(self, values: ArrayLike) -> None:
        set_item(complex_functions.real(self), ..., values)

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, in the tensor's memory; of real numbers zeros. `x.imag = values` writes them."""
        return _IMAG(self)

    @imag.setter
    def imag(self, values: ArrayLike) -> None:
        set_item(complex_functions.imag(self), ..., values)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True, *,
        device: str | None = None,
    ) -> Tensor:  # fmt: skip
        """`lg.astype`: the elements converted to a dtype, in x's shape. Raises DTypeError where `casting` forbids that
        (`lg.can_cast`); `order` and `subok` change nothing.

        >>> lg.asarray([1.9, -1.9]).astype(lg.int64)
        Tensor([ 1, -1], dtype=int64)
        """
        allow_cast("astype", self._value.dtype, as_dtype(dtype), casting)
        return astype(self, dtype, copy=copy, device=device)

    def view(self, dtype: Any = None) -> Tensor:
        """The bits of the elements as elements of another dtype that is as wide: a view, of x's shape.

        Of one dtype it is another handle. Its derivative is 0 otherwise. Raises DTypeError for another width, bools and
        complex numbers.

        >>> lg.asarray([1.0, -0.0], dtype=lg.float32).view(lg.uint32)
        Tensor([1065353216, 2147483648], dtype=uint32)
        """
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        if wanted is self.dtype:
            return whole(self)
        return viewed(self, Reinterpreted(wanted), ops.bitcast(self._value, wanted))

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Tensor:
        """`lg.reshape`: the same elements in another shape, given as one tuple or as several ints.

        >>> lg.arange(4).reshape(2, 2)
        Tensor([[0, 1],
                [2, 3]], dtype=int64)
        """
        return movement.reshape(self, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)

    def transpose(self, *axes: Any) -> Tensor:
        """`lg.transpose`: the axes permuted (one tuple or several ints), or reversed.

        >>> lg.ones((2, 3, 4)).transpose(1, 0, 2).shape
        (3, 2, 4)
        """
        given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int | np.integer) else axes or None
        return movement.transpose(self, given)

    def copy(self, order: str = "C") -> Tensor:
        """The same elements, shape and dtype in memory of their own: writing to one leaves the other. `order`, in which
        NumPy's would lie, changes nothing.

        >>> x = lg.zeros(2)
        >>> y = x.copy()
        >>> y += 1.0
        >>> x, y
        (Tensor([0., 0.], dtype=float64), Tensor([1., 1.], dtype=float64))
        """
        return copied(self) if self._view is None else as_array(copied(self))

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.copy()

    def __reduce__(self) -> Any:
        if self._value.scope is not None:
            raise traced_value_error(self._value, "pickle")
        return asarray, (to_numpy(self, "pickle"),)

    def flatten(self, order: str = "C") -> Tensor:
        """A copy of all elements as a vector, row by row ("C") or column by column ("F"); raises ValueError for another
        order.

        >>> lg.asarray([[1, 2], [3, 4]]).flatten("F")
        Tensor([1, 3, 2, 4], dtype=int64)
        """
        return copied(movement.ravel(self, order))

    def sort(
        self, axis: int = -1, kind: str | None = None, order: None = None, *, descending: bool = False,
        stable: bool | None = True,
    ) -> None:  # fmt: skip
        """Sorts in place along an axis, as NumPy's method does; `lg.sort(x)` returns a sorted copy.

        >>> x = lg.asarray([3, 1, 2])
        >>> x.sort()
        >>> x
        Tensor([1, 2, 3], dtype=int64)
        """
        assign("sort", self, sorting.sort(self, axis, kind, order, descending=descending, stable=stable))

    def fill(self, value: ArrayLike) -> None:
        """Writes a number to every element.

        >>> x = lg.zeros(2)
        >>> x.fill(3.0)
        >>> x
        Tensor([3., 3.], dtype=float64)
        """
        set_item(self, ..., value)

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect", order: None = None) -> None:
        """`lg.partition` in place; shape and dtype stay.

        >>> x = lg.asarray([3, 1, 2])
        >>> x.partition(1)
        >>> x[1]
        Tensor(2, dtype=int64)
        """
        assign("partition", self, rearranging.partition(self, kth, axis, kind, order))

    def compress(self, condition: ArrayLike, axis: int | None = None, out: Out = None) -> Tensor:
        """`lg.compress`: the slices along an axis (None: of x raveled) for which the conditions hold.

        >>> lg.asarray([1, 2]).compress([False, True])
        Tensor([2], dtype=int64)
        """
        return found_positions.compress(condition, self, axis=axis, out=out)

    argpartition = rearranging.argpartition
    choose = rearranging.choose
    put = writes.put
    ravel = movement.ravel
    squeeze = movement.squeeze
    swapaxes = movement.swapaxes
    repeat = repetition.repeat
    sum = reduction.sum
    prod = reduction.prod
    mean = reduction.mean
    var = reduction.var
    std = reduction.std
    min = reduction.min
    max = reduction.max
    all = reduction.all
    any = reduction.any
    argmin = reduction.argmin
    argmax = reduction.argmax
    cumsum = running_totals.cumsum
    cumprod = running_totals.cumprod
    argsort = sorting.argsort
    clip = special_values.clip
    conj = conjugate = unary_operator(complex_functions.conj)
    round = elementwise.round
    dot = matrix_products.dot
    trace = matrix_products.trace
    diagonal = matrix_products.diagonal
    nonzero = found_positions.nonzero
    searchsorted = sorting.searchsorted
    take = take
    flat = flat
    tobytes = text.tobytes
    tofile = text.tofile

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in TENSOR_ABSENT]


for _name in TENSOR_ABSENT:
    setattr(Tensor, _name, AbsentAttribute(_name))
