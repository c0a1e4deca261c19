"""How a program runs on a GPU: four executions behind one protocol.

- HostDriven: the host walks the steps, looks at what kernels report as soon as they ran, and decides on loops and
  branches. The first run of a program, as a rule, and every run of one whose steps need the host.
- Recorded: the steps, which have no loops or branches, in one list of commands that later runs start again.
- RecordedExchange: such steps, and collectives of several processes between them, on the memory of devices.
- DeviceDecided: loops and branches recorded too; the device decides on them, or the host foresees what it would.

All work on the parts of one context (Workspace); a context has one execution at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from loopgrad.runtime.gpu.memory import Allocation


class Execution(Protocol):
    @property
    def recorded(self) -> bool:
        """Whether the next run starts commands that are recorded already."""
        ...

    def run(self, inputs: Sequence[Allocation]) -> None:
        """One run of the program, over the bindings of now, which were prepared for these inputs. Raises what kernels
        report; then the execution is of no use any more."""
        ...

    def release(self) -> None:
        """Between runs: hold no memory that another program could use."""
        ...
