"""The process's thread pool: compiled once per machine, loaded once per process.

`LOOPGRAD_NUM_THREADS` is read when the pool is first needed; by default there are as many threads as
the process may run on (a container's limit included). Results don't depend on it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from loopgrad.codegen.targets.cpu.entry.call_context import HEADER
from loopgrad.codegen.targets.cpu.pool.pool_interface import EXPORTS, MAX_THREADS
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.cpu.memory import IDLE
from loopgrad.runtime.cpu.native_fourier import NativeFourier, RunChunks
from loopgrad.runtime.cpu.native_products import native_products
from loopgrad.runtime.cpu.native_sorts import NativeLargest, NativeSorts, native_sorts
from loopgrad.runtime.processes import child_safe_lock, renewed_in_children

CPU_QUOTA_FILE: Final = Path("/sys/fs/cgroup/cpu.max")
THREADS_VARIABLE: Final = "LOOPGRAD_NUM_THREADS"
PYTHON_FUNCTIONS: Final = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")
CHUNK: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
NEVER_DUE: Final = 1 << 62  # nanoseconds

_lock = child_safe_lock()
_pool: NativePool | None = None


class NativePool:
    """Addresses of the pool's functions, and how many threads it uses."""

    def __init__(
        self,
        code: Code,
        threads: int,
        products: Callable[[int], Mapping[str, int]],
        sorts: Callable[[], NativeSorts],
        largest: NativeLargest,
        fourier: Callable[[RunChunks], NativeFourier],
    ) -> None:
        self.run = code.address("lg_pool_run")
        self.run_short = code.address("lg_pool_run_short")
        self.serial_run = code.address("lg_serial_run")
        self.launch = code.address("lg_launch")
        self.poll = code.address("lg_poll")
        self.attend = code.address("lg_attend")
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(code.address("lg_poll_configure"))(
            *[ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in PYTHON_FUNCTIONS]
        )
        self._configure = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address("lg_pool_configure"))
        words = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
        self._run = ctypes.CFUNCTYPE(ctypes.c_int32, CHUNK, *words)(self.run)
        self._run_native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *words)(self.run)
        self._heap_bytes = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("lg_pool_heap_bytes"))
        self._trim = ctypes.CFUNCTYPE(None)(code.address("lg_pool_trim"))
        self._after_fork = ctypes.CFUNCTYPE(None)(code.address("lg_pool_after_fork"))
        self.products = products  # matrix products for so many threads, loaded when they are asked for
        self.sorts = sorts  # likewise
        self.largest = largest  # likewise
        self.fourier = fourier(self.run_chunks)  # likewise
        self.threads = threads
        self.set_threads(threads)
        IDLE.append(self.trim)
        renewed_in_children(self._after_fork)

    def set_threads(self, threads: int) -> None:
        """Use that many threads from the next region on (running ones are kept)."""
        self.threads = max(1, min(threads, MAX_THREADS))
        self._configure(self.threads)

    def each(self, count: int, one: Callable[[int], None]) -> None:
        """`one(i)` for every i below count, in any order, some at once: for functions that let go of the interpreter's
        lock. What the first of them raised is raised when all have been called, or left out after it."""
        raised: list[BaseException] = []
        left = [*reversed(range(count))]

        def some(_params: object, _chunk: object, _worker: object, _control: object) -> None:
            """As many as are left: a thread of ours enters the interpreter once, which takes it a while."""
            try:
                while not raised and (number := _popped(left)) is not None:
                    one(number)
            except BaseException as error:
                raised.append(error)

        context = _unpolled()
        self._run(CHUNK(some), None, None, min(count, self.threads), 0, _heap(context))
        if raised:
            raise raised[0]

    def run_chunks(self, function: int, parameters: int, count: int) -> None:
        """As many chunks of a native function that takes no stack heap, at most some microseconds each."""
        context = _unpolled()
        self._run_native(function, parameters, None, count, 0, _heap(context))

    def heap_bytes(self) -> int:
        """Bytes of stack heap that the pool's threads hold."""
        size: int = self._heap_bytes()
        return size

    def trim(self) -> None:
        """Give the stack heaps back to the system."""
        self._trim()


def _unpolled() -> ctypes.Array[ctypes.c_int64]:
    """The words of a context that nobody polls for: Python itself runs handlers afterwards."""
    words = (ctypes.c_int64 * len(HEADER))()
    words[HEADER["polled"]] = NEVER_DUE
    return words


def _heap(context: ctypes.Array[ctypes.c_int64]) -> int:
    """Where its stack heap is noted."""
    return ctypes.addressof(context) + ctypes.sizeof(ctypes.c_int64) * HEADER["heap_base"]


def _popped(numbers: list[int]) -> int | None:
    """The last of them, which no other thread gets."""
    try:
        return numbers.pop()
    except IndexError:
        return None


def native_pool(object_of: Callable[[str, Callable[[], str]], bytes]) -> NativePool:
    """The pool. `object_of(name, text)` gives machine code for a text, from a cache or the compiler."""
    global _pool
    if _pool is None:
        with _lock:
            if _pool is None:
                code = Code(object_of("pool", _pool_text), EXPORTS)
                code.keep()
                made = (partial(native_products, object_of), partial(native_sorts, object_of))
                _pool = NativePool(
                    code, wanted_threads(), *made, NativeLargest(object_of), partial(NativeFourier, object_of)
                )
    return _pool


def _pool_text() -> str:
    from loopgrad.codegen.targets.cpu.pool.pool_module import pool_ir  # late: a warm cache needs no text

    return pool_ir()


def wanted_threads() -> int:
    """How many threads to use; ValueError where the variable isn't a positive integer."""
    text = os.environ.get(THREADS_VARIABLE)
    if text:
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"{THREADS_VARIABLE}: expected a positive integer, got {text!r}; set it to a thread count")
        return int(text)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(cores, quota_cores() or cores), 1)


def quota_cores(file: Path = CPU_QUOTA_FILE) -> int | None:
    """How many cores' time a container may use (rounded up); None without a limit."""
    try:
        quota, period = file.read_text(encoding="ascii").split()
        return -(-int(quota) // int(period)) if quota != "max" else None
    except (OSError, ValueError):
        return None
