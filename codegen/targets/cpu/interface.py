"""What the driver must know of a compiled kernel: the seam between kernel code and driver code.

The emitter gives, per Kernel, one `CpuKernelInterface`; the driver gives each launch what it asks for:

- `void @{symbol}(ptr params, i64 chunk, ptr worker, ptr control)` is called once for every chunk in
  [0, chunks), in any order and on any thread, unless `serial`: then in rising order, one at a time.
  Chunks are cut by shape alone, so results don't depend on the number of threads.
- `params` is an array of pointers: first Kernel.params in order, then one per `scratch` entry: a block
  of that many bytes, aligned to 64, uninitialised, alive until the finish call returns.
- Where `finish` is not None, `void @{finish}(ptr params)` is called once, after all chunks, on one
  thread. It combines reductions' partials and accumulate parameters' private copies in a fixed order.
- `worker` = { ptr stack_heap, i64 thread }. Stack s of a worker starts at stack_heap + the sum over
  earlier stacks of round_up(capacity * row_bytes, 64); the heap is aligned to 64 bytes. A worker runs
  one chunk at a time, and stacks are empty between chunks.
- `control` = { i64 capacity[s]..., i64 needed[s]..., i64 lane_of_overflow, i64 error_code,
  i64 error_lane, i64 error_detail }, written by the driver before the launch: capacity in rows,
  needed 0, error_code 0. Afterwards needed[s] is 0, or (an atomic maximum) the rows that stack s needed
  where that was more than capacity[s]: grow to it and launch again. This holds also for stacks whose
  depth is known ahead: lanes run in lockstep, so nested uneven loops can need more rows than the
  deepest lane. Capacity 0 is fine. lane_of_overflow is one lane that overflowed.
- Behind those four words comes, where the kernel is `interruptible`, the address of the call's context: a
  loop that need not end looks there for `stop`, and asks now and then whether to go on. What a kernel computes
  after it was told to stop is meaningless.
- error_code is 0 or 1 + the index into Kernel.errors of one failed check; error_lane is its linear
  lane index, error_detail the check's detail (for max_steps the number of steps made).
- Accumulate parameters are initialised by the driver before the launch (LaunchStep.initials).
- Where `cleared` isn't 0, so many bytes of the first scratch block are 0 when the chunks begin, and these begin in
  rising order: one may wait for what an earlier one leaves there.
- An empty domain has chunks == 0; finish must still be called (reductions give their identity).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TABLE: Final = "open"
"""The symbol of the table of numbers that code takes, where it does: words of 64 bits (see open_numbers)."""


@dataclass(frozen=True, slots=True)
class StackInterface:
    """`row_bytes`: bytes of one level of depth for one worker (lanes in flight times item size)."""

    row_bytes: int
    depth_param: int | None


@dataclass(frozen=True, slots=True)
class CpuKernelInterface:
    """See the module docstring. `lanes_in_flight` is the W of the stack layout [depth][W];
    `chunk_lanes` is informative (lanes per chunk)."""

    symbol: str
    finish: str | None
    chunks: int
    chunk_lanes: int
    lanes_in_flight: int
    serial: bool
    scratch: tuple[int, ...]
    stacks: tuple[StackInterface, ...]
    errors: int
    interruptible: bool = False
    cleared: int = 0
