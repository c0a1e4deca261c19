"""What the thread pool of the CPU target exports, for the host that loads it and code that calls it.

The module of `pool.pool_ir` is compiled once and exports

- `i32 @lg_pool_run(ptr fn, ptr params, ptr control, i64 chunks, i64 heap_bytes, ptr heap)`: calls
  fn(params, chunk, worker, control) for every chunk in [0, chunks), spread dynamically over the
  threads; the caller takes part. Each worker has `heap_bytes` of stack heap. While another thread
  of the process is in a region, the work is done serially on `heap`, the caller's own. Returns 0, or
  1 where no heap could be allocated (then no chunk has run).
- `i32 @lg_pool_run_short(...)`: the same, for chunks that are known to be short: sleeping workers are
  woken only where the work would outlast their waking up.
- `i32 @lg_serial_run(...)`: the same signature, chunks in rising order on the calling thread.
- `i32 @lg_launch(ptr context, ptr params, ptr fn, i64 chunks, i64 kernel, i64 control, i64 way, ptr finish)`: one
  launch of a kernel without stacks, and its report (see launches.py). `control` and `way` are words of the context.
- `i32 @lg_heap_ensure(ptr heap, i64 bytes)`: heap = { ptr base, i64 size }; contents are lost.
- `void @lg_pool_configure(i64 threads)`, `void @lg_pool_after_fork()`, `i64 @lg_pool_heap_bytes()`,
  `void @lg_pool_trim()` (gives the pool's heaps back to the system).
- `i32 @lg_poll(ptr context)`: runs Python's pending signal handlers; 1 where one raised, whose
  exception is then in the context. `lg_poll_configure` takes the four functions of Python it needs.
- `i32 @lg_attend(ptr context)`: the same, at most every POLL_NANOSECONDS, and sets the context's `stop` where
  a handler raised. A caller that waits for workers does this too: `heap` above lies in the context.
"""

from __future__ import annotations

from typing import Final

MAX_THREADS: Final = 256

EXPORTS: Final = (
    "lg_pool_run",
    "lg_pool_run_short",
    "lg_serial_run",
    "lg_launch",
    "lg_heap_ensure",
    "lg_pool_configure",
    "lg_pool_after_fork",
    "lg_pool_heap_bytes",
    "lg_pool_trim",
    "lg_poll",
    "lg_attend",
    "lg_poll_configure",
)
