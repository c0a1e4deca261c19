"""Words that the host and the device both have (runtime.gpu.driver.Shared)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loopgrad.runtime.gpu.driver import Words
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.vulkan.commands import VulkanCommands
from loopgrad.runtime.vulkan.memory import mapped

if TYPE_CHECKING:
    from loopgrad.runtime.vulkan.driver import VulkanDriver


class VulkanSharedWords:
    """Words in the device's memory and a copy on the host, which may change while work that uses the device's runs.
    `landing` is memory of the host where the device's words arrive."""

    def __init__(self, driver: VulkanDriver, count: int) -> None:
        self._driver = driver
        self.memory = driver.take(8 * count)
        self.address = self.memory.address
        self.words: Words = np.zeros(count, np.uint64)
        self._landing: Allocation | None = None
        self._report: VulkanCommands | None = None
        self.clear()

    def upload(self, count: int) -> None:
        """The first words, in front of what is submitted next."""
        if count:
            self._driver.transfers.upload(self.memory, self.words[:count].view(np.uint8))

    def report(self) -> VulkanCommands:
        """What brings the device's words to the host."""
        if self._report is None:
            size = self.words.nbytes
            self._landing = self._driver.host.take(size)
            self._report = VulkanCommands(self._driver)
            self._report.begin()
            self._report.copy(self.memory, self._landing, size)
            self._report.end()
        return self._report

    def arrived(self) -> None:
        """Take over what `report` brought."""
        assert self._landing is not None
        content = mapped(self._landing, self.words.nbytes)
        assert content is not None
        self.words.view(np.uint8)[:] = content

    def clear(self) -> None:
        self.words[:] = 0
        with self._driver.lock:
            if self._driver.gpu.timeline.lost is None and self.words.nbytes:
                self._driver.transfers.zero(self.memory, self.words.nbytes)
