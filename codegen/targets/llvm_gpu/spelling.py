"""How LLVM writes types and constants."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.llvm_rows import TYPE


def llvm_type(type: str) -> str:
    return TYPE.get(type, type)


def literal(type: str, value: float | int | bool) -> str:
    """The text of a constant; integers wrap to their width, floats beyond the range are infinity."""
    if type == "bool":
        return "true" if value else "false"
    if type[0] == "i":
        bits = int(type[1:])
        whole = int(value) & ((1 << bits) - 1)
        return str(whole - (1 << bits) if whole >> (bits - 1) else whole)
    with np.errstate(all="ignore"):
        exact = np.asarray(value).astype(f"f{SIZE[type]}")
    if type == "f16":
        return f"0xH{int(exact.view(np.uint16)):04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(exact)))[0]:016X}"


def number_in(text: str, type: str) -> float | None:
    """The number of f32 or f64 whose literal a text is; None of other texts."""
    if type not in ("f32", "f64") or not text.startswith("0x"):
        return None
    return float(struct.unpack("<d", bytes.fromhex(text[2:])[::-1])[0])


def vector_types(type: str, count: int) -> tuple[str, str, int]:
    """The type of elements side by side, that of as many words, in which all targets load and store; their bytes."""
    bytes = count * SIZE[type]
    return f"<{count} x {llvm_type(type)}>", f"<{bytes // 4} x i32>", bytes


def result_type(types: Sequence[str]) -> str:
    """What a function of results of these types returns."""
    kinds = [llvm_type(t) for t in types]
    return kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"
