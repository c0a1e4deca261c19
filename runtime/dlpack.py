"""DLPack (dmlc.github.io/dlpack): arrays of a GPU's memory to and from other libraries, without copies.

`exported` makes the capsule that `__dlpack__` returns; `imported` takes one that another library made. The
memory of a tensor is never written: consumers that know the read-only flag (version 1 of the protocol) are
told so, the others must leave it alone. Order between streams is kept by events of the device: work of the
consumer waits for ours, ours for the producer's; when the memory goes back, reuse comes after what the
consumer has started. Which devices can do so: those whose driver has a `StreamApi`.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, Final, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from loopgrad.graph.types import DTYPES, DType, TensorType
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import CUDA_ARRAYS, SHARED_KINDS, Device, get_device
from loopgrad.runtime.gpu.ledger import complete
from loopgrad.runtime.gpu.memory import Allocation, GpuBuffer

CPU: Final = 1
HOSTS: Final = (CPU, 3, 11, 13)  # memory that the host reads: its own, what CUDA and HIP pinned, what CUDA manages
KINDS: Final = {code: kind for kind, code in SHARED_KINDS.items()}
LEGACY_STREAM: Final = {"cuda": 1, "hip": 0}
PER_THREAD_STREAM: Final = 2  # CUDA's
NO_ORDER: Final = -1
ALIGNMENT: Final = 256  # what memory of our own has
READ_ONLY, IS_COPIED = 1, 2
VERSION: Final = (1, 0)
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
USED: Final = {PLAIN: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}  # kept: capsules point at them

_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT: Final = 4
Pair = tuple[int, int]


class DLDevice(ctypes.Structure):
    _fields_ = (("type", c_int32), ("index", c_int32))


class DLDataType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p), ("device", DLDevice), ("ndim", c_int32), ("dtype", DLDataType),
        ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    )  # fmt: skip


Deleter: Final = ctypes.CFUNCTYPE(None, c_void_p)


class DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", c_void_p), ("deleter", Deleter))


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", Deleter), ("flags", c_uint64),
        ("tensor", DLTensor),
    )  # fmt: skip


Managed = DLManagedTensor | DLManagedTensorVersioned
LAYOUTS: Final[dict[bytes, type[Managed]]] = {PLAIN: DLManagedTensor, VERSIONED: DLManagedTensorVersioned}


def _python(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of Python's C interface. Prototypes of our own: those of `ctypes.pythonapi` are shared."""
    return cast("Callable[..., Any]", ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi)))


_new_capsule = _python("PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, c_void_p)
_pointer = _python("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, c_char_p)
_is_named = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, c_char_p)
# a capsule that is being destroyed has no references: it is an address for these two
_dying_is_named = _python("PyCapsule_IsValid", ctypes.c_int, c_void_p, c_char_p)
_dying_pointer = _python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)
_keep_for_ever = _python("Py_IncRef", None, ctypes.py_object)


# ---- out


class _Export:
    """A managed tensor that a consumer may still use, and what it keeps alive."""

    def __init__(self, managed: Managed, kept: Sequence[Any], back: Callable[[], None]) -> None:
        self.managed, self.kept, self._back = managed, kept, back

    def release(self) -> None:
        with suppress(Exception):  # a lost device: nobody waits for the memory
            self._back()


_exports: dict[int, _Export] = {}  # by the address of the managed tensor


def _release(address: int | None) -> None:
    """A consumer is done; any thread may say so."""
    export = _exports.pop(address or 0, None)
    if export is not None:
        export.release()


def _discard(capsule: int) -> None:
    """A capsule goes; if nobody took what is in it, that goes too."""
    for name in LAYOUTS:
        if _dying_is_named(capsule, name):
            _release(_dying_pointer(capsule, name))


_release_callback: Final = Deleter(_release)
_discard_callback: Final = Deleter(_discard)


@atexit.register
def _leave_behind() -> None:
    """Consumers that outlive the interpreter find no deleter to call, and their memory in place."""
    for export in _exports.values():
        export.managed.deleter = Deleter()
        _keep_for_ever(export)


