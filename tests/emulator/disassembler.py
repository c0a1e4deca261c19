"""Machine code -> text, by the disassembler of LLVM's shared library (Debian: libllvm19, which lld-19 brings)."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

LIBRARIES = ("libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-19.so")
TRIPLE = b"amdgcn-amd-amdhsa"
ROOM = 512


class EmulatorError(RuntimeError):
    """Machine code that the emulator can't run, or that did what it mustn't."""


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction. `address`: in the code object."""

    address: int
    size: int
    text: str


@cache
def library() -> Any:
    """LLVM, or None."""
    for name in LIBRARIES:
        try:
            loaded = ctypes.CDLL(name)
        except OSError:
            continue
        for part in ("TargetInfo", "TargetMC", "Disassembler"):
            getattr(loaded, f"LLVMInitializeAMDGPU{part}")()
        loaded.LLVMCreateDisasmCPUFeatures.restype = ctypes.c_void_p
        text, address, number = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64
        loaded.LLVMCreateDisasmCPUFeatures.argtypes = [text, text, text, address, ctypes.c_int, address, address]
        loaded.LLVMDisasmInstruction.restype = ctypes.c_size_t
        loaded.LLVMDisasmInstruction.argtypes = [address, address, number, number, text, ctypes.c_size_t]
        return loaded
    return None


@cache
def _context(processor: str) -> int:
    made = library().LLVMCreateDisasmCPUFeatures(TRIPLE, processor.encode(), b"", None, 0, None, None)
    if not made:
        raise EmulatorError(f"expected a processor that LLVM knows, got {processor}")
    return int(made)


def disassemble(code: bytes, address: int, processor: str) -> Iterator[Line]:
    """The instructions of `code`, which lies at `address`; EmulatorError at bytes that aren't one."""
    context, text = _context(processor), ctypes.create_string_buffer(ROOM)
    memory = ctypes.create_string_buffer(code, len(code))
    place = 0
    while place < len(code):
        size = library().LLVMDisasmInstruction(
            context, ctypes.addressof(memory) + place, len(code) - place, address + place, text, ROOM
        )
        if not size:
            raise EmulatorError(
                f"expected an instruction of {processor} at {address + place:#x}, got {code[place : place + 8].hex()}"
            )
        yield Line(address + place, int(size), text.value.decode().strip())
        place += int(size)
