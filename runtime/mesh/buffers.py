"""Elements that processes share: what one of them holds."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from loopgrad.graph.errors import DeviceError, explained
from loopgrad.graph.placement.places import Place
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer


class MeshBuffer(Buffer):
    """`local`, on this process' device: all elements where `axis` is None, else the process' lanes along that axis of
    an array of type `type`. `number`: what the host gave, where that is one; processes compare it when they meet."""

    __slots__ = ("axis", "local")
    number: np.ndarray[Any, Any] | None = None
    address = None  # of what isn't in one piece; not a slot that each would fill

    def __init__(self, local: Buffer, device: str, type: TensorType, axis: int | None) -> None:
        self.local = local
        self.device = device
        self.axis = axis
        self._type = type

    @property
    def array(self) -> NoReturn:  # type: ignore[override]  # nobody reads a part as if it were the whole
        raise part_error(self)

    @property
    def nbytes(self) -> int:
        return self.local.nbytes

    def locate(self) -> int:
        raise part_error(self)

    def retyped(self, type: TensorType) -> Buffer:
        if self.axis is None:
            return MeshBuffer(self.local.retyped(type), self.device, type, None)
        assert type.shape[self.axis] == self.type.shape[self.axis], (type, self.type)
        own = self.local.type.shape[self.axis]
        shape = (*type.shape[: self.axis], own, *type.shape[self.axis + 1 :])
        return MeshBuffer(self.local.retyped(TensorType(shape, type.dtype)), self.device, type, self.axis)

    @property
    def part(self) -> str:
        if self.axis is None:
            return ""
        own = self.local.type.shape[self.axis]
        return f"{own} of {self.type.shape[self.axis]} {Place(self.axis)} on this process"


class NumberBuffer(MeshBuffer):
    """Of a number that a script gave to a program: it must have given it on all processes. Nobody writes to `number`
    again."""

    __slots__ = ("number",)

    def __init__(self, local: Buffer, device: str, type: TensorType, number: np.ndarray[Any, Any]) -> None:
        super().__init__(local, device, type, None)
        self.number = number


def part_error(buffer: MeshBuffer) -> DeviceError:
    got = f"lanes of which this process has {buffer.local.type}" if buffer.axis is not None else "an array of a mesh"
    fix = "give all of them to each process with lg.gather_all(x) first, or reduce them"
    return DeviceError(explained("mesh", "elements that this process has", got, fix))


def local_array(buffer: Any, get: Any) -> Any:
    """The elements of a replicated buffer, by the `get` of this process' device."""
    if buffer.axis is not None:
        raise part_error(buffer)
    return get(buffer.local)
