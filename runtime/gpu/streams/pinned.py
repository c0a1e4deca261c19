"""Pinned host memory as arrays."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from loopgrad.runtime.gpu.memory import Bytes
from loopgrad.runtime.gpu.streams.api import StreamApi

if TYPE_CHECKING:
    from loopgrad.runtime.gpu.streams.driver import StreamDriver


class Pinned:
    """Zeros at first. It lives as long as its device."""

    def __init__(self, api: StreamApi, size: int) -> None:
        self.address = api.pin(size)
        self.bytes = host_bytes(self.address, size)
        self.bytes[:] = 0


class PinnedChunk:
    """For a heap of pinned memory."""

    def __init__(self, driver: StreamDriver, size: int) -> None:
        self._driver = driver
        self.address = driver.api.pin(size)

    def destroy(self) -> None:
        with self._driver.lock:
            self._driver.api.unpin(self.address)


def host_bytes(address: int, size: int) -> Bytes:
    """Memory of the host that somebody else holds."""
    content = (ctypes.c_uint8 * size).from_address(address)
    return np.frombuffer(memoryview(content), np.uint8)
