"""Relocatable objects for tests, by llvmlite, and what Debian's lld makes of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from llvmlite import binding

from loopgrad.codegen.targets.amdgpu import elf

TRIPLE: Final = "amdgcn-amd-amdhsa"
LLD: Final = shutil.which("ld.lld-19") or shutil.which("ld.lld")
needs_lld = pytest.mark.skipif(LLD is None, reason="ld.lld-19 (Debian's lld-19) is not installed")

_FRAME = f"""target triple = "{TRIPLE}"
{{body}}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = {{{{ "amdgpu-implicitarg-num-bytes"="0" }}}}
!llvm.module.flags = !{{{{!0}}}}
!0 = !{{{{i32 1, !"amdhsa_code_object_version", i32 500}}}}
"""
_WORDS = ", ".join(f"i64 %{name}" for name in ("table", "across", "along", "first", "end", "lanes"))


def kernel(name: str, value: int) -> str:
    return f"""define amdgpu_kernel void @{name}({_WORDS}) #0 {{
  %p = inttoptr i64 %table to ptr addrspace(1)
  %v = add i64 %lanes, {value}
  store i64 %v, ptr addrspace(1) %p
  ret void
}}
"""


def kernels(count: int) -> str:
    return "".join(kernel(f"kernel_{i}", i) for i in range(count))


def with_tables(linkage: str, section: str) -> str:
    """A kernel that reads a constant table and a distance between symbols."""
    return f"""
@table = {linkage} addrspace(4) constant [3 x i32] [i32 7, i32 8, i32 9]
@distance = internal addrspace(4) constant i32 trunc
  (i64 sub (i64 ptrtoint (ptr @k to i64), i64 ptrtoint (ptr addrspace(4) @distance to i64)) to i32){section}
define amdgpu_kernel void @k({_WORDS}) #0 {{
  %p = inttoptr i64 %table to ptr addrspace(1)
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %q = getelementptr [3 x i32], ptr addrspace(4) @table, i32 0, i32 %i
  %v = load volatile i32, ptr addrspace(4) %q
  %w = load volatile i32, ptr addrspace(4) @distance
  %s = add i32 %v, %w
  store i32 %s, ptr addrspace(1) %p
  ret void
}}
"""


def relocatable(body: str, cpu: str) -> bytes:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    module = binding.parse_assembly(_FRAME.format(body=body))
    module.verify()
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, opt=2, reloc="pic")
    return bytes(machine.emit_object(module))


def by_lld(data: bytes, folder: Path) -> bytes:
    assert LLD is not None
    source, target = folder / "kernels.o", folder / "kernels.so"
    source.write_bytes(data)
    subprocess.run([LLD, "-shared", source, "-o", target], check=True)
    return target.read_bytes()


def loaded(file: elf.Elf) -> list[tuple[object, ...]]:
    """Everything that a loader sees of the sections; whether equal constants could be merged isn't of that."""
    return [
        (s.name, s.type, s.flags & ~elf.MERGE, s.address, s.offset, s.size, s.alignment, s.content)
        for s in file.sections
        if s.flags & elf.ALLOC
    ]


def assert_same(ours: bytes, theirs: bytes) -> None:
    """Equal addresses, bytes (descriptors, notes, symbols, code) and segments."""
    a, b = elf.read(ours), elf.read(theirs)
    assert (a.ident, a.type, a.flags) == (b.ident, b.type, b.flags)
    assert a.segments == b.segments
    assert loaded(a) == loaded(b)
    assert a.dynamic == b.dynamic
    global_symbols = [[(s.name, s.info, s.other, s.value, s.size) for s in f.symbols if s.binding] for f in (a, b)]
    assert sorted(global_symbols[0]) == sorted(global_symbols[1])
