"""One relocatable AMDGPU object -> a code object that a HIP driver loads; no tool of ROCm is needed.

What `ld.lld -shared` would do with it: sections get addresses, symbols values, relocations are resolved, and
tables for the loader (dynamic section, symbol table, two hash tables, program headers) are added. Addresses
and the content of every loaded section equal those that lld gives; tests compare them.

Three segments: read only (headers, note, tables, kernel descriptors), code, the dynamic section. An object
that asks for more (writable data, undefined symbols, relocations that the loader would have to do) is
refused with a LinkError: kernels have no such thing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.elf import Elf, ElfError, Relocation, Section, Symbol
from loopgrad.codegen.targets.amdgpu.hashes import gnu_hash_table, gnu_order, system_v_table

PAGE: Final = 0x1000
SEGMENTS: Final = 8
DYNAMIC_TAGS: Final = 7
GNU_HASH_TAG: Final = 0x6FFFFEF5

ABS32_LO, ABS32_HI, ABS64, REL32, REL64, ABS32 = 1, 2, 3, 4, 5, 6
GOTPCREL, GOTPCREL32_LO, GOTPCREL32_HI, REL32_LO, REL32_HI, REL16 = 7, 8, 9, 10, 11, 14
NAMES: Final = {
    0: "NONE",
    ABS32_LO: "ABS32_LO",
    ABS32_HI: "ABS32_HI",
    ABS64: "ABS64",
    REL32: "REL32",
    REL64: "REL64",
    ABS32: "ABS32",
    GOTPCREL: "GOTPCREL",
    GOTPCREL32_LO: "GOTPCREL32_LO",
    GOTPCREL32_HI: "GOTPCREL32_HI",
    REL32_LO: "REL32_LO",
    REL32_HI: "REL32_HI",
    13: "RELATIVE64",
    REL16: "REL16",
}


class LinkError(ElfError):
    """An object that this linker doesn't know how to link."""


@dataclass
class _Output:
    """A section of the result. `parts`: the input sections in it and where each begins."""

    name: str
    type: int
    flags: int
    alignment: int = 1
    entry: int = 0
    content: bytearray = field(default_factory=bytearray)
    address: int = 0
    offset: int = 0
    parts: dict[int, int] = field(default_factory=dict)
    size: int = 0

    def add(self, number: int, section: Section) -> None:
        self.alignment = max(self.alignment, section.alignment)
        self.content += bytes(-len(self.content) % max(section.alignment, 1))
        self.parts[number] = len(self.content)
        self.content += section.content
        self.size = len(self.content)


def link(data: bytes) -> bytes:
    """The loadable code object; LinkError or ElfError where there can't be one."""
    source = elf.read(data)
    if source.type != elf.RELOCATABLE:
        raise LinkError(f"expected a relocatable object (type {elf.RELOCATABLE}), got type {source.type}")
    return _Link(source).result()


