"""ELF64 little endian, as far as LLVM's AMDGPU objects use it: reading, and the records that are written.

System V ABI, chapter 4 and 5; AMDGPU's own numbers from LLVM's "User Guide for AMDGPU Backend".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

MACHINE: Final = 224  # EM_AMDGPU
RELOCATABLE, DYNAMIC = 1, 3  # e_type
NULL, PROGBITS, SYMTAB, STRTAB, RELA, HASH, DYNAMIC_SECTION, NOTE, NOBITS, REL, DYNSYM = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11,
)  # fmt: skip
GNU_HASH: Final = 0x6FFFFFF6
WRITE, ALLOC, EXECUTE, MERGE, STRINGS, GROUP, TLS = 1, 2, 4, 0x10, 0x20, 0x200, 0x400
UNDEFINED, RESERVED, ABSOLUTE = 0, 0xFF00, 0xFFF1  # section numbers of symbols
LOCAL, GLOBAL, WEAK = 0, 1, 2
OBJECT, FUNCTION = 1, 2
DEFAULT, HIDDEN, PROTECTED = 0, 2, 3

HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION: Final = struct.Struct("<IIQQQQIIQQ")
SEGMENT: Final = struct.Struct("<IIQQQQQQ")
SYMBOL: Final = struct.Struct("<IBBHQQ")
RELOCATION: Final = struct.Struct("<QQq")
MAGIC: Final = b"\x7fELF\x02\x01\x01"


class ElfError(ValueError):
    """Bytes that aren't the ELF file expected; the text says what came instead."""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Symbol:
    """`section` is the number of a section, or UNDEFINED, ABSOLUTE, or above RESERVED."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def binding(self) -> int:
        return self.info >> 4

    @property
    def visibility(self) -> int:
        return self.other & 3


@dataclass(frozen=True, slots=True)
class Segment:
    type: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """S + addend goes to `offset` of `section`, in the form of `kind`."""

    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Elf:
    """`symbols` are those of .symtab, `dynamic` those of .dynsym."""

    ident: bytes
    type: int
    flags: int
    sections: tuple[Section, ...]
    segments: tuple[Segment, ...]
    symbols: tuple[Symbol, ...]
    dynamic: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]

    def section(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)


def read(data: bytes) -> Elf:
    """The file; ElfError where it is not a whole AMDGPU ELF."""
    try:
        return _read(data)
    except (struct.error, IndexError, UnicodeDecodeError) as broken:
        raise ElfError(f"expected a whole ELF file, got {len(data)} bytes that end or point astray: {broken}") from None


def _read(data: bytes) -> Elf:
    if data[:7] != MAGIC:
        raise ElfError(f"expected a 64-bit little-endian ELF file, got one that begins with {data[:7]!r}")
    header = HEADER.unpack_from(data)
    ident, type, machine, section_table, flags = header[0], header[1], header[2], header[6], header[7]
    if machine != MACHINE:
        raise ElfError(f"expected machine {MACHINE} (AMDGPU), got {machine}")
    segment_count, section_count, names = header[10], header[12], header[13]
    rows = [SECTION.unpack_from(data, section_table + i * SECTION.size) for i in range(section_count)]
    strings = _content(data, rows[names])
    sections = tuple([_section(strings, data, row) for row in rows])
    segments = []
    for i in range(segment_count):
        kind, permission, *rest = SEGMENT.unpack_from(data, header[5] + i * SEGMENT.size)
        segments.append(Segment(kind, permission, *rest))
    return Elf(
        ident=ident,
        type=type,
        flags=flags,
        sections=sections,
        segments=tuple(segments),
        symbols=_symbols(sections, SYMTAB),
        dynamic=_symbols(sections, DYNSYM),
        relocations=tuple([r for s in sections for r in _relocations(s)]),
    )


def _section(strings: bytes, data: bytes, row: tuple[int, ...]) -> Section:
    name, type, flags, address, offset, size, link, info, alignment, entry = row
    content = _content(data, row)
    return Section(_text(strings, name), type, flags, address, offset, size, link, info, alignment, entry, content)


def _content(data: bytes, row: tuple[int, ...]) -> bytes:
    offset, size = row[4], row[5]
    if row[1] in (NOBITS, NULL):
        return b""
    if offset + size > len(data):
        raise IndexError(f"a section ends at byte {offset + size}")
    return data[offset : offset + size]


def _text(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset)
    if offset > len(strings) or end < 0:
        raise IndexError(f"a name at byte {offset} of {len(strings)}")
    return strings[offset:end].decode()


def _symbols(sections: tuple[Section, ...], type: int) -> tuple[Symbol, ...]:
    table = next((s for s in sections if s.type == type), None)
    if table is None:
        return ()
    strings = sections[table.link].content
    return tuple([Symbol(_text(strings, row[0]), *row[1:]) for row in SYMBOL.iter_unpack(table.content)])


def _relocations(section: Section) -> list[Relocation]:
    if section.type == REL:
        raise ElfError(f"expected relocations with addends, got the section {section.name} without")
    if section.type != RELA:
        return []
    rows = RELOCATION.iter_unpack(section.content)
    return [Relocation(section.info, offset, info & 0xFFFFFFFF, info >> 32, addend) for offset, info, addend in rows]
