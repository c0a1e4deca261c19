"""Kernels to code objects: every primitive of every dtype, tables that became code, modes of the hardware."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.targets.amdgpu import elf
from loopgrad.codegen.targets.amdgpu.architectures import WAVEFRONT, architecture
from loopgrad.codegen.targets.amdgpu.assembler import AmdgpuAssembler
from loopgrad.codegen.targets.amdgpu.intrinsics import ALLOWED, UnknownFunctionError
from loopgrad.codegen.targets.amdgpu.linker import link
from loopgrad.codegen.targets.amdgpu.notes import descriptor, kernel_notes, note
from loopgrad.codegen.targets.amdgpu.target import AmdgpuImage, assembly, lowered, relocatable
from loopgrad.codegen.targets.amdgpu.update import update_code_object, update_text
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.lanes.layout import plan
from loopgrad.codegen.targets.gpu.lanes.plan import UNTILED
from loopgrad.codegen.targets.gpu.support.support_kernels import fill_kernel
from loopgrad.codegen.targets.gpu.support.update_list import ENTRY
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler
from loopgrad.graph.types import DTYPES, DType, bool_, float32, float64, int32
from tests.codegen.targets.amdgpu.amdgpu_objects import assert_same, by_lld, needs_lld
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.every_operation import DTYPE_NAMES, every_operation
from tests.codegen.targets.gpu.gpu_harness import program_of
from tests.simulator.code import HostAssembler
from tests.simulator.device import SimulatorDevice

CPUS = ("gfx90a", "gfx942", "gfx1100")


def compiled(kernel: Kernel, cpu: str) -> tuple[str, bytes]:
    """The module's text, and the linked code."""
    image = AmdgpuImage(cpu, listing=False)
    image.add(kernel, False, plan(kernel, DEFAULT_OPTIONS, image.geometry))
    _, code, texts = image.finish()
    return texts["llvm"], code


WIDE = ("float32", "float64", "int32", "int64")  # others are computed in these, and see one processor each
ONE_EACH = [(name, CPUS[k % len(CPUS)]) for k, name in enumerate(DTYPE_NAMES) if name not in WIDE]


@pytest.mark.in_turns
@pytest.mark.parametrize(("name", "cpu"), [*[(name, cpu) for name in WIDE for cpu in CPUS], *ONE_EACH])
def test_every_primitive_becomes_instructions(name: str, cpu: str) -> None:
    """LLVM neither gives up nor leaves a table: the read-only data are the kernel's 64 bytes."""
    _, code = compiled(every_operation(DTYPES[name]), cpu)
    file = elf.read(code)
    section = file.section(".rodata")
    assert section is not None
    assert section.size == 64
    assert kernel_notes(file)["k0"].wavefront == WAVEFRONT[cpu]


@pytest.mark.in_turns
@needs_lld
@pytest.mark.parametrize("cpu", CPUS)
def test_linked_as_by_lld(cpu: str, tmp_path: Path) -> None:
    text, code = compiled(every_operation(DTYPES["float32"]), cpu)
    assert_same(code, by_lld(relocatable(text, cpu), tmp_path))


USES_ALL = """
import sys
from loopgrad.codegen.targets.amdgpu.flavour import AMDGPU
from loopgrad.codegen.targets.amdgpu.assembler import AmdgpuAssembler
from loopgrad.codegen.targets.amdgpu.intrinsics import ALLOWED
from loopgrad.codegen.targets.amdgpu.target import lowered
from loopgrad.codegen.targets.llvm_rows import TYPE
COUNT = {"fma": 3, "fmuladd": 3, "fshl": 3, "fshr": 3, "minnum": 2, "maxnum": 2, "copysign": 2}
ONE = ("ctpop", "bswap")
for name in sorted(ALLOWED):
    function, type = name[5:].rsplit(".", 1)
    kind = TYPE.get(type, type)
    count = COUNT.get(function, 1 if type[0] == "f" or function in ONE else 2)
    operands, types = [f"{kind} %x"] * count, [kind] * count
    result, use = kind, "%r"
    lines = [f"%x = load {kind}, ptr addrspace(1) %p"]
    if function == "is.fpclass":
        result, name = "i1", name
        operands.append("i32 3"); types.append("i32")
    if function in ("abs", "ctlz", "cttz"):
        operands[1] = "i1 false"; types[1] = "i1"
    if function.endswith("overflow"):
        result = "{ %s, i1 }" % kind
    if function in ("scmp", "ucmp"):
        name, result = f"llvm.{function}.i8.{type}", "i8"
    text = f'''target triple = "{AMDGPU.triple}"
{AMDGPU.declarations}
declare {result} @{name}({", ".join(types)})
define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
  %x = load {kind}, ptr addrspace(1) %p
  %r = call {result} @{name}({", ".join(operands)})
  store {result} %r, ptr addrspace(1) %p
  ret void
}}
!0 = !{{}}
'''
    with lowered(text, sys.argv[1]) as (machine, module):
        machine.emit_object(module)
sys.stdout.write(f"{len(ALLOWED)} functions")
"""


