"""Machine code into this process, by LLVM's JIT linkers.

A linker keeps some memory for each library that it ever held, unloaded ones too, and takes a millisecond to be made.
So each links a number of libraries and goes with the last of them. The pool's library, and its linker with it, is
leaked on purpose: its threads may still be inside while the interpreter shuts down.

Code that nobody holds any more is unloaded before the next is linked: a finalizer can't do it, since what a signal
handler raises inside a finalizer is lost.
"""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, Final
from weakref import ref

from loopgrad.codegen.targets.archive import parted
from loopgrad.graph.location import located, user_location
from loopgrad.runtime.cpu.libraries import load_math
from loopgrad.runtime.cpu.memory import IDLE, release_idle
from loopgrad.runtime.processes import child_safe_lock

LIBRARIES: Final = 64  # of one linker

_lock = child_safe_lock()
_numbers = itertools.count()
_linker: Any = None
_loaded: Final[dict[ref[Code], Any]] = {}  # what keeps a Code's library in memory
_dropped: Final[deque[ref[Code]]] = deque()


class Code:
    """Loaded object code. MemoryError where there is no room for it."""

    def __init__(self, code: bytes, exports: Sequence[str]) -> None:
        unload()
        with _lock:
            try:
                tracker = _link(code, exports)
            except RuntimeError:
                release_idle()
                tracker = _linked_or_refused(code, exports)
            _loaded[ref(self, _dropped.append)] = tracker
        self._addresses = {name: int(tracker[name]) for name in exports}

    def address(self, symbol: str) -> int:
        return self._addresses[symbol]

    def keep(self) -> None:
        """Never unload."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def unload() -> None:
    """Unload the code that nobody holds any more."""
    while _dropped:
        tracker = _loaded.pop(_dropped.popleft(), None)
        if tracker is not None:
            tracker.close()


def _link(code: bytes, exports: Sequence[str]) -> Any:
    """llvmlite's tracker of a new library."""
    global _linker
    from llvmlite import binding  # late: only running compiled code needs it

    number = next(_numbers)
    if _linker is None or number % LIBRARIES == 0:
        binding.initialize_native_target()
        load_math()
        # this linker gives each object one block, so that its sections stay within reach of each other
        _linker = binding.create_lljit_compiler(use_jit_link=True)
    builder = binding.JITLibraryBuilder()
    for part in parted(code):
        builder.add_object_img(part)
    builder.add_current_process()
    for name in exports:
        builder.export_symbol(name)
    return builder.link(_linker, f"loopgrad{number}")


def _linked_or_refused(code: bytes, exports: Sequence[str]) -> Any:
    try:
        return _link(code, exports)
    except RuntimeError as refused:  # the code is a compiler's own: there is no other reason
        text = (
            f"loading a program: expected memory for its {len(code):,} bytes of machine code, got none ({refused}); "
            "use smaller arrays or fewer programs, or raise the limit on memory"
        )
        raise MemoryError(located(text, user_location())) from None


IDLE.append(unload)
