"""A module as text for people: one instruction a line, ids as %n. `spirv-dis` says more."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from loopgrad.codegen.targets.spirv.assembly import OP

NAME: Final = {number: name for name, number in OP.items()}


def listing(code: bytes) -> str:
    return "\n".join(_lines(struct.unpack(f"<{len(code) // 4}I", code)))


def _lines(words: tuple[int, ...]) -> Iterator[str]:
    at = 5
    while at < len(words):
        count, opcode = words[at] >> 16, words[at] & 0xFFFF
        operands = " ".join(f"%{word}" if word < words[3] else f"{word:#x}" for word in words[at + 1 : at + count])
        yield f"Op{NAME.get(opcode, opcode)} {operands}".rstrip()
        at += count
