"""Small transfers to the device that nobody waits for: through a ring of pinned memory.

The ring has quarters. Entering a quarter waits for the transfers that left it a round ago; by then they are
long done.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from loopgrad.runtime.gpu.memory import Bytes
from loopgrad.runtime.gpu.streams.api import StreamApi
from loopgrad.runtime.gpu.streams.pinned import Pinned

QUARTER: Final = 1 << 18
QUARTERS: Final = 4
ALIGNMENT: Final = 16


class Staging:
    """`send` copies and returns; the content may change at once."""

    def __init__(self, api: StreamApi) -> None:
        self._api = api
        self._memory = Pinned(api, QUARTER * QUARTERS)
        self._events: list[Any] = [api.make_event() for _ in range(QUARTERS)]
        self._quarter = 0
        self._used = 0

    def send(self, target: int, content: np.ndarray[Any, Any]) -> None:
        """At most QUARTER bytes, dense."""
        size = content.nbytes
        if self._used + size > QUARTER:
            self._api.record(self._events[self._quarter])
            self._quarter = (self._quarter + 1) % QUARTERS
            self._api.wait(self._events[self._quarter])
            self._used = 0
        start = self._quarter * QUARTER + self._used
        place: Bytes = self._memory.bytes[start : start + size]
        place[:] = content.reshape(-1).view(np.uint8)
        self._used += -(-size // ALIGNMENT) * ALIGNMENT
        self._api.upload(target, self._memory.address + start, size)