@pytest.mark.in_turns
@pytest.mark.parametrize("cpu", CPUS)
def test_every_function_that_is_allowed_lowers(cpu: str) -> None:
    """In a process of its own: LLVM ends it otherwise."""
    done = subprocess.run([sys.executable, "-c", USES_ALL, cpu], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{len(ALLOWED)} functions"), done.stderr[-2000:]


@pytest.mark.parametrize("function", ["llvm.sin.f64", "llvm.tan.f32", "llvm.pow.f64", "llvm.atan2.f32"])
def test_a_function_that_would_end_the_process_is_refused(function: str) -> None:
    kind = {"f64": "double", "f32": "float"}[function[-3:]]
    operands = ", ".join([f"{kind} %x"] * (2 if "pow" in function or "2" in function[5:10] else 1))
    types = operands.replace(" %x", "")
    text = f"""target triple = "amdgcn-amd-amdhsa"
declare {kind} @{function}({types})
define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
  %x = load {kind}, ptr addrspace(1) %p
  %r = call {kind} @{function}({operands})
  store {kind} %r, ptr addrspace(1) %p
  ret void
}}
"""
    with pytest.raises(UnknownFunctionError, match=f"got {function}"), lowered(text, "gfx942"):
        pass


def test_branches_that_give_constants_make_no_table() -> None:
    """LLVM turns such a ladder into a load from a table for some targets."""
    b = Build(64)
    source, target = b.param(int32, 64), b.param(int32, 64, "write")
    (lane,) = b.indices
    chosen = b.load(source, lane)

    def ladder(i: int, constants: list[int]):
        if not constants:
            return (b.const(-1, int32),)
        here = b.one("eq", (chosen, b.const(i, int32)), bool_)
        first = lambda: (b.const(constants[0], int32),)  # noqa: E731
        return b.branch(here, first, lambda: ladder(i + 1, constants[1:]), (int32,))

    (value,) = ladder(0, [17, 5, 90, -4, 33, 2, 8, 71])
    b.store(target, lane, value)
    _, code = compiled(b.kernel("ladder"), "gfx942")
    section = elf.read(code).section(".rodata")
    assert section is not None
    assert section.size == 64


@pytest.mark.parametrize("cpu", CPUS)
def test_memory_of_a_workgroup_means_compute_unit_mode(cpu: str) -> None:
    """RDNA alone has the other mode, where two compute units share a workgroup; kernels without such memory
    keep it."""
    b = Build(5000)
    values, total = b.param(float32, 5000), b.param(float32, 1, "write")
    b.reduce(b.load(values, b.indices[0]), total)
    image = AmdgpuImage(cpu, listing=False)
    folding = b.kernel("total")
    image.add(folding, False, plan(folding, DEFAULT_OPTIONS, image.geometry))
    image.add(fill_kernel(float32, 1.0), False, UNTILED)
    rows, code, _ = image.finish()
    file = elf.read(code)
    memory = {row.entry: row.shared for row in rows}
    assert memory["k0"] > 0
    assert memory["k1"] == 0
    for kernel in note(file)["amdhsa.kernels"]:
        assert kernel[".group_segment_fixed_size"] == memory[kernel[".name"]]
        assert descriptor(file, kernel[".name"]).group_memory == memory[kernel[".name"]]
        wide = kernel.get(".workgroup_processor_mode", 0)
        assert wide == (cpu == "gfx1100" and kernel[".name"] == "k1")


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda dtype: dtype.name)
def test_products_and_sums_are_rounded_one_by_one(dtype: DType, cpu: str) -> None:
    """Unless fast_math asks for less; the same bits as on other devices depend on it."""
    b = Build(64)
    (lane,) = b.indices
    x, y, z = (b.load(b.param(dtype, 64), lane) for _ in range(3))
    b.store(b.param(dtype, 64, "write"), lane, b.one("add", (b.one("mul", (x, y)), z)))
    kernel = b.kernel("product")
    for fast in (False, True):
        image = AmdgpuImage(cpu, listing=False)
        image.add(kernel, fast, UNTILED)
        code = assembly(image.text(), cpu)
        fused = re.search(r"v_(dual_)?(fma|fmac|mac|mad|pk_fma)_f", code) is not None
        separate = "v_mul_f" in code and "v_add_f" in code
        assert (fused, separate) == (fast, not fast), code