def pair_of(name: str) -> Pair:
    """What `__dlpack_device__` says for a device; memory of others than CUDA and HIP is exported by the host."""
    kind, _, index = name.partition(":")
    return (SHARED_KINDS[kind], int(index or 0)) if kind in SHARED_KINDS else (CPU, 0)


def exported(
    buffer: Buffer, *, stream: int | None = None, max_version: tuple[int, int] | None = None, copy: bool | None = None
) -> Any:
    """A capsule of a CUDA or HIP buffer; `copy` makes it memory of the consumer's own.

    `stream` is the consumer's, as an integer: what it does from now on waits for us. None is the legacy default
    stream, -1 asks for no order.
    """
    assert isinstance(buffer, GpuBuffer)
    device = get_device(buffer.device)
    consumer = _checked_stream(stream, device.kind)
    settle(buffer)
    if copy:
        buffer = _copied(buffer.allocation.address, buffer.type, device)
    if consumer != NO_ORDER:
        _order(device, _own_stream(device), consumer)
    versioned = max_version is not None and max_version[0] >= VERSION[0]
    name = VERSIONED if versioned else PLAIN
    managed = LAYOUTS[name]()
    if isinstance(managed, DLManagedTensorVersioned):
        managed.major, managed.minor = VERSION
        managed.flags = IS_COPIED if copy else READ_ONLY
    extents = _describe(managed.tensor, buffer, pair_of(buffer.device))
    managed.deleter = _release_callback
    address = ctypes.addressof(managed)
    _exports[address] = _Export(managed, (buffer, extents), lambda: _take_back(device, consumer))
    return _new_capsule(address, name, ctypes.cast(_discard_callback, c_void_p))


def _describe(tensor: DLTensor, buffer: GpuBuffer, device: Pair) -> Any:
    """Fill in the tensor; what comes back holds its extents and strides."""
    type_ = buffer.type
    rank = len(type_.shape)
    both = (c_int64 * max(2 * rank, 1))(*type_.shape, *_compact(type_.shape))
    tensor.data = buffer.allocation.address if type_.size else None
    tensor.device.type, tensor.device.index = device
    tensor.ndim = rank
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = *dtype_code(type_.dtype), 1
    tensor.shape = ctypes.cast(both, POINTER(c_int64))
    tensor.strides = ctypes.cast(ctypes.byref(both, 8 * rank), POINTER(c_int64))
    tensor.byte_offset = 0
    return both


def _take_back(device: Device, consumer: int) -> None:
    """Reuse comes after what the consumer has started. Its stream may be gone, unless it is a default one."""
    driver = _driver(device)
    with driver.lock:
        if device.kind == "cuda" and consumer in (LEGACY_STREAM["cuda"], PER_THREAD_STREAM):
            driver.api.order(consumer, driver.api.stream)
        else:
            driver.api.settle()


# ---- in


class Borrowed:
    """Memory of another library in the place of an `Allocation`; goes back when our work with it is done."""

    def __init__(self, device: Device, address: int, give_back: Callable[[], Any]) -> None:
        self._driver = _driver(device)
        self.address, self._give_back = address, give_back
        self.failure = None

    def __del__(self) -> None:
        with suppress(Exception), self._driver.lock:  # a lost device finishes nothing
            if not self._driver.api.idle():
                self._driver.api.synchronize()
        self._give_back()


