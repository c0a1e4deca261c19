"""LLVM at work on several modules at a time.

llvmlite lets one thread at a time into LLVM, which itself only wants each thread to have contexts and target machines
of its own. Here the four functions that take time run without llvmlite's lock, by the thread that compiles and helping
ones; what they work on is made before and disposed of afterwards. COMPILING is held all the while: a fork and the
interpreter's end wait for it (`runtime.processes`), as they do for llvmlite's lock. That one isn't, since the garbage
collector may dispose of what is llvmlite's in any thread. The code is the same for any number of threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from ctypes import c_char_p, string_at
from typing import Any, Final, NamedTuple

from loopgrad.codegen.targets.llvm_modules import bound_scheduling

COMPILING: Final = threading.RLock()

TIMELY: Final = (
    "LLVMPY_ParseAssembly",
    "LLVMPY_VerifyModule",
    "LLVMPY_RunNewModulePassManager",
    "LLVMPY_TargetMachineEmitToMemory",
)


class Bench(NamedTuple):
    """What one module is compiled with: a target machine, passes, and the builder that these need. LLVM's own list of
    passes is good for one module."""

    machine: Any
    passes: Any
    builder: Any


def compiled(
    texts: Sequence[str], bench: Callable[[ExitStack], Bench], threads: int, assembly: bool = False
) -> list[bytes]:
    """The object of each module, or its assembly; RuntimeError where LLVM refuses one. `bench` makes a new one, which
    goes with the stack."""
    from llvmlite.binding import create_context, ffi  # late: heavy, not needed where compiled code is loaded from disk

    bound_scheduling()
    functions = [_without_lock(getattr(ffi.lib, name)) for name in TIMELY]
    threads = 1 if None in functions else max(min(threads, len(texts)), 1)
    functions = [f or getattr(ffi.lib, name) for f, name in zip(functions, TIMELY, strict=True)]
    with ExitStack() as stack:
        stack.enter_context(COMPILING)
        modules = []
        for text in texts:
            modules.append(_Module(text, bench(stack), stack.enter_context(create_context()), ffi, functions, assembly))
            stack.callback(modules[-1].close)
        _shared_out(modules, threads)
        return [module.taken() for module in modules]


def _shared_out(modules: Sequence[_Module], threads: int) -> None:
    """Compile all, the longest first, by this thread and others."""
    pending = deque(sorted(modules, key=lambda module: -len(module.text)))
    failures: list[Exception] = []

    def work() -> None:
        with suppress(IndexError):  # another thread took the last one
            while True:
                module = pending.popleft()
                try:
                    module.compile()
                except Exception as failure:
                    failures.append(failure)
                    pending.clear()

    helpers = [threading.Thread(target=work) for _ in range(threads - 1)]
    started = []
    try:
        for helper in helpers:
            helper.start()
            started.append(helper)
    except RuntimeError:  # the system has no more threads, or the interpreter ends: so there are fewer
        pass
    try:
        work()
    finally:
        pending.clear()
        for helper in started:
            helper.join()
    if failures:
        raise failures[0]


class _Module:
    """One of the modules, and whether its assembly is wanted."""

    def __init__(
        self, text: str, bench: Bench, context: Any, ffi: Any, functions: Sequence[Any], assembly: bool
    ) -> None:
        self.text, self._bench, self._lib, self._context, self._functions = text, bench, ffi.lib, context, functions
        self._assembly = assembly
        self._error = ffi.OutputString()
        self._module: Any = None
        self._buffer: Any = None

    def compile(self) -> None:
        bench = self._bench
        parse, verify, run, emit = self._functions
        self._module = parse(self._context, c_char_p(self.text.encode()), self._error)
        if not self._module or verify(self._module, self._error):
            raise RuntimeError(f"LLVM refuses a module: {self._error}")
        run(bench.passes, self._module, bench.builder)
        self._buffer = emit(bench.machine, self._module, int(not self._assembly), self._error)
        if not self._buffer:
            raise RuntimeError(f"LLVM has no code for a module: {self._error}")

    def taken(self) -> bytes:
        start, size = self._lib.LLVMPY_GetBufferStart(self._buffer), self._lib.LLVMPY_GetBufferSize(self._buffer)
        return string_at(start, size)

    def close(self) -> None:
        if self._buffer:
            self._lib.LLVMPY_DisposeMemoryBuffer(self._buffer)
        if self._module:
            self._lib.LLVMPY_DisposeModule(self._module)
        self._error.close()


def _without_lock(function: Any) -> Any | None:
    """The library's function behind llvmlite's wrapper, where that is as we know it."""
    return getattr(function, "_cfn", None)
