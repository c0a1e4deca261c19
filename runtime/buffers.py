"""Buffers: the elements of evaluated tensors, where they live.

A `Buffer` is dense, row-major and never written again once a tensor points at it, so two tensors
may share one. Devices with host memory keep a read-only NumPy array in `array`; a device with its
own memory subclasses Buffer and copies in `Device.get`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from loopgrad.graph.errors import DTypeError, ShapeError
from loopgrad.graph.types import DTYPES, DType, TensorType

_first_byte, _address = ctypes.c_char.from_buffer, ctypes.addressof
_DTYPE_OF: dict[np.dtype[Any], DType] = {}


def dtype_of(dtype: np.dtype[Any]) -> DType:
    """The element type of a NumPy dtype; DTypeError where there is none."""
    known = _DTYPE_OF.get(dtype)
    if known is None:
        if dtype.name not in DTYPES:
            raise DTypeError(
                f"expected one of the dtypes {', '.join(DTYPES)}, got an array of {dtype}; convert it first"
            )
        known = _DTYPE_OF[dtype] = DTYPES[dtype.name]
    return known


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Where the first element of a dense array lies; by another way than NumPy's, of ten times the cost, where it can
    be exported as writable memory."""
    if array.flags.writeable and array.size and array.dtype.kind != "V":  # bfloat16's
        return _address(_first_byte(array))  # type: ignore[arg-type]  # an array exports its memory
    address: int = array.ctypes.data
    return address


class Buffer:
    """The elements of one tensor on one device."""

    __slots__ = ("__weakref__", "_type", "address", "array", "device")

    def __init__(self, array: np.ndarray[Any, Any], device: str, type: TensorType | None = None) -> None:
        self.array = array
        self.device = device
        self._type = type
        self.address: int | None = None  # of the first element, once somebody asked

    @property
    def type(self) -> TensorType:
        if self._type is None:
            self._type = TensorType(self.array.shape, dtype_of(self.array.dtype))
        return self._type

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def part(self) -> str:
        """What the process has of the elements, where these are on several; empty where it has all."""
        return ""

    def retyped(self, type: TensorType) -> Buffer:
        """The same memory as an array of another shape and dtype, of as many bytes: complex numbers or pairs."""
        other = Buffer(np.ndarray(type.shape, type.dtype.np, self.array), self.device, type)
        other.address = self.locate()
        return other

    def locate(self) -> int:
        """The address of the first element in host memory."""
        if self.address is None:
            self.address = address_of(self.array)
        return self.address

    def __repr__(self) -> str:
        return f"<Buffer {self.type} on {self.device}>"


def host_buffer(array: np.ndarray[Any, Any], device: str, copy: bool = True) -> Buffer:
    """A Buffer of the array's elements in native byte order, row-major and read-only.

    With `copy=False` the memory is shared where its layout allows, and the caller promises not to
    write to it again.
    """
    if copy or type(array) is not np.ndarray or not array.dtype.isnative or not array.flags.c_contiguous:
        native = array.dtype.newbyteorder("=")
        array = np.array(array, dtype=native, order="C", copy=True if copy else None)
    dense = array.view(np.ndarray)
    dense.flags.writeable = False
    return Buffer(dense, device, TensorType(dense.shape, dtype_of(dense.dtype)))


def equal_as_one(types: Iterable[TensorType]) -> tuple[TensorType, ...]:
    """The same types, of which equal ones are one object: a buffer that was looked at once has that one."""
    known: dict[TensorType, TensorType] = {}
    return tuple([known.setdefault(type, type) for type in types])


def check_inputs(types: Sequence[TensorType], buffers: Sequence[Buffer], device: str) -> None:
    """Refuse buffers whose number, shape, dtype or device is not what was compiled. Those that pass have the very
    types given from then on, which the next call sees at once."""
    if len(types) != len(buffers):
        raise ShapeError(f"expected {len(types)} inputs, got {len(buffers)}; pass as many as were captured")
    for expected, buffer in zip(types, buffers):  # noqa: B905  # checked, and half the time
        if buffer._type is not expected or buffer.device != device:
            break
    else:
        return
    for position, (expected, buffer) in enumerate(zip(types, buffers, strict=True)):
        if buffer.device != device:
            raise ValueError(f"expected input {position} on {device}, got it on {buffer.device}; move it there first")
        if buffer.type.shape != expected.shape:
            raise ShapeError(
                f"expected input {position} of shape {expected.shape}, got {buffer.type.shape}; capture again for "
                "another shape"
            )
        if buffer.type.dtype is not expected.dtype:
            raise DTypeError(
                f"expected input {position} of dtype {expected.dtype}, got {buffer.type.dtype}; cast it first"
            )
        buffer._type = expected
