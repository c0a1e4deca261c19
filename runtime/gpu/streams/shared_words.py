"""Words that the host and a stream-ordered device both have (runtime.gpu.driver.Shared)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loopgrad.runtime.gpu.driver import Words
from loopgrad.runtime.gpu.memory import Allocation
from loopgrad.runtime.gpu.streams.pinned import host_bytes

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver


class StreamSharedWords:
    """Words on the device and a copy on the host. `landing` is pinned memory where the device's words arrive."""

    def __init__(self, driver: StreamDriver, count: int) -> None:
        self._driver = driver
        self._memory = driver.take(8 * count)
        self._landing: Allocation | None = None
        self.address = self._memory.address
        self.words: Words = np.zeros(count, np.uint64)
        self.clear()

    @property
    def landing(self) -> int:
        if self._landing is None:
            self._landing = self._driver.pinned.take(self.words.nbytes)
        return self._landing.address

    def depart(self) -> None:
        """To `landing`, after the work that was started."""
        self._driver.api.download(self.landing, self.address, self.words.nbytes)

    def arrived(self) -> None:
        """Take over what lies in `landing`."""
        self.words.view(np.uint8)[:] = host_bytes(self.landing, self.words.nbytes)

    def clear(self) -> None:
        self.words[:] = 0
        with self._driver.lock:
            if self._driver.lost is None:
                self._driver.api.fill(self.address, 0, 2 * len(self.words))
