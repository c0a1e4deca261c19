"""Capture and replay: one recorded call, submitted again.

A device implements `Recording`: a CUDA graph, a HIP graph, a Vulkan command buffer, or on the CPU
one native call. `DeviceReplay` is the same everywhere: it checks that shapes and dtypes are those of the
capture, binds new inputs, submits, and where a stack was too small (`settle` is false) lets the
device grow it and submits again. Values and trip counts may differ between replays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loopgrad.graph.errors import explained
from loopgrad.graph.types import TensorType
from loopgrad.runtime.buffers import Buffer, check_inputs
from loopgrad.runtime.processes import child_safe_lock

PUBLIC: Final = "ReplayStats"


@dataclass(frozen=True, slots=True)
class ReplayStats:
    """`growths` counts stack heaps that had to grow during captures and replays."""

    captures: int
    replays: int
    growths: int


class Recording(ABC):
    """A call in a device's own form. Steps of one replay: bind, submit, settle, outputs."""

    @abstractmethod
    def bind(self, buffers: Sequence[Buffer]) -> None:
        """Make the next submissions read these inputs."""

    @abstractmethod
    def submit(self) -> None:
        """Start the recorded work; may return before it ends."""

    @abstractmethod
    def settle(self) -> bool:
        """Wait; raise what the work raised. False: a stack was too small and has been grown, so
        the results are void and the work must be submitted again."""

    @abstractmethod
    def outputs(self) -> list[Buffer]:
        """The results of the last submission; later replays leave them untouched."""

    @abstractmethod
    def growths(self) -> int:
        """How often a stack heap grew since the recording was made."""


class DeviceReplay:
    """What `capture` returns. `replay(buffers)` with None repeats the last inputs."""

    def __init__(self, input_types: Sequence[TensorType], device: str, recording: Recording) -> None:
        self._types = tuple(input_types)
        self._device = device
        self._recording = recording
        self._replays = 0
        self._running = False
        self._lock = child_safe_lock()

    def replay(self, buffers: Sequence[Buffer] | None = None) -> list[Buffer]:
        """Run the recorded call and return its outputs. RuntimeError in a forked child where another thread of the
        parent was running it."""
        with self._lock:
            if self._running:
                fix = "capture again"
                raise RuntimeError(explained("replay", "a recording at rest", "one cut off in the midst of a run", fix))
            self._running = True
            try:
                return self._run(buffers)
            finally:
                self._running = False

    def _run(self, buffers: Sequence[Buffer] | None) -> list[Buffer]:
        recording = self._recording
        if buffers is not None:
            check_inputs(self._types, buffers, self._device)
            recording.bind(buffers)
        recording.submit()
        while not recording.settle():
            recording.submit()
        self._replays += 1
        return recording.outputs()

    def stats(self) -> ReplayStats:
        return ReplayStats(1, self._replays, self._recording.growths())