def test_a_program_without_kernels_has_no_code() -> None:
    rows, code, texts = AmdgpuImage("gfx1100", listing=True).finish()
    assert (rows, code) == ([], b"")
    assert "amdgpu" in texts


@needs_lld
@pytest.mark.parametrize("cpu", CPUS)
def test_the_update_kernel_is_a_code_object(cpu: str, tmp_path: Path) -> None:
    code = update_code_object(cpu)
    assert list(kernel_notes(elf.read(code))) == [ENTRY]
    assert_same(code, by_lld(relocatable(update_text(), cpu), tmp_path))


def test_tables_that_became_selects_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large angles look up digits of 2/pi; on the simulator, by the tree that AMD code has."""
    angles = np.array([1e6, 7e9, 1e22, 3e100, 1.7e308, -4e50, 0.5])
    looked_up: list[int] = []

    def counted(b: LlvmAssembler, type: str, values: tuple[int, ...], first: Val, count: int) -> list[Val]:
        looked_up.append(len(values))
        return AmdgpuAssembler.lookup(b, type, values, first, count)  # type: ignore[arg-type]

    monkeypatch.setattr(HostAssembler, "lookup", counted, raising=False)
    b = Build(len(angles))
    source, sines, cosines = b.param(float64, 7), b.param(float64, 7, "write"), b.param(float64, 7, "write")
    angle = b.load(source, b.indices[0])
    b.store(sines, b.indices[0], b.one("sin", (angle,)))
    b.store(cosines, b.indices[0], b.one("cos", (angle,)))
    device = SimulatorDevice(0)
    artifact = device.emit(program_of(b.kernel("large")), DEFAULT_OPTIONS)
    executable = device.load(artifact, DEFAULT_OPTIONS, None, "")
    results = [device.get(r) for r in executable.run([device.put(a) for a in (angles, angles, angles)])]
    assert looked_up
    np.testing.assert_allclose(results[0], np.sin(angles), rtol=1e-14)
    np.testing.assert_allclose(results[1], np.cos(angles), rtol=1e-14)


def test_architectures() -> None:
    assert architecture("gfx90a:sramecc+:xnack-") == "gfx90a"
    with pytest.raises(ValueError, match=r"expected an AMD GPU of gfx900, .*, got 'gfx803'"):
        architecture("gfx803")
    b = Build(10)
    b.store(b.param(int32, 10, "write"), b.indices[0], b.const(7, int32))
    kernel = b.kernel("seven")
    for cpu, wavefront in WAVEFRONT.items():
        text, code = compiled(kernel, cpu)
        file = elf.read(code)
        assert kernel_notes(file)["k0"].wavefront == wavefront
        assert descriptor(file, "k0").wave32 == (wavefront == 32)
        assert f"amdgcn-amd-amdhsa--{cpu}".encode() in code
        assert link(relocatable(text, cpu)) == code
    assert "global_store" in assembly(text, cpu)
