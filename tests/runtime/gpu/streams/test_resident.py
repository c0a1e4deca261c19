"""How many workgroups of a kernel with stacks a stream-ordered device has in flight."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loopgrad.runtime.gpu.streams.driver import MOST_STACKS, StreamDriver

H200: Any = SimpleNamespace(multiprocessors=132, cache_bytes=60 << 20, group_limit=1 << 31)
PIPELINE: Any = SimpleNamespace(fit=4, group=256)


def resident(row_bytes: int) -> int:
    driver = StreamDriver.__new__(StreamDriver)
    driver.api = H200
    return driver.resident(PIPELINE, row_bytes)


@pytest.mark.parametrize(
    ("row_bytes", "groups"),
    [
        (0, 4 * 132),
        (64, 4 * 132),
        (300, 3 * 132),
        (400, 2 * 132),
        (4096, 2 * 132),
        (16 << 10, 2 * 132),
        (66_000, 106),
        (1 << 40, 1),
    ],
)
def test_deep_stacks_have_fewer_lanes(row_bytes: int, groups: int) -> None:
    """As many on each multiprocessor, as long as there is one for each: those with more would end last."""
    assert resident(row_bytes) == groups
    assert groups == 1 or row_bytes * groups * PIPELINE.group <= MOST_STACKS
