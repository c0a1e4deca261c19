"""From the arguments of a compiled function to the buffers that its program reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from loopgrad.graph.nodes import Leaf
from loopgrad.graph.types import TensorType
from loopgrad.lazy.tensor.core import TensorCore, unmasked
from loopgrad.lazy.tensor.evaluation import buffer_of, buffers_of
from loopgrad.lazy.transforms.compiled_arguments import check_required
from loopgrad.lazy.transforms.compiled_version import Version
from loopgrad.runtime.buffers import Buffer, dtype_of
from loopgrad.runtime.devices import HOST_KINDS
from loopgrad.runtime.session import move

_TYPES_LIMIT: Final = 4096  # remembered array types


def input_buffers(leaves: Sequence[Any], version: Version) -> list[Buffer]:
    """The buffers of arguments that are inputs, on the version's device."""
    if version.required:
        check_required(leaves, version.required)
    pending = [x for x in leaves if isinstance(x, TensorCore) and not isinstance(x._value, Leaf)]
    if pending:
        buffers_of(pending)
    return [_input(x, t, version) for x, t in zip(leaves, version.types, strict=True)]


def _input(x: Any, type: TensorType, version: Version) -> Buffer:
    if isinstance(x, TensorCore):
        value = x._value
        buffer = value.buffer if isinstance(value, Leaf) else buffer_of(x)
        return buffer if buffer.device == version.device.name else move(buffer, version.device)
    return borrowed(np.asarray(unmasked(x) if isinstance(x, np.ndarray) else x, type.dtype.np), version)


_types: dict[tuple[np.dtype[Any], tuple[int, ...]], TensorType] = {}


def borrowed(array: np.ndarray[Any, Any], version: Version) -> Buffer:
    """The caller's array as an input for the time of one call, without a copy where that is possible."""
    device = version.device
    if version.returns_input or device.kind not in HOST_KINDS or not array.flags.carray or not array.dtype.isnative:
        return device.put(array, version.returns_input)
    place = (array.dtype, array.shape)
    type_ = _types.get(place)
    if type_ is None:
        if len(_types) >= _TYPES_LIMIT:
            _types.clear()
        type_ = _types[place] = TensorType(array.shape, dtype_of(array.dtype))
    return Buffer(array, device.name, type_)
