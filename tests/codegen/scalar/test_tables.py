"""Every elementwise primitive of every dtype is made of what each target has, or this says by name what is missing."""

import pytest

from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.passes import optimise
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.targets.amdgpu.assembler import AmdgpuAssembler
from loopgrad.codegen.targets.amdgpu.flavour import AMDGPU
from loopgrad.codegen.targets.cpu.features import PLAIN, machine_from
from loopgrad.codegen.targets.cpu.module import emit_kernels
from loopgrad.codegen.targets.gpu.emit.kernel import emit_kernel
from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler
from loopgrad.codegen.targets.nvptx.flavour import NVPTX
from loopgrad.codegen.targets.spirv.assembler import SpirvAssembler
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.graph.primitives.elementwise import BINARY, COMPARE, PREDICATE, ROWS, UNARY
from loopgrad.graph.types import DTYPES, bool_
from tests.codegen.targets.cpu.kernel_build import Build

AVX512 = dict.fromkeys(("avx512f", "avx512bw", "avx512dq", "avx512vl"), True)
WIDE = machine_from("x86_64-unknown-linux-gnu", "", AVX512)
POOR = Features(fused=False, widening=False)
TARGETS = {
    "cpu without vectors": lambda kernel, fast: emit_kernels([kernel], PLAIN, Options(fast_math=fast)),
    "cpu with masks": lambda kernel, fast: emit_kernels([kernel], WIDE, Options(fast_math=fast)),
    "spirv": lambda kernel, fast: emit_kernel(kernel, SpirvAssembler(Features(), "k"), fast),
    "spirv, poor": lambda kernel, fast: emit_kernel(kernel, SpirvAssembler(POOR, "k"), fast),
    "nvptx": lambda kernel, fast: emit_kernel(kernel, NvptxAssembler(NVPTX, "k", 256, fast), fast),
    "amdgpu": lambda kernel, fast: emit_kernel(kernel, AmdgpuAssembler(AMDGPU, "k", 256, fast), fast),
}
REAL = [dtype for dtype in DTYPES.values() if dtype.kind in "biuf"]


def kernels(name):
    """(dtypes, a kernel with the primitive) for all that it takes."""
    for dtype in REAL:
        if dtype.kind not in ROWS[name].kinds:
            continue
        results = REAL if name == "cast" else [bool_] if OPCODES[name].test else [dtype]
        for result in results:
            build = Build(100)
            (lane,) = build.indices
            arity = 2 if name in BINARY or name in COMPARE or name == "select" else 1
            operands = [build.load(build.param(dtype, 100), lane) for _ in range(arity)]
            if name == "select":
                operands.insert(0, build.load(build.param(bool_, 100), lane))
            build.store(build.param(result, 100, "write"), lane, build.one(name, operands, result))
            yield f"{dtype} -> {result}", build.kernel()


@pytest.mark.in_turns
@pytest.mark.parametrize("target", TARGETS)
def test_every_primitive_of_every_dtype(target):
    missing = []
    for name in ROWS:
        for dtypes, kernel in kernels(name):
            verify_kernel(optimise(kernel))
            for fast in {False, "float" in dtypes}:
                try:
                    TARGETS[target](kernel, fast)
                except (KeyError, ValueError, IndexError) as error:
                    missing.append(f"{name} of {dtypes}: {error!r}")
    assert not missing


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("target", TARGETS)
def test_blocks_of_random_words(target, bits):
    """Two words of a block share its ten rounds, of two wide multiplications each, where words have 32 bits."""
    build = Build(100)
    (lane,) = build.indices
    dtype = DTYPES[f"uint{bits}"]
    operands = [build.load(build.param(dtype, 100), lane) for _ in range(6)]
    for word in (0, 3):
        number = build.const(word, dtype)
        build.store(build.param(dtype, 100, "write"), lane, build.one("philox", [*operands, number], dtype))
    kernel = optimise(build.kernel())
    verify_kernel(kernel)
    code = TARGETS[target](kernel, False)
    if target == "cpu without vectors":
        assert str(code).count("= mul ") == {32: 20, 64: 100}[bits]
    if target == "nvptx" and bits == 32:
        assembler = NvptxAssembler(NVPTX, "k", 256, False)
        emit_kernel(kernel, assembler, False)
        assert assembler.finish(0).count("mul.wide.u32") == 20


def test_every_primitive_is_an_opcode():
    assert {*UNARY, *BINARY, *COMPARE, *PREDICATE} <= set(OPCODES)
