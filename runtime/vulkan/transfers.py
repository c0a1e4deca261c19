"""What goes in front of the next submission: arrays and words on their way to the device.

Nothing here is submitted by itself, so that a call and all it needs are one submission and nobody waits; only
much data at once is started on its own, and waited for where a lot of it is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.vulkan.commands import MOST_INLINE, VulkanCommands
from loopgrad.runtime.vulkan.memory import mapped

if TYPE_CHECKING:
    from loopgrad.runtime.vulkan.driver import VulkanDriver

PART: Final = 1 << 26  # bytes of staging memory for one copy
MOST_STAGED: Final = 1 << 28  # bytes under way


class Transfers:
    """A list of copies in the making. `staging` memory stays until the list was submitted."""

    def __init__(self, driver: VulkanDriver) -> None:
        self._driver = driver
        self._commands = VulkanCommands(driver)
        self._open = self._ended = False
        self._staging: list[Allocation] = []
        self._targets: list[tuple[Any, int, int]] = []  # what the list writes since its last barrier
        self._staged = 0  # bytes since the device was idle

    @property
    def pending(self) -> bool:
        return self._open

    def upload(self, target: Allocation, content: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """These bytes; they may change on return."""
        if content.nbytes <= MOST_INLINE and content.nbytes % 4 == 0:
            self._begin(target, 0, content.nbytes).write(target, content.tobytes())
            return
        for start in range(0, content.nbytes, PART):
            self._stage(target, start, content[start : start + PART])

    def _stage(self, target: Allocation, start: int, content: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        size = content.nbytes
        if self._staged + size > MOST_STAGED:
            self._driver.flush()
            self._driver.gpu.timeline.idle()
            self._staged = 0
        staging = self._driver.host.take(size)
        place = mapped(staging, size)
        assert place is not None
        place[:] = content
        self._staging.append(staging)
        self._staged += size
        self._begin(target, start, size).copy(staging, target, size, into=start)
        if size == PART:
            self._driver.flush()

    def zero(self, target: Allocation, size: int) -> None:
        self._begin(target, 0, size).zero(target, size)

    def _begin(self, target: Allocation, start: int, size: int) -> VulkanCommands:
        """The list, ready for a copy to that place."""
        chunk, first = target.chunk, target.offset + start
        if self._ended:  # its submission failed
            self._driver.flush()
        if not self._open:
            self._commands.begin()
            self._open = True
        elif any(c is chunk and first < end and begin < first + size for c, begin, end in self._targets):
            self._commands.barrier()
            self._targets.clear()
        self._targets.append((chunk, first, first + size))
        return self._commands

    def take(self) -> list[VulkanCommands]:
        """The list, if there is one, to be submitted now. `submitted` follows."""
        if not self._open:
            return []
        if not self._ended:
            self._commands.end()
            self._ended = True
        return [self._commands]

    def submitted(self) -> None:
        self._open = self._ended = False
        self._targets.clear()
        self._staging.clear()