def imported(x: Any, copy: bool | None = None) -> Buffer | None:
    """A buffer of what `x` exports, sharing its memory unless `copy`; None for memory of the host.

    Memory that isn't aligned as ours is copied, unless `copy` is False. BufferError where elements aren't dense
    in row-major order or have a dtype that no tensor has.
    """
    code, index = (int(v) for v in x.__dlpack_device__())
    if code not in KINDS:
        return None
    device = get_device(f"{KINDS[code]}:{index}")
    stream = _own_stream(device)
    try:
        capsule = x.__dlpack__(stream=stream, max_version=VERSION)
    except TypeError:  # from before version 1
        capsule = x.__dlpack__(stream=stream)
    tensor, give_back = _opened(capsule)
    try:
        dtype = _dtype_named(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
        _check_dense(shape, strides)
    except BaseException:
        give_back()
        raise
    address = (tensor.data or 0) + tensor.byte_offset
    return _adopted(device, address, TensorType(shape, dtype), give_back, copy)


def imported_interface(x: Any, copy: bool | None = None) -> Buffer:
    """A buffer of an object with `__cuda_array_interface__`, version 2 or 3, under the same rules."""
    given = x.__cuda_array_interface__
    if given.get("mask") is not None:
        raise BufferError("expected elements without a mask, got a masked CUDA array; fill its gaps first")
    dtype = _dtype_of_text(given["typestr"])
    shape, strides = tuple(given["shape"]), given.get("strides")
    _check_dense(shape, None if strides is None else [s / dtype.itemsize for s in strides])
    address = given["data"][0] or 0
    device = get_device(f"{CUDA_ARRAYS}:{_ordinal(address)}")
    producer = given.get("stream")
    if producer is not None:
        _order(device, _checked_stream(producer, CUDA_ARRAYS), _own_stream(device))
    owner = [x]  # held until it is given back
    return _adopted(device, address, TensorType(shape, dtype), owner.clear, copy)


def host_array(x: Any) -> np.ndarray[Any, Any]:
    """A copy of what `x` exports of the host's memory, of any dtype that tensors have: NumPy's way has no bfloat16.
    BufferError for memory that the host can't read."""
    tensor, give_back = _opened(x.__dlpack__())
    try:
        if tensor.device.type not in HOSTS:
            where = f"a device of DLPack's type {tensor.device.type}"
            raise BufferError(f"expected memory of the host, got {where}; copy the array to the host first")
        dtype = _dtype_named(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
        shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else _compact(shape)
        if 0 in shape:
            return np.empty(shape, dtype.np)
        if any(s < 0 for s in strides):
            raise BufferError(f"expected strides of at least 0, got {strides}; make the array contiguous first")
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        memory = (c_uint8 * ((last + 1) * dtype.itemsize)).from_address((tensor.data or 0) + tensor.byte_offset)
        elements = np.frombuffer(memory, dtype.np)
        return as_strided(elements, shape, [s * dtype.itemsize for s in strides]).copy()
    finally:
        give_back()


def as_bfloat16(capsule: Any) -> Any:
    """A capsule that nobody has taken yet, of 16-bit integers, which are said to be bfloat16."""
    name = next(n for n in LAYOUTS if _is_named(capsule, n))
    LAYOUTS[name].from_address(_pointer(capsule, name)).tensor.dtype.code = _BFLOAT
    return capsule


def _opened(capsule: Any) -> tuple[DLTensor, Callable[[], None]]:
    """The tensor in a capsule, which is ours from now on, and how to give it back."""
    name = next((n for n in LAYOUTS if _is_named(capsule, n)), None)
    if name is None:
        raise BufferError(f"expected a DLPack capsule that nobody took, got {capsule!r}; export the array again")
    managed = LAYOUTS[name].from_address(_pointer(capsule, name))
    if isinstance(managed, DLManagedTensorVersioned) and managed.major > VERSION[0]:
        found = f"{managed.major}.{managed.minor}"
        raise BufferError(f"expected DLPack {VERSION[0]}.x, got {found}; export it with max_version={VERSION}")
    _rename(capsule, USED[name])

    def give_back() -> None:
        if managed.deleter:
            managed.deleter(ctypes.addressof(managed))

    return managed.tensor, give_back


def _adopted(
    device: Device, address: int, type_: TensorType, give_back: Callable[[], Any], copy: bool | None
) -> GpuBuffer:
    borrowed = Borrowed(device, address, give_back)
    aligned = not address % ALIGNMENT
    if copy or (copy is None and not aligned) or not type_.size:
        return _copied(address, type_, device)
    if not aligned:
        raise BufferError(
            f"expected memory aligned to {ALIGNMENT} bytes to share it, got address {address:#x}; allow a copy"
        )
    return GpuBuffer(cast("Allocation", borrowed), device.name, type_)


def _check_dense(shape: Sequence[int], strides: Sequence[float] | None) -> None:
    if strides is None or 0 in shape:
        return
    pairs = zip(shape, strides, _compact(shape), strict=True)
    if any(extent != 1 and given != wanted for extent, given, wanted in pairs):
        raise BufferError(
            f"expected dense elements in row-major order, got shape {tuple(shape)} with strides {tuple(strides)}; "
            "make the array contiguous first"
        )


def _compact(shape: Sequence[int]) -> list[int]:
    """Row-major strides, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return strides


# ---- dtypes


def dtype_code(dtype: DType) -> tuple[int, int]:
    """DLPack's type code and bits."""
    return (_BFLOAT if dtype.name == "bfloat16" else _CODES[dtype.kind]), 8 * dtype.itemsize


_DTYPES: Final = {dtype_code(dtype): dtype for dtype in DTYPES.values()}


def _dtype_named(code: int, bits: int, lanes: int) -> DType:
    dtype = _DTYPES.get((code, bits))
    if dtype is None or lanes != 1:
        found = f"DLPack's type code {code} with {bits} bits and {lanes} lanes"
        raise BufferError(f"expected one of the dtypes {', '.join(DTYPES)}, got {found}; convert it first")
    return dtype


def typestr(dtype: DType) -> str:
    """NumPy's short name of a dtype, for `__cuda_array_interface__`; AttributeError where it has none."""
    if dtype.name == "bfloat16":
        raise AttributeError("__cuda_array_interface__ has no name for bfloat16; use DLPack")
    return dtype.np.str


def _dtype_of_text(text: str) -> DType:
    dtype = next((d for d in DTYPES.values() if d.name != "bfloat16" and d.np.str == text), None)
    if dtype is None:
        raise BufferError(f"expected one of the dtypes {', '.join(DTYPES)}, got {text!r}; convert it first")
    return dtype


# ---- streams and memory of a device


def _driver(device: Device) -> Any:
    return cast("Any", device).driver


def _own_stream(device: Device) -> int:
    return int(_driver(device).api.stream)


def settle(buffer: Buffer) -> None:
    """Let the elements be there in the order of our stream; raises why there are none."""
    assert isinstance(buffer, GpuBuffer)
    driver = _driver(get_device(buffer.device))
    with driver.lock, driver.watched({}):
        complete(driver, buffer.allocation)


def own_stream(name: str) -> int:
    """The stream of a device, for `__cuda_array_interface__`."""
    return _own_stream(get_device(name))


def _order(device: Device, before: int, after: int) -> None:
    """What is put on stream `after` from now on waits for what is on `before`."""
    if before != after:
        driver = _driver(device)
        with driver.lock:
            driver.api.order(before, after)


def _checked_stream(stream: int | None, kind: str) -> int:
    """The stream's handle; the legacy default one has a number of its own."""
    if stream is None:
        return LEGACY_STREAM[kind]
    if not isinstance(stream, int) or stream < NO_ORDER or (kind == "cuda" and not stream):
        raise ValueError(f"expected a stream's handle, 1 or 2 for CUDA's default streams, None, or -1, got {stream!r}")
    return stream


def _copied(address: int, type_: TensorType, device: Device) -> GpuBuffer:
    """The elements in memory of our own, when our stream gets there."""
    driver = _driver(device)
    allocation = driver.take(type_.nbytes)
    if type_.nbytes:
        with driver.lock, driver.watched({}):
            driver.api.copy(allocation.address, address, type_.nbytes)
    return GpuBuffer(allocation, device.name, type_)


def _ordinal(address: int) -> int:
    """The number of the CUDA device that an address belongs to."""
    if not address:
        return 0
    from loopgrad.runtime.cuda.found import driver, text  # late: only where CUDA arrays come in

    cuda = driver()
    attribute = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = cuda.cuPointerGetAttribute(attribute, address)
    if status:
        raise BufferError(f"expected memory of a CUDA device, got address {address:#x}: {text(cuda, status)}")
    return int(ordinal)
