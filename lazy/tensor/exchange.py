"""Tensors to and from other libraries' arrays: DLPack and the CUDA array interface.

Memory of CUDA and HIP devices is handed over as it is (runtime.dlpack). Of all other devices the host's copy
is exported, through NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import finalize

import numpy as np

from loopgrad.graph.errors import explained
from loopgrad.graph.types import bfloat16
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf, wrap
from loopgrad.lazy.tensor.evaluation import buffer_of, device_of, to_device, to_numpy
from loopgrad.lazy.tensor.ongoing_derivations import followed
from loopgrad.runtime.devices import CUDA_ARRAYS, SHARED_KINDS, get_device

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor
    from loopgrad.runtime.buffers import Buffer

HOST: Final = (1, 0)
Pair = tuple[int, int]


def dlpack_device(t: TensorCore) -> Pair:
    """DLPack's number for the device's kind, and the device's among those."""
    return _pair(device_of(t))


def _pair(name: str) -> Pair:
    if name.partition(":")[0] not in SHARED_KINDS:
        return HOST
    from loopgrad.runtime.dlpack import pair_of  # late: few scripts exchange arrays

    return pair_of(name)


def to_dlpack(
    t: TensorCore, stream: int | None, max_version: tuple[int, int] | None, wanted: Pair | None, copy: bool | None
) -> Any:
    """What `__dlpack__` returns, on the device `wanted`: the tensor's own, or the host."""
    buffer = buffer_of(t, "dlpack")
    own = _pair(buffer.device)
    target = own if wanted is None else (int(wanted[0]), int(wanted[1]))
    if target == own != HOST:
        from loopgrad.runtime.dlpack import exported  # late, as above

        return exported(buffer, stream=stream, max_version=max_version, copy=copy)
    if target != HOST:
        expected = f"the tensor's device {own} or the host {HOST}"
        raise BufferError(explained("__dlpack__", expected, target, "move it with .to_device first"))
    if own != HOST and copy is False:
        raise BufferError(explained("__dlpack__", "a copy to be allowed for the host", "copy=False", "allow it"))
    return _from_host(t, max_version, copy)


def _from_host(t: TensorCore, max_version: tuple[int, int] | None, copy: bool | None) -> Any:
    array = to_numpy(t)
    known: dict[str, Any] = {} if max_version is None else {"max_version": max_version}  # NumPy 2.0 knows neither
    if t._value.dtype is bfloat16:  # which NumPy's DLPack hasn't
        from loopgrad.runtime.dlpack import as_bfloat16  # late, as above

        return as_bfloat16(_capsule(array.view(np.int16), known, copy))
    return _capsule(array, known, copy)


def _capsule(array: np.ndarray[Any, Any], known: dict[str, Any], copy: bool | None) -> Any:
    if copy:
        return array.copy().__dlpack__(**known)
    try:
        return array.__dlpack__(**known)
    except BufferError:  # consumers without a read-only flag get their own copy, unless they want the memory itself
        return (np.asarray(_Unprotected(array)) if copy is False else array.copy()).__dlpack__(**known)


class _Unprotected:
    """An array's memory without its read-only flag, for NumPy to look at."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array  # which the memory belongs to
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def cuda_interface(t: TensorCore) -> dict[str, Any]:
    """Version 3 of the CUDA array interface; AttributeError where the tensor isn't on a CUDA device, or where a
    derivative would be lost: consumers then ask for DLPack or an array, and are told so."""
    if t._value.scope is not None or followed(t._value) or device_of(t).partition(":")[0] != CUDA_ARRAYS:
        raise AttributeError("__cuda_array_interface__ is for evaluated tensors on CUDA devices")
    from loopgrad.runtime.dlpack import own_stream, settle, typestr  # late, as above

    name = typestr(t._value.dtype)
    buffer = buffer_of(t)
    settle(buffer)
    finalize(t, _hold, buffer).atexit = False  # the consumer keeps the tensor, whose name may be rebound
    address = buffer.address if buffer.nbytes else 0
    stream = own_stream(buffer.device)
    facts = {"shape": buffer.type.shape, "typestr": name, "data": (address, True)}
    return {**facts, "strides": None, "version": 3, "stream": stream}


def _hold(buffer: Buffer) -> None:
    """Nothing: until it is called, the buffer lives."""


def from_gpu(x: Any, copy: bool | None) -> Tensor | None:
    """A tensor where `x` is: an array on a device whose memory we can use; None for anything else."""
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        if int(x.__dlpack_device__()[0]) == HOST[0]:
            return None
        from loopgrad.runtime.dlpack import imported  # late, as above

        buffer = imported(x, copy)
    elif hasattr(x, "__cuda_array_interface__"):
        from loopgrad.runtime.dlpack import imported_interface  # late, as above

        buffer = imported_interface(x, copy)
    else:
        return None
    return None if buffer is None else wrap(TensorLeaf(buffer.type, buffer, committed=True))


def from_host(x: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """What an object with `__dlpack__` exports of the host's memory; BufferError where that is copied in spite of
    `copy=False`."""
    try:
        return np.from_dlpack(x)
    except (RuntimeError, BufferError):  # a dtype that NumPy's DLPack hasn't, or what the object itself refuses
        from loopgrad.runtime.dlpack import host_array  # late, as above

        array = host_array(x)
        if copy is False:
            got = f"{array.dtype}, which NumPy's DLPack can't share"
            raise BufferError(f"expected what needn't be copied where copy=False, got {got}; leave it out") from None
        return array


def placed(t: Tensor, device: str | None, copy: bool | None) -> Tensor:
    """The tensor on the device that the caller named, if any."""
    if device is None or get_device(device).name == t.device:
        return t
    if copy is False:
        fix = "allow a copy, or leave the device out"
        raise BufferError(explained("from_dlpack", f"an array on {device} where copy=False", t.device, fix))
    return to_device(t, device)
