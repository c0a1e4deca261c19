"""The linker against lld: the same addresses and bytes in everything that is loaded; refusals that say why."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.code_object import check, loadable
from loopgrad.codegen.targets.amdgpu.comgr import Comgr, ComgrError
from loopgrad.codegen.targets.amdgpu.hashes import gnu_hash, system_v_hash
from loopgrad.codegen.targets.amdgpu.linker import LinkError, link
from loopgrad.codegen.targets.amdgpu.notes import descriptor, kernel_notes, unpack
from tests.codegen.targets.amdgpu.amdgpu_objects import (
    assert_same,
    by_lld,
    kernels,
    needs_lld,
    relocatable,
    with_tables,
)

CPUS = ("gfx90a", "gfx942", "gfx1100", "gfx1201")


@needs_lld
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("count", [1, 2, 3, 9, 70])
def test_any_number_of_kernels_as_lld_links_them(cpu: str, count: int, tmp_path: Path) -> None:
    data = relocatable(kernels(count), cpu)
    assert_same(link(data), by_lld(data, tmp_path))


@needs_lld
@pytest.mark.parametrize("cpu", CPUS)
def test_every_kind_of_relocation_as_lld_resolves_it(cpu: str, tmp_path: Path) -> None:
    """Low and high halves and whole differences; a descriptor has a 64-bit one."""
    data = relocatable(with_tables("internal", ', section ".rodata"'), cpu)
    assert {r.kind for r in elf.read(data).relocations} == {4, 5, 10, 11}
    assert_same(link(data), by_lld(data, tmp_path))


@pytest.mark.parametrize("cpu", CPUS)
def test_descriptors_point_at_the_code(cpu: str) -> None:
    file = elf.read(link(relocatable(kernels(3), cpu)))
    places = {s.name: s.value for s in file.dynamic}
    for name, kernel in kernel_notes(file).items():
        found = descriptor(file, name)
        assert places[f"{name}.kd"] + found.entry == places[name]
        assert found.arguments_size == kernel.arguments_size == 48
        assert found.wave32 == (kernel.wavefront == 32) == cpu.startswith("gfx1")


def test_launch_words_are_checked() -> None:
    code = link(relocatable(kernels(2), "gfx942"))
    assert set(check(code, ["kernel_0", "kernel_1"])) == {"kernel_0", "kernel_1"}
    with pytest.raises(LinkError, match="expected a kernel other"):
        check(code, ["other"])
    file = elf.read(code)
    section, symbol = file.section(".rodata"), next(s for s in file.dynamic if s.name == "kernel_0.kd")
    assert section is not None
    wrong = bytearray(code)
    struct.pack_into("<I", wrong, section.offset + symbol.value - section.address, 64)
    with pytest.raises(
        LinkError, match="48 bytes of arguments and 0 of workgroup memory, as its note says, got 48 and 64"
    ):
        check(bytes(wrong), ["kernel_0"])
    short = "define amdgpu_kernel void @k(i64 %table) #0 {\n ret void\n}"
    with pytest.raises(LinkError, match="kernel k: expected the arguments"):
        check(link(relocatable(short, "gfx942")), ["k"])


def test_undefined_symbols_are_named() -> None:
    body = "declare double @sinh(double)\n" + kernels(1).replace("add i64 %lanes, 0", "call i64 @outside(i64 %lanes)")
    with pytest.raises(LinkError, match="undefined outside"):
        link(relocatable("declare i64 @outside(i64)\n" + body.split("\n", 1)[1], "gfx90a"))


def test_a_relocation_for_a_loader_is_refused_by_name() -> None:
    with pytest.raises(LinkError, match=r"R_AMDGPU_GOTPCREL32_LO for 'table' in \.text"):
        link(relocatable(with_tables("", ', section ".rodata"'), "gfx90a"))


def test_a_relocation_nobody_knows_is_refused_by_number() -> None:
    data = bytearray(relocatable(kernels(1), "gfx90a"))
    table = next(s for s in elf.read(bytes(data)).sections if s.name == ".rela.rodata")
    struct.pack_into("<I", data, table.offset + 8, 77)
    with pytest.raises(LinkError, match="R_AMDGPU_77 for 'kernel_0'"):
        link(bytes(data))


def test_writable_data_is_refused() -> None:
    with pytest.raises(LinkError, match=r"writable section \.data\.rel\.ro"):
        link(relocatable(with_tables("internal", ""), "gfx90a"))


def test_a_distance_that_is_too_long_is_refused() -> None:
    data = bytearray(relocatable(with_tables("internal", ', section ".rodata"'), "gfx90a"))
    table = next(s for s in elf.read(bytes(data)).sections if s.name == ".rela.rodata")
    for offset in range(table.offset, table.offset + table.size, 24):
        if struct.unpack_from("<I", data, offset + 8)[0] == 4:
            struct.pack_into("<q", data, offset + 16, 1 << 40)
    with pytest.raises(LinkError, match="too far for REL32"):
        link(bytes(data))


@pytest.mark.parametrize("keep", [0, 7, 63, 64, 500])
def test_a_piece_of_a_file_is_refused(keep: int) -> None:
    with pytest.raises(elf.ElfError):
        link(relocatable(kernels(1), "gfx90a")[:keep])


def test_other_files_are_refused() -> None:
    data = relocatable(kernels(1), "gfx90a")
    with pytest.raises(LinkError, match="expected a relocatable object"):
        link(link(data))
    with pytest.raises(elf.ElfError, match="machine 224"):
        link(data[:18] + b"\x3e\x00" + data[20:])
    with pytest.raises(elf.ElfError, match="expected a 64-bit little-endian ELF"):
        link(b"BC\xc0\xde" * 50)


def test_comgr_takes_over_and_says_so() -> None:
    """Debian's comgr 5.2 knows gfx90a."""
    try:
        version = Comgr().version
    except ComgrError as missing:
        pytest.skip(f"{missing} (Debian: libamd-comgr2)")
    code, notes = loadable(relocatable(with_tables("internal", ""), "gfx90a"), "gfx90a")
    assert len(notes) == 1
    assert notes[0].startswith(f"linked by ROCm's comgr {version}, since the linker here refused: expected code")
    check(code, ["k"])
    assert loadable(relocatable(kernels(1), "gfx90a"), "gfx90a")[1] == ()
    with pytest.raises(LinkError, match=r"writable section.*can't do it either: amd_comgr_action_info_set_isa_name"):
        loadable(relocatable(with_tables("internal", ""), "gfx90a"), "gfx0000")