class _Link:
    def __init__(self, source: Elf) -> None:
        self.source = source
        undefined = sorted({s.name for s in source.symbols if s.section == elf.UNDEFINED and s.name})
        if undefined:
            raise LinkError(f"expected an object that defines all it uses, got the undefined {', '.join(undefined)}")
        exported = [s for s in source.symbols if _exported(s)]
        self.strings = bytearray(b"\0")
        names = {s.name: self._string(s.name) for s in exported}
        self.exported = gnu_order(exported)
        self.names = [names[s.name] for s in self.exported]
        self.read_only, self.code = self._gather()
        self._add_tables()
        self.dynamic = _Output(".dynamic", elf.DYNAMIC_SECTION, elf.ALLOC | elf.WRITE, 8, 16)
        self.dynamic.content = bytearray(16 * DYNAMIC_TAGS)
        self.padding = _Output(".relro_padding", elf.NOBITS, elf.ALLOC | elf.WRITE)

    def _string(self, name: str) -> int:
        place = len(self.strings)
        self.strings += name.encode() + b"\0"
        return place

    # sections

    def _gather(self) -> tuple[list[_Output], list[_Output]]:
        """Output sections that hold input: notes and read-only data, then code."""
        found: dict[str, _Output] = {}
        for number, section in enumerate(self.source.sections):
            if not section.flags & elf.ALLOC or not section.size:
                continue
            _check(section)
            name = _output_name(section)
            flags = section.flags & (elf.ALLOC | elf.EXECUTE)
            out = found.setdefault(name, _Output(name, section.type, flags))
            if (out.type, out.flags) != (section.type, flags):
                raise LinkError(f"expected sections of one kind under the name {name}, got {section.name}")
            out.add(number, section)
        notes = [out for out in found.values() if out.type == elf.NOTE]
        data = [out for out in found.values() if out.type != elf.NOTE and not out.flags & elf.EXECUTE]
        return [*notes, *data], [out for out in found.values() if out.flags & elf.EXECUTE]

    def _add_tables(self) -> None:
        """The loader's tables, between notes and data."""
        count = len(self.exported) + 1
        names = [s.name for s in self.exported]
        tables = [
            _Output(".dynsym", elf.DYNSYM, elf.ALLOC, 8, elf.SYMBOL.size, bytearray(elf.SYMBOL.size * count)),
            _Output(".gnu.hash", elf.GNU_HASH, elf.ALLOC, 8, 0, bytearray(gnu_hash_table(names))),
            _Output(".hash", elf.HASH, elf.ALLOC, 4, 4, bytearray(system_v_table(names))),
            _Output(".dynstr", elf.STRTAB, elf.ALLOC, 1, 0, self.strings),
        ]
        notes = sum(out.type == elf.NOTE for out in self.read_only)
        self.read_only[notes:notes] = tables

    def output(self, name: str) -> _Output:
        return next(out for out in self.read_only if out.name == name)

    # the result

    def result(self) -> bytes:
        self._place()
        for relocation in self.source.relocations:
            self._relocate(relocation)
        rows = [(name, s, self._number(s), self.value(s)) for name, s in zip(self.names, self.exported, strict=True)]
        table = self.output(".dynsym").content
        for i, (name, s, number, value) in enumerate(rows, 1):
            elf.SYMBOL.pack_into(table, i * elf.SYMBOL.size, name, s.info, s.other, number, value, s.size)
        self._fill_dynamic()
        return self._write()

    @property
    def loaded(self) -> list[_Output]:
        return [*self.read_only, *self.code, self.dynamic, self.padding]

    def _place(self) -> None:
        """Addresses rise by a page between segments, so that no page has two protections."""
        address = elf.HEADER.size + SEGMENTS * elf.SEGMENT.size
        end = address
        for group in (self.read_only, self.code, [self.dynamic]):
            if group is not self.read_only:
                address = -(-address // PAGE) * PAGE + address % PAGE
            for out in group:
                address += -address % out.alignment
                end += (address - end) % PAGE if out is group[0] else address - end
                out.address, out.offset, out.size = address, end, len(out.content)
                address += out.size
                end += out.size
        self.padding.address, self.padding.offset = address, end
        self.padding.size = -address % PAGE

    def _owner(self, section: int) -> tuple[_Output, int] | None:
        """The output that holds an input section, and where."""
        for out in (*self.read_only, *self.code):
            if section in out.parts:
                return out, out.parts[section]
        return None

    def _number(self, symbol: Symbol) -> int:
        owner = self._owner(symbol.section)
        return symbol.section if owner is None else 1 + self.loaded.index(owner[0])

    def value(self, symbol: Symbol) -> int:
        """The symbol's address."""
        if symbol.section == elf.ABSOLUTE:
            return symbol.value
        owner = self._owner(symbol.section)
        if owner is None:
            raise LinkError(f"expected symbols in loaded sections, got {symbol.name!r} in section {symbol.section}")
        return owner[0].address + owner[1] + symbol.value

    def _relocate(self, relocation: Relocation) -> None:
        target = self._owner(relocation.section)
        if target is None:
            if self.source.sections[relocation.section].flags & elf.ALLOC:
                raise LinkError(f"relocations for the empty section {self.source.sections[relocation.section].name}")
            return  # of debug information, which is left out
        out, begin = target
        symbol = self.source.symbols[relocation.symbol]
        place = begin + relocation.offset
        apply = APPLY.get(relocation.kind)
        if apply is None:
            raise LinkError(
                f"expected relocations of the kinds {', '.join(NAMES[kind] for kind in APPLY)}, got "
                f"R_AMDGPU_{NAMES.get(relocation.kind, relocation.kind)} for {symbol.name!r} in {out.name}"
            )
        difference = self.value(symbol) + relocation.addend - (out.address + place)
        try:
            apply(out.content, place, difference)
        except struct.error:
            raise LinkError(
                f"{symbol.name!r} is {difference:,} bytes away: too far for {NAMES[relocation.kind]}"
            ) from None

    def _fill_dynamic(self) -> None:
        at = {name: self.output(name) for name in (".dynsym", ".dynstr", ".gnu.hash", ".hash")}
        tags = [
            (6, at[".dynsym"].address),
            (11, elf.SYMBOL.size),
            (5, at[".dynstr"].address),
            (10, at[".dynstr"].size),
            (GNU_HASH_TAG, at[".gnu.hash"].address),
            (4, at[".hash"].address),
            (0, 0),
        ]
        for i, tag in enumerate(tags):
            struct.pack_into("<QQ", self.dynamic.content, 16 * i, *tag)

    # the file

    def _write(self) -> bytes:
        file = bytearray(self.dynamic.offset + self.dynamic.size)
        for out in self.loaded:
            if out.type != elf.NOBITS:
                file[out.offset : out.offset + out.size] = out.content
        segments = self._segments()
        for i, segment in enumerate(segments):
            elf.SEGMENT.pack_into(file, elf.HEADER.size + i * elf.SEGMENT.size, *segment)
        table, count = self._append_sections(file)
        header = (self.source.ident, elf.DYNAMIC, elf.MACHINE, 1, 0, elf.HEADER.size, table, self.source.flags)
        sizes = (elf.HEADER.size, elf.SEGMENT.size, len(segments), elf.SECTION.size, count, count - 1)
        elf.HEADER.pack_into(file, 0, *header, *sizes)
        return bytes(file)

    def _segments(self) -> list[tuple[int, ...]]:
        """PHDR, three LOADs, DYNAMIC, GNU_RELRO, GNU_STACK, NOTE."""
        read, execute, write = 4, 5, 6
        last, dynamic = self.read_only[-1], self.dynamic
        head = SEGMENTS * elf.SEGMENT.size
        first, final = self.code[0], self.code[-1]
        code = final.address + final.size - first.address
        whole = dynamic.size + self.padding.size
        note = self.read_only[0]
        end = last.offset + last.size
        return [
            (6, read, elf.HEADER.size, elf.HEADER.size, elf.HEADER.size, head, head, 8),
            (1, read, 0, 0, 0, end, end, PAGE),
            (1, execute, first.offset, first.address, first.address, code, code, PAGE),
            (1, write, dynamic.offset, dynamic.address, dynamic.address, dynamic.size, whole, PAGE),
            (2, write, dynamic.offset, dynamic.address, dynamic.address, dynamic.size, dynamic.size, 8),
            (0x6474E552, read, dynamic.offset, dynamic.address, dynamic.address, dynamic.size, whole, 1),
            (0x6474E551, write, 0, 0, 0, 0, 0, 0),
            (4, read, note.offset, note.address, note.address, note.size, note.size, note.alignment),
        ]

    def _append_sections(self, file: bytearray) -> tuple[int, int]:
        """.symtab, .strtab, .shstrtab and the section headers; where these begin, and how many there are."""
        dynsym, dynstr = self.output(".dynsym"), self.output(".dynstr")
        symtab = _Output(".symtab", elf.SYMTAB, 0, 8, elf.SYMBOL.size, dynsym.content, size=dynsym.size)
        strtab = _Output(".strtab", elf.STRTAB, 0, content=dynstr.content, size=dynstr.size)
        outputs = [*self.loaded, symtab, strtab]
        strings = bytearray(b"\0")
        names = [0]
        for name in [*[out.name for out in outputs], ".shstrtab"]:
            names.append(len(strings))
            strings += name.encode() + b"\0"
        outputs.append(_Output(".shstrtab", elf.STRTAB, 0, content=strings, size=len(strings)))
        for out in outputs[-3:]:
            file += bytes(-len(file) % out.alignment)
            out.offset = len(file)
            file += out.content
        file += bytes(-len(file) % 8)
        table = len(file)
        file += bytes(elf.SECTION.size)
        numbers = {out.name: i for i, out in enumerate(outputs, 1)}
        links = {".dynsym": ".dynstr", ".gnu.hash": ".dynsym", ".hash": ".dynsym", ".dynamic": ".dynstr",
                 ".symtab": ".strtab"}  # fmt: skip
        for at, out in zip(names[1:], outputs, strict=True):
            other = numbers.get(links.get(out.name, ""), 0)
            info = 1 if out.type in (elf.SYMTAB, elf.DYNSYM) else 0  # the first symbol that isn't local
            row = (at, out.type, out.flags, out.address, out.offset, out.size, other, info, out.alignment, out.entry)
            file += elf.SECTION.pack(*row)
        return table, len(outputs) + 1


def _exported(symbol: Symbol) -> bool:
    visible = symbol.binding in (elf.GLOBAL, elf.WEAK) and symbol.visibility in (elf.DEFAULT, elf.PROTECTED)
    return visible and (elf.UNDEFINED < symbol.section < elf.RESERVED or symbol.section == elf.ABSOLUTE)


def _check(section: Section) -> None:
    if section.flags & (elf.WRITE | elf.TLS) or section.type == elf.NOBITS:
        raise LinkError(f"expected code and constants only, got the writable section {section.name}")
    if section.type not in (elf.PROGBITS, elf.NOTE):
        raise LinkError(f"expected sections of the types {elf.PROGBITS} and {elf.NOTE}, got {section.name} of type "
                        f"{section.type}")  # fmt: skip


def _output_name(section: Section) -> str:
    """.rodata.cst8 goes to .rodata, .text.k0 to .text."""
    for prefix in (".text", ".rodata"):
        if section.name == prefix or section.name.startswith(f"{prefix}."):
            return prefix
    return section.name


def _write64(content: bytearray, place: int, value: int) -> None:
    struct.pack_into("<q", content, place, value)


def _write32(content: bytearray, place: int, value: int) -> None:
    struct.pack_into("<i", content, place, value)


def _write_low(content: bytearray, place: int, value: int) -> None:
    struct.pack_into("<I", content, place, value & 0xFFFFFFFF)


def _write_high(content: bytearray, place: int, value: int) -> None:
    struct.pack_into("<I", content, place, value >> 32 & 0xFFFFFFFF)


APPLY: Final[dict[int, Callable[[bytearray, int, int], None]]] = {
    REL32: _write32,
    REL64: _write64,
    REL32_LO: _write_low,
    REL32_HI: _write_high,
}
