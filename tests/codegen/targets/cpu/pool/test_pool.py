"""The thread pool: every chunk once, any number of threads, several callers, forks, heaps."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from loopgrad.codegen.targets.cpu.entry.call_context import HEADER, HEADER_WORDS
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.codegen.targets.cpu.pool.pool_interface import EXPORTS
from loopgrad.codegen.targets.cpu.pool.pool_module import pool_ir
from loopgrad.runtime.cpu.loader import Code

# counts[chunk] += 1; the first and last word of the worker's heap are written where params[1] is not 0
VISIT = """
define void @visit(ptr %params, i64 %chunk, ptr %worker, ptr %control) {
  %counts = load ptr, ptr %params
  %p = getelementptr i64, ptr %counts, i64 %chunk
  %old = atomicrmw add ptr %p, i64 1 monotonic
  %size_p = getelementptr i64, ptr %params, i64 1
  %size = load i64, ptr %size_p
  %none = icmp eq i64 %size, 0
  br i1 %none, label %out, label %touch
touch:
  %heap = load ptr, ptr %worker
  store i64 %chunk, ptr %heap
  %at = sub i64 %size, 8
  %end = getelementptr i8, ptr %heap, i64 %at
  store i64 %chunk, ptr %end
  br label %out
out:
  ret void
}
"""
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)


class Pool:
    """A pool of its own, beside the process's."""

    def __init__(self) -> None:
        self.code = Code(compile_module(pool_ir(), host_machine()), EXPORTS)
        self.code.keep()
        self.kernel = Code(compile_module(VISIT, host_machine()), ("visit",))
        self.configure = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.code.address("lg_pool_configure"))
        self.heap_bytes = ctypes.CFUNCTYPE(ctypes.c_int64)(self.code.address("lg_pool_heap_bytes"))
        self.trim = ctypes.CFUNCTYPE(None)(self.code.address("lg_pool_trim"))
        self.after_fork = ctypes.CFUNCTYPE(None)(self.code.address("lg_pool_after_fork"))
        self.run = RUN(self.code.address("lg_pool_run"))
        self.run_short = RUN(self.code.address("lg_pool_run_short"))
        self.serial_run = RUN(self.code.address("lg_serial_run"))

    def visit(self, chunks: int, heap: int = 0, run: Any = None) -> np.ndarray:
        counts = np.zeros(max(chunks, 1), np.int64)
        params = (ctypes.c_int64 * 2)(counts.ctypes.data, heap)
        status = (run or self.run)(self.kernel.address("visit"), params, None, chunks, heap, private_heap())
        assert status == 0
        return counts[:chunks]


def private_heap() -> Any:
    """A call's own stack heap, in its context."""
    context = (ctypes.c_int64 * HEADER_WORDS)()
    return (ctypes.c_int64 * 2).from_buffer(context, 8 * HEADER["heap_base"])


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool()


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 1000])
@pytest.mark.parametrize("chunks", [0, 1, 2, 5, 1000])
def test_every_chunk_runs_once(pool: Pool, threads: int, chunks: int) -> None:
    pool.configure(threads)
    for _ in range(50):
        np.testing.assert_array_equal(pool.visit(chunks), 1)
        np.testing.assert_array_equal(pool.visit(chunks, run=pool.run_short), 1)
    np.testing.assert_array_equal(pool.visit(chunks, run=pool.serial_run), 1)


def test_heaps_grow_are_reused_and_given_back(pool: Pool) -> None:
    pool.configure(2)
    for size in (8, 1 << 20, 64, 1 << 24, 8):
        np.testing.assert_array_equal(pool.visit(50, heap=size), 1)
        np.testing.assert_array_equal(pool.visit(50, heap=size, run=pool.serial_run), 1)
    assert pool.heap_bytes() >= 1 << 24
    pool.trim()
    assert pool.heap_bytes() == 0
    np.testing.assert_array_equal(pool.visit(50, heap=100), 1)


def test_a_heap_that_cannot_be_had_is_reported(pool: Pool) -> None:
    private = private_heap()
    counts = np.zeros(8, np.int64)
    params = (ctypes.c_int64 * 2)(counts.ctypes.data, 0)
    for run in (pool.run, pool.serial_run):
        assert run(pool.kernel.address("visit"), params, None, 8, 1 << 60, private) == 1
        assert not counts.any()
    np.testing.assert_array_equal(pool.visit(20, heap=64), 1)


def test_several_callers(pool: Pool) -> None:
    pool.configure(3)
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(i for i in range(300) if not (pool.visit(1 + i % 20, heap=64 * (i % 3)) == 1).all())

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_working_pool() -> None:
    """In a process of its own: forking a process with threads warns in Python."""
    script = """
import os, sys, warnings
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_pool import Pool
pool = Pool()
pool.configure(3)
os.register_at_fork(after_in_child=pool.after_fork)
pool.visit(100)
warnings.simplefilter("ignore")
child = os.fork()
good = bool((pool.visit(100) == 1).all() and (pool.visit(100) == 1).all())
if child == 0:
    os._exit(0 if good else 1)
_, status = os.waitpid(child, 0)
sys.exit(0 if good and status == 0 else 1)
"""
    folder = os.path.dirname(__file__)
    done = subprocess.run([sys.executable, "-c", script, folder], timeout=60, check=False)
    assert done.returncode == 0
