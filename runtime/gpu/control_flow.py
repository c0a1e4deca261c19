"""Programs whose loops and branches the device decides, as a driver sees them.

A list of items is the whole program: launches in order, loops and branches with bodies of their own. What the
host would do between launches (change places of carries, count trips, test conditions, move on a stack) is done
by update kernels (codegen.targets.gpu.support.update_kernel), of which there is one a trip where the steps allow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopgrad.runtime.gpu.driver import Push


class Condition:
    """What an update kernel decides: whether a loop goes on, or a branch's number."""


@dataclass(slots=True, eq=False)
class Launch:
    """`decides`: an update kernel whose third launch word stands for the condition's handle."""

    pipeline: Any
    groups: int
    push: Push
    decides: Condition | None = None


@dataclass(slots=True, eq=False)
class DeviceLoop:
    """The body runs while the condition's value isn't 0."""

    condition: Condition
    body: list[Item]


@dataclass(slots=True, eq=False)
class DeviceBranches:
    """The branch whose number is the condition's value; none where that is beyond them."""

    condition: Condition
    branches: list[list[Item]]


Item = Launch | DeviceLoop | DeviceBranches
