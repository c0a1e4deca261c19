"""What a code object says about its kernels: the metadata note and the kernel descriptors.

LLVM, "User Guide for AMDGPU Backend", Code Object V5: the note is a MessagePack map, the descriptor 64 bytes
under the symbol `<kernel>.kd`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.elf import Elf, ElfError

METADATA: Final = 32  # NT_AMDGPU_METADATA
NOTE: Final = struct.Struct("<III")
DESCRIPTOR: Final = struct.Struct("<III4xq20xIIIHH4x")
WAVE32: Final = 1 << 10  # in the code properties


@dataclass(frozen=True, slots=True)
class Argument:
    """Bytes [offset, offset + size) of the argument block."""

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class KernelNote:
    """`arguments_size` in bytes; `group_memory` of a workgroup, `private_memory` of a work item."""

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    arguments_size: int
    arguments_alignment: int
    group_memory: int
    private_memory: int
    largest_group: int
    wavefront: int
    vector_registers: int
    scalar_registers: int
    spills: int


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What the hardware's queue reads: sizes, and where the code is, relative to the descriptor."""

    group_memory: int
    private_memory: int
    arguments_size: int
    entry: int
    wave32: bool


def note(file: Elf) -> dict[str, Any]:
    """The metadata note; ElfError where there is none."""
    for section in file.sections:
        if section.type != elf.NOTE:
            continue
        place = 0
        while place + NOTE.size <= len(section.content):
            name_size, size, type = NOTE.unpack_from(section.content, place)
            body = place + NOTE.size + -(-name_size // 4) * 4
            name = section.content[place + NOTE.size : place + NOTE.size + name_size]
            if type == METADATA and name == b"AMDGPU\0":
                found, _ = unpack(section.content[body : body + size])
                return dict(found)
            place = body + -(-size // 4) * 4
    raise ElfError("expected a metadata note, got a code object without one")


def kernel_notes(file: Elf) -> dict[str, KernelNote]:
    """By the names of the kernels."""
    return {kernel[".name"]: _kernel(kernel) for kernel in note(file)["amdhsa.kernels"]}


def _kernel(data: dict[str, Any]) -> KernelNote:
    arguments = [Argument(a.get(".name", ""), a[".offset"], a[".size"], a[".value_kind"]) for a in data[".args"]]
    return KernelNote(
        name=data[".name"],
        symbol=data[".symbol"],
        arguments=tuple(arguments),
        arguments_size=data[".kernarg_segment_size"],
        arguments_alignment=data[".kernarg_segment_align"],
        group_memory=data[".group_segment_fixed_size"],
        private_memory=data[".private_segment_fixed_size"],
        largest_group=data[".max_flat_workgroup_size"],
        wavefront=data[".wavefront_size"],
        vector_registers=data[".vgpr_count"],
        scalar_registers=data[".sgpr_count"],
        spills=data[".vgpr_spill_count"] + data[".sgpr_spill_count"],
    )


def descriptor(file: Elf, kernel: str) -> Descriptor:
    """The descriptor of a linked kernel; ElfError where it has none."""
    symbol = next((s for s in file.dynamic if s.name == f"{kernel}.kd"), None)
    if symbol is None:
        raise ElfError(f"expected a descriptor {kernel}.kd, got a code object without one")
    section = file.sections[symbol.section]
    row = DESCRIPTOR.unpack_from(section.content, symbol.value - section.address)
    return Descriptor(row[0], row[1], row[2], row[3], bool(row[7] & WAVE32))


def described(code: bytes) -> dict[str, dict[str, Any]]:
    """For a description of the objects: kernels by name, with argument block, descriptor and registers."""
    if not code:  # a program without kernels
        return {}
    read = elf.read(code)
    return {name: {"amd": _described(read, note)} for name, note in kernel_notes(read).items()}


def _described(code: Elf, note: KernelNote) -> dict[str, Any]:
    return {
        "descriptor": note.symbol,
        "code_offset_from_descriptor": descriptor(code, note.name).entry,
        "kernarg": [{"name": a.name, "offset": a.offset, "bytes": a.size, "kind": a.kind} for a in note.arguments],
        "kernarg_bytes": note.arguments_size,
        "kernarg_alignment": note.arguments_alignment,
        "private_memory": note.private_memory,
        "wavefront": note.wavefront,
        "vector_registers": note.vector_registers,
        "scalar_registers": note.scalar_registers,
        "spilled_registers": note.spills,
    }


# MessagePack (github.com/msgpack/msgpack/blob/master/spec.md), without extension types and dates

_NUMBERS: Final = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h",
                   0xD2: ">i", 0xD3: ">q"}  # fmt: skip
_SIZES: Final = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I",
                 0xDE: ">H", 0xDF: ">I"}  # fmt: skip
_CONSTANTS: Final = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data: bytes, place: int = 0) -> tuple[Any, int]:
    """The value that begins at `place`, and where it ends."""
    code = data[place]
    place += 1
    if code < 0x80:
        return code, place
    if code >= 0xE0:
        return code - 0x100, place
    if code in _CONSTANTS:
        return _CONSTANTS[code], place
    if code in _NUMBERS:
        form = _NUMBERS[code]
        return struct.unpack_from(form, data, place)[0], place + struct.calcsize(form)
    if code < 0xC0:  # a short map, array or text
        short = 0xA0 if code >= 0xA0 else code & 0xF0
        return _sized(data, place, {0x80: 0xDE, 0x90: 0xDC, 0xA0: 0xD9}[short], code - short)
    if code not in _SIZES:
        raise ElfError(f"expected MessagePack without extension types, got the code {code:#x}")
    size = struct.unpack_from(_SIZES[code], data, place)[0]
    return _sized(data, place + struct.calcsize(_SIZES[code]), code, size)


def _sized(data: bytes, place: int, code: int, size: int) -> tuple[Any, int]:
    if code in (0xC4, 0xC5, 0xC6):
        return data[place : place + size], place + size
    if code in (0xD9, 0xDA, 0xDB):
        return data[place : place + size].decode(), place + size
    items = []
    for _ in range(size if code in (0xDC, 0xDD) else 2 * size):
        item, place = unpack(data, place)
        items.append(item)
    return items if code in (0xDC, 0xDD) else dict(zip(items[::2], items[1::2], strict=True)), place
