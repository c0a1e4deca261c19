"""What a compiled function keeps of one kind of arguments: the executable, and how its buffers become results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from loopgrad.graph.python_numbers import Requirement
from loopgrad.graph.types import TensorType
from loopgrad.lazy.tensor.core import computed_tensor
from loopgrad.lazy.transforms.compiled_arguments import check_written, write_back
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import Device

if TYPE_CHECKING:
    from loopgrad.runtime.executable import Executable


@dataclass(slots=True, eq=False, weakref_slot=True)
class Version:
    """One executable: `captured` are the buffers of closed-over tensors, appended to the inputs; `stale` once one of
    those tensors was written to. `used` and `forget`: as of runtime.program_memory; it takes `size` bytes of memory."""

    executable: Executable
    device: Device
    types: list[TensorType]
    captured: list[Buffer]
    put: Callable[[Sequence[Any]], Any] | None  # results together; None where there is a single one
    chosen: bool  # whether the user chose the device
    returns_input: bool  # then arrays are copied: the caller may write to them later
    written: tuple[int, ...]  # the inputs that the function writes to: their new elements are the last outputs
    parts: tuple[Any, ...]  # what the static arguments were compared by
    required: tuple[Requirement, ...]  # what integers of arguments that were Python numbers must be
    weak: tuple[bool, ...]  # of each result whether its dtype gives way to arrays'; empty where none's does
    reason: str
    size: int
    forgetting: WeakMethod[Callable[[Version], None]]
    stale: bool = False
    used: bool = False

    def forget(self) -> None:
        """The compiled function traces again when it needs this version."""
        forget = self.forgetting()
        if forget is not None:
            forget(self)

    def call(self, leaves: Sequence[Any], inputs: Sequence[Buffer]) -> Any:
        """The results for the caller's arguments (those that are inputs), which are written to as the function does."""
        if self.written:
            check_written(leaves, self.written)
        return self.finish(leaves, self.executable.run([*inputs, *self.captured]))

    def finish(self, leaves: Sequence[Any], buffers: Sequence[Buffer]) -> Any:
        """The results, after the new elements of arguments have been written to them."""
        if self.written:
            count = len(buffers) - len(self.written)
            write_back(leaves, self.written, buffers[count:], self.chosen)
            buffers = buffers[:count]
        return self.results(buffers)

    def results(self, buffers: Sequence[Buffer]) -> Any:
        """The caller's tree of tensors."""
        put = self.put
        if put is None and not self.weak:
            return computed_tensor(buffers[0], self.chosen)
        tensors = [computed_tensor(b, self.chosen) for b in buffers]
        if self.weak:
            for tensor, weak in zip(tensors, self.weak, strict=True):
                tensor._weak = weak
        return tensors[0] if put is None else put(tensors)
