"""Arguments of a compiled function: what tells their kinds apart, and what the function writes to them.

The program returns the new elements of the arguments that the function writes to, after its results; here they are
written to the caller's tensors (and with them to all that shares their memory) and NumPy arrays, as the function
does when it is called without `lg.compile`. Numbers are not written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph.build import Scope, current_scope
from loopgrad.graph.errors import explained
from loopgrad.graph.nodes import Value
from loopgrad.graph.python_numbers import Requirement, require, requirements
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.tensor.core import PYTHON_SCALARS, TensorCore, TensorLeaf, is_scalar, wrap
from loopgrad.lazy.tensor.promotion import scalar_dtype
from loopgrad.lazy.tensor.storage import as_array, check_writable, is_array_without_axes, is_number, share_memory, write
from loopgrad.runtime.buffers import Buffer, dtype_of
from loopgrad.runtime.devices import get_device

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor


ARRAY: Final = "array"  # in a key: not a number, though it has no axes


def kind_of_input(x: Any) -> Any:
    """The part of the key that an input contributes."""
    if is_array_without_axes(x):
        return (type_of(x), ARRAY, True) if is_weak(x) else (type_of(x), ARRAY)
    if isinstance(x, TensorCore):
        return (x._value.type, True) if x._weak else x._value.type
    return type(x) if type(x) in PYTHON_SCALARS else type_of(x)


def type_of(x: Any) -> TensorType:
    """Shape and dtype of an input."""
    if isinstance(x, TensorCore):
        type_ = x._value.type
        assert isinstance(type_, TensorType)
        return type_
    if type(x) in PYTHON_SCALARS:
        return TensorType((), scalar_dtype(x))
    array = np.asarray(x)
    return TensorType(array.shape, dtype_of(array.dtype))


def is_weak(x: Any) -> bool:
    """Whether an input's dtype gives way to arrays'."""
    return x._weak if isinstance(x, TensorCore) else type(x) in PYTHON_SCALARS


def argument(x: Any, value: Value, weak: bool) -> Tensor:
    """What the function is called with in place of an argument."""
    tensor = wrap(value, weak)
    if weak and isinstance(value.scope, Scope):
        value.scope.numbers.add(value)
    return as_array(tensor) if is_array_without_axes(x) else tensor


def _is_number(x: Any) -> bool:
    return is_scalar(x) or isinstance(x, np.generic) or (isinstance(x, TensorCore) and is_number(x))


def check_required(leaves: Sequence[Any], required: Sequence[Requirement]) -> None:
    """OverflowError where what the function computes of Python ints among its arguments, in Python if it is called by
    itself, is none of low, ..., high: elements of a dtype that can't hold others meet it."""
    for number, low, high, text in required:
        found = number(leaves)
        if type(found) is not int and isinstance(found, TensorCore):
            found = int(found)  # type: ignore[call-overload]  # computed by a program before this one
        if type(found) is float or not low <= found <= high:
            expected, fix = f"an integer from {low} to {high} {text}", "use a wider dtype for the arrays that meet it"
            raise OverflowError(explained("compile", expected, found, fix))


def number_requirements(results: Sequence[Tensor], arguments: Sequence[Value]) -> tuple[Requirement, ...]:
    """What `check_required` is to check for the function being traced, whose results are ints as well."""
    require_results(results)
    scope = current_scope()
    assert scope is not None
    return requirements(scope, arguments)


def require_results(results: Sequence[Tensor]) -> None:
    """Note that ints among results, which Python would compute, must be int64's."""
    for t in results:
        if t._weak and t._value.dtype is int64:
            require(t._value, *limits(int64))


def weak_ones(results: Sequence[Tensor]) -> tuple[bool, ...]:
    """Which results' dtypes give way to arrays'; empty where none does."""
    weak = tuple([t._weak for t in results])
    return weak if any(weak) else ()


def writes(leaves: Sequence[Any], given: Sequence[Tensor], values: Sequence[Value]) -> tuple[int, ...]:
    """The positions of arguments whose stand-ins (`given`, made of `values`) have been written to."""
    found = [i for i, (t, v) in enumerate(zip(given, values, strict=True)) if t._value is not v]
    return tuple([i for i in found if not _is_number(leaves[i])])


def check_written(leaves: Sequence[Any], written: Sequence[int]) -> None:
    """ValueError where an argument that the function writes to is read-only, another library's, or shares memory with
    another argument."""
    for i in written:
        x = leaves[i]
        if isinstance(x, TensorCore):
            check_writable("compile", x)
        elif not isinstance(x, np.ndarray) or not x.flags.writeable:
            got = f"{'a read-only array' if isinstance(x, np.ndarray) else type(x).__name__} at argument {i}"
            raise ValueError(explained("compile", "arguments that can be written to", got, "pass lg.asarray(x)"))
    for i, j in combinations(range(len(leaves)), 2):
        if (i in written or j in written) and _share(leaves[i], leaves[j]):
            expected = "arguments that share no memory, as the function writes to one of them"
            got = f"arguments {i} and {j} that do"
            raise ValueError(explained("compile", expected, got, "pass a copy of one, x.copy()"))


def _share(a: Any, b: Any) -> bool:
    if isinstance(a, TensorCore) and isinstance(b, TensorCore):
        return share_memory(a, b)
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def write_back(leaves: Sequence[Any], written: Sequence[int], buffers: Sequence[Buffer], committed: bool) -> None:
    """The new elements, written to the caller's arguments."""
    for i, buffer in zip(written, buffers, strict=True):
        x = leaves[i]
        if isinstance(x, np.ndarray):
            np.copyto(x, get_device(buffer.device).get(buffer))
        else:
            write(x, TensorLeaf(buffer.type, buffer, computed=True, committed=committed))
