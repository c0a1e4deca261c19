"""Several objects as one piece of code: a static library, as `ar` writes them; one object is itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAGIC: Final = b"!<arch>\n"
HEADER: Final = 60  # bytes: name 16, time 12, owner 6, group 6, mode 8, size 10, two of an end


def joined(objects: Sequence[bytes]) -> bytes:
    if len(objects) == 1:
        return objects[0]
    rows = [f"{f'{i}.o/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(code):<10}`\n".encode() for i, code in enumerate(objects)]
    return MAGIC + b"".join([row + code + b"\n" * (len(code) % 2) for row, code in zip(rows, objects, strict=True)])


def parted(code: bytes) -> list[bytes]:
    """The objects again."""
    if not code.startswith(MAGIC):
        return [code]
    found, at = [], len(MAGIC)
    while at < len(code):
        size = int(code[at + 48 : at + 58])
        found.append(code[at + HEADER : at + HEADER + size])
        at += HEADER + size + size % 2
    return found
