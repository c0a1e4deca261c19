"""Machine code into this process: one LLVM JIT linker, never torn down.

The linker is leaked on purpose: pool threads may still be inside its code while the interpreter
shuts down.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Sequence
from typing import Any

from loopgrad.runtime.cpu.libraries import load_math

_lock = threading.Lock()
_names = itertools.count()
_linker: Any = None


def _open() -> Any:
    global _linker
    if _linker is None:
        from llvmlite import binding  # late: only running compiled code needs it

        binding.initialize_native_target()
        load_math()
        # this linker gives each object one block, so that its sections stay within reach of each other
        _linker = binding.create_lljit_compiler(use_jit_link=True)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_linker))
    return _linker


class Code:
    """Loaded object code; unloaded when the last reference goes."""

    def __init__(self, code: bytes, exports: Sequence[str]) -> None:
        from llvmlite import binding  # late, as above

        with _lock:
            linker = _open()
            builder = binding.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name in exports:
                builder.export_symbol(name)
            self._tracker: Any = builder.link(linker, f"loopgrad{next(_names)}")

    def address(self, symbol: str) -> int:
        address: int = self._tracker[symbol]
        return address

    def keep(self) -> None:
        """Never unload."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))
