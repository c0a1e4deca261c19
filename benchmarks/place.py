"""Which device a contender's process computes on: the harness says it in an environment variable."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "LOOPGRAD_BENCHMARK_DEVICE"


def device() -> str:
    """The device by loopgrad's name: cpu, cuda:0, hip:0, vulkan:0, ..."""
    return os.environ.get(VARIABLE, "cpu")


def kind(name: str | None = None) -> str:
    """The kind of device: cpu, interpreter, cuda, hip or vulkan."""
    return (name or device()).partition(":")[0]


def index() -> int:
    """The number of the device among those of its kind."""
    return int(device().partition(":")[2] or 0)


def on_gpu() -> bool:
    """Whether the contender runs on a GPU, or on a driver that looks like one."""
    return kind() in ("cuda", "hip", "vulkan")
