"""Loaded code: its memory, and what is said where there is none."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.runtime.cpu import loader
from loopgrad.runtime.cpu.loader import LIBRARIES, Code

TEXT = "define i64 @entry(i64 %a) {\n  %r = add i64 %a, 5\n  ret i64 %r\n}\n"


def add_five(code: Code, number: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("entry"))(number))


def test_code_is_unloaded_before_the_next_is_linked() -> None:
    image = compile_module(TEXT, host_machine())
    kept = Code(image, ("entry",))
    before = len(loader._loaded)
    for _ in range(2 * LIBRARIES):
        assert add_five(Code(image, ("entry",)), 2) == 7
        assert len(loader._loaded) <= before + 2
    gc.collect()
    assert add_five(kept, 1) == 6, "its linker stays with it"
    loader.unload()
    assert len(loader._loaded) <= before


UNDER_A_LIMIT = """
import resource, sys
import loopgrad as lg
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.llvm import compile_module
from loopgrad.runtime.cpu.loader import Code
small = "define i64 @entry(i64 %a) { ret i64 %a }"
large = "@table = internal global [200000000 x i8] zeroinitializer\\ndefine ptr @entry() { ret ptr @table }"
images = [compile_module(text, host_machine()) for text in (small, large)]
Code(images[0], ("entry",))
with open("/proc/self/statm") as file:
    held = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 100_000_000, resource.RLIM_INFINITY))
try:
    Code(images[1], ("entry",))
except MemoryError as error:
    print(error)
Code(images[0], ("entry",))
print("works again")
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_a_program_that_finds_no_room_is_a_memory_error() -> None:
    command = [sys.executable, "-c", UNDER_A_LIMIT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "expected memory for its" in done.stdout
    assert done.stdout.endswith("works again\n")