def test_both_reasons_where_comgr_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopgrad.codegen.targets.amdgpu.comgr.LIBRARIES", ("libno_such_comgr.so",))
    with pytest.raises(LinkError, match=r"writable section.*libamd_comgr \(of ROCm\) not found"):
        loadable(relocatable(with_tables("internal", ""), "gfx90a"), "gfx90a")


def test_hashes_of_the_specifications() -> None:
    assert system_v_hash("printf") == 0x077905A6
    assert gnu_hash("printf") == 0x156B2BB8
    assert gnu_hash("") == 5381


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x05", 5),
        (b"\xff", -1),
        (b"\xc0", None),
        (b"\xc3", True),
        (b"\xcd\x01\x30", 304),
        (b"\xd1\xff\x00", -256),
        (b"\xcb" + struct.pack(">d", 1.5), 1.5),
        (b"\xa2ab", "ab"),
        (b"\xd9\x03abc", "abc"),
        (b"\xc4\x01z", b"z"),
        (b"\x93\x01\x02\x03", [1, 2, 3]),
        (b"\xdc\x00\x02\x01\xa1x", [1, "x"]),
        (b"\x81\xa1k\x91\x07", {"k": [7]}),
        (b"\xde\x00\x01\xa1k\xc2", {"k": False}),
    ],
)
def test_message_pack(data: bytes, value: object) -> None:
    assert unpack(data) == (value, len(data))
