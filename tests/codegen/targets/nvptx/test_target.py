"""PTX: NVIDIA's assembler takes every primitive, arithmetic is IEEE's unless asked otherwise, loads are read-only."""

from __future__ import annotations

import re
import subprocess

import pytest

from loopgrad.codegen.kernel.nodes import Kernel, KOp
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import ArraySlot, LaunchStep, Program
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.record import Module
from loopgrad.codegen.targets.nvptx.flavour import NVPTX
from loopgrad.codegen.targets.nvptx.target import GROUP, compile_program, generate, nvptx_image
from loopgrad.graph.types import DTYPES, TensorType, bfloat16, bool_, float16, float32, float64, int32, int64, uint64
from tests.codegen.kernel.random_kernels import random_kernel
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.every_operation import DTYPE_NAMES, every_operation
from tests.codegen.targets.gpu.gpu_harness import program_of
from tests.codegen.targets.gpu.guarded_quotients import guarded_quotients
from tests.ptx_checks import ARCHITECTURES, assembler

PTXAS = assembler()
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="ptxas (PyPI: nvidia-cuda-nvcc) is not installed")


def ptx(kernel: Kernel, **options: bool) -> str:
    return compile_for(program_of(kernel), Options(**options), nvptx_image()).code.decode()


def body(text: str, entry: str = "k0") -> str:
    """The code of one kernel."""
    return text[text.index(f".entry {entry}(") :].split("\n}\n")[0]


def assembled(text: str, arch: str, tmp_path) -> str:
    """What ptxas says of registers and memory."""
    path = tmp_path / "kernels.ptx"
    path.write_text(text)
    run = subprocess.run([PTXAS, "-v", f"-arch={arch}", path, "-o", tmp_path / "out"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stderr + run.stdout


def elementwise(names, dtype, count=2) -> Kernel:
    """Each of `names` on the same operands."""
    b = Build(100)
    (lane,) = b.indices
    operands = [b.load(b.param(dtype, 100), lane) for _ in range(count)]
    for name in names:
        b.store(b.param(dtype, 100, "write"), lane, b.one(name, operands))
    return b.kernel("elementwise")


def test_the_lesser_and_the_greater_of_two_are_one_instruction() -> None:
    """Which has NaN where either is; f64 have none."""
    text = body(ptx(elementwise(("min", "max"), float32)))
    assert "min.NaN.f32" in text
    assert "max.NaN.f32" in text
    assert "setp.nan" not in text
    assert ".NaN" not in body(ptx(elementwise(("min", "max"), float64)))


def summed_products(dtype) -> Kernel:
    b = Build(100)
    (lane,) = b.indices
    x, y, z = (b.load(b.param(dtype, 100), lane) for _ in range(3))
    b.store(b.param(dtype, 100, "write"), lane, b.one("add", (b.one("mul", (x, y)), z)))
    return b.kernel("summed_products")


def saved_and_multiplied(dtype) -> Kernel:
    """A loop that pushes, and one that pops."""
    b = Build(5000)
    (lane,) = b.indices
    x, trips = b.load(b.param(dtype, 5000), lane), b.load(b.param(int32, 5000), lane)
    stack = b.stack(dtype)

    def forward(_k, v):
        b.op("push", (v,), (), stack=stack)
        return (b.one("sin", (v,)),)

    def back(_k, v):
        return (b.one("mul", (v, b.one("pop", (), dtype, stack=stack))),)

    (last,) = b.loop(trips, (x,), forward)
    (slope,) = b.loop(trips, (last,), back, reverse=True)
    b.store(b.param(dtype, 5000, "write"), lane, slope)
    return b.kernel("saved")


@pytest.mark.in_turns
@needs_ptxas
@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_every_primitive_of_every_dtype_assembles(name, tmp_path):
    text = ptx(every_operation(DTYPES[name]))
    for arch in ARCHITECTURES:
        (tmp_path / arch).mkdir()
        assembled(text, arch, tmp_path / arch)


@pytest.mark.in_turns
@needs_ptxas
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_random_control_flow_assembles(arch, tmp_path):
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        assembled(ptx(random_kernel(number)[0]), arch, tmp_path / str(number))


@needs_ptxas
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_variables_are_registers(dtype, tmp_path):
    """Neither locals nor spills lie in memory."""
    text = ptx(saved_and_multiplied(dtype))
    assert ".local" not in text
    said = assembled(text, "sm_90", tmp_path)
    assert set(re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", said)) == {("0", "0")}


def test_sums_of_products_are_fused_only_under_fast_math():
    assert "fma" not in body(ptx(summed_products(float32)))
    assert "fma.rn.f64" not in body(ptx(summed_products(float64)))
    assert "fma.rn.ftz.f32" in body(ptx(summed_products(float32), fast_math=True))


def test_quotients_and_roots_are_rounded_to_nearest():
    """Those of f32 without a subroutine: the corrected approximation, and f64 where that could go wrong."""
    assert "div.rn.f64" in ptx(elementwise(["div"], float64))
    assert "sqrt.rn.f64" in ptx(elementwise(["sqrt"], float64, 1))
    for text in (ptx(elementwise(["div"], float32)), ptx(elementwise(["sqrt"], float32, 1))):
        assert "div.rn" not in text
        assert "sqrt.rn" not in text
        assert "fma.rn.f32" in text
    assert "cvt.rn.f32.f64" in ptx(elementwise(["div"], float32))
    text = ptx(elementwise(["sin", "cos", "expm1"], float32, 1))
    assert ".ftz" not in text
    assert ".approx" not in text


def test_bfloat16_is_rounded_as_one_of_a_pair_and_only_where_bits_may_be_lost():
    """The conversion of one alone takes the unit of special functions."""
    rounded = ptx(elementwise(["add"], bfloat16))
    assert "cvt.rn.bf16x2.f32" in rounded
    assert "cvt.rn.bf16.f32" not in rounded
    for exact in (elementwise(["max", "min"], bfloat16), elementwise(["abs", "neg", "floor", "sign"], bfloat16, 1)):
        assert "cvt.rn.bf16" not in ptx(exact)


def test_neighbours_that_are_stored_together_are_rounded_together():
    """Two at once, which are then a word; each by itself where they are read again as they are."""
    lanes = 1 << 20
    b = Build(lanes)
    (lane,) = b.indices
    x = b.load(b.param(bfloat16, lanes), lane)
    b.store(b.param(bfloat16, lanes, "write"), lane, b.one("add", (x, x)))
    text = body(ptx(b.kernel("twice")))
    words = sum(text.count(f"st.global.v{n}.b32") * n for n in (2, 4))
    assert words
    assert text.count("cvt.rn.bf16x2.f32") == words


def test_exponentials_have_no_branch():
    def branches(text):
        return body(text).count("bra")

    copied = ptx(elementwise(["neg"], float32, 1))
    for dtype in (float32, bfloat16, float16):
        text = ptx(elementwise(["exp"], dtype, 1))
        assert "ex2.approx" in text
        assert branches(text) == branches(copied)


def test_quotients_of_a_lane_share_a_rare_way():
    """One test of all of them; the guards of a cotangent that is 0 aren't in the usual way."""
    b = Build(100)
    (lane,) = b.indices
    block = guarded_quotients()
    b.ops += [KOp("load", (lane,), (float32,), {"param": b.param(float32, 100)}) for _ in block.arguments]
    loads = dict(zip(block.arguments, [op.results[0] for op in b.ops], strict=True))
    for op in block.ops:
        op.operands = tuple([loads.get(v, v) for v in op.operands])
    b.ops += block.ops
    for value in block.yields:
        b.store(b.param(float32, 100, "write"), lane, value)
    kernel = b.kernel("quotients")
    text = body(ptx(kernel))
    assert text.count("rcp.approx.ftz.f32") == 1
    usual, after = re.search(r"rcp\.approx\.ftz\.f32(.*?)@%p\d+ bra\s+(\$\w+);", text, re.S).groups()
    usual += text.split(f"{after}:")[1].split("bra")[0]
    assert usual.count("st.global.b32") == 3
    assert "setp.nan" not in usual
    assert "setp.nan.f32" in text


def test_a_wide_count_is_read_in_all_its_bits():
    """2**63 isn't 0, which its lower half is."""
    for dtype in (int64, uint64):
        for name in ("shl", "shr"):
            text = body(ptx(elementwise([name], dtype)))
            assert "min.u64" in text, name  # the count is bounded as a number of 64 bits


def test_fast_math_uses_the_special_function_unit():
    text = ptx(elementwise(["sqrt", "sin", "cos", "exp", "exp2", "log", "log2", "log10"], float32, 1), fast_math=True)
    for name in ("sqrt", "sin", "cos", "ex2", "lg2"):
        assert f"{name}.approx.ftz.f32" in text
    assert "div.approx.ftz.f32" in ptx(elementwise(["div"], float32), fast_math=True)
    assert ".approx" not in ptx(elementwise(["sin", "exp"], float64, 1), fast_math=True)


def test_arrays_that_are_only_read_go_through_the_read_only_cache():
    loads = re.findall(r"ld\.global(\S*) ", body(ptx(summed_products(float32))))
    # x, y and z; the word `void` changes during a launch
    assert loads.count(".nc.b32") == 3
    assert loads.count(".b32") == 1


def test_lanes_side_by_side_read_and_write_vectors():
    """16 bytes of each array; the lanes of a last, shorter tile by themselves."""
    b = Build((1 << 22) + 1)
    (lane,) = b.indices
    x, y = (b.load(b.param(float32, (1 << 22) + 1), lane) for _ in range(2))
    b.store(b.param(float32, (1 << 22) + 1, "write"), lane, b.one("mul", (x, y)))
    text = body(ptx(b.kernel("streamed")))
    for count, vector in ((2, r"ld\.global\.nc\.v4\.b32"), (1, r"st\.global\.v4\.b32"), (1, r"st\.global\.b32")):
        assert len(re.findall(vector, text)) == count


def test_lanes_that_run_at_once_share_an_address():
    """Distances known to the compiler are part of the loads and stores."""
    b = Build(1 << 22)
    (lane,) = b.indices
    far = b.one("mul", (lane, b.const(3, int64)))
    x, y = (b.load(b.param(float32, 3 << 22), far) for _ in range(2))
    b.store(b.param(float32, 1 << 22, "write"), lane, b.one("mul", (x, y)))
    text = body(ptx(b.kernel("streamed")))
    for distance in (1024 * u for u in range(1, 4)):
        assert len(re.findall(rf"ld\.global\.nc\.b32 .*\+{3 * distance}\]", text)) == 2
        assert len(re.findall(rf"st\.global\.b32 .*\+{distance}\]", text)) == 1


def test_quotients_of_lanes_that_run_at_once_share_a_rare_way():
    b = Build(1 << 22)
    (lane,) = b.indices
    x, y = (b.load(b.param(float32, 1 << 22), lane) for _ in range(2))
    b.store(b.param(float32, 1 << 22, "write"), lane, b.one("div", (x, y)))
    text = body(ptx(b.kernel("streamed")))
    first = text.index("rcp.approx.ftz.f32")
    usual = text[first : text.index("bra", first)]
    assert usual.count("rcp.approx.ftz.f32") == 4
    assert usual.count("abs.f32") == 8


def test_a_push_in_a_loop_is_a_store_that_happens_or_not():
    """What doesn't fit is counted after the loop, once."""
    text = body(ptx(saved_and_multiplied(float32)))
    assert text.count("atom.global.max.u32") == 1
    pushed = text.index("st.global.b32")
    assert text.index("atom.global.max.u32") > text.index("bra", pushed)


def test_what_only_an_overflow_needs_is_read_there():
    text = body(ptx(saved_and_multiplied(float32)))
    assert re.search(r"ld\.global\.nc\.b64\s+(%rd\d+), \[%rd\d+\+24\];\s+atom\.global\.max\.u32 .*\[\1\+32\]", text)


def test_small_index_arithmetic_has_32_bits():
    b = Build(30, 40)
    row, column = b.indices
    x = b.load(b.param(float32, 1200), b.linear())
    b.store(b.param(float32, 1200, "write"), b.one("add", (b.one("mul", (column, b.const(30, int64))), row)), x)
    assert "div.u64" not in ptx(b.kernel("transposed"))


def test_many_sums_beside_loops_leave_room_for_eight_small_workgroups():
    def text(sums):
        b = Build(5000)
        (lane,) = b.indices
        x, trips = b.load(b.param(float32, 5000), lane), b.load(b.param(int32, 5000), lane)
        results = b.loop(trips, (x,) * sums, lambda _k, *values: tuple(b.one("sin", (v,)) for v in values))
        for value in results:
            b.reduce(value, b.param(float32, 1, "write"))
        return body(ptx(b.kernel("sums")))

    assert ".minnctapersm 8" in text(9)
    assert ".reqntid 64" in text(9)
    assert ".minnctapersm" not in text(2)
    assert ".reqntid 256" in text(2)


def test_many_sums_of_short_rows_have_as_many_registers_in_larger_workgroups():
    b = Build(40_000, 20)
    x, trips = (b.load(b.param(dtype, 800_000), b.linear()) for dtype in (float32, int32))
    for value in b.loop(trips, (x,) * 9, lambda _k, *values: tuple(b.one("sin", (v,)) for v in values)):
        b.reduce(value, b.param(float32, 40_000, "write"), rank=1)
    text = body(ptx(b.kernel("sums")))
    assert ".reqntid 256" in text
    assert ".minnctapersm 2" in text


def test_counting_trips_first_leaves_room_for_four_workgroups():
    """Where a lane by itself is small."""

    def text(dtype, names=(), size=1 << 20):
        b = Build(size)
        (lane,) = b.indices
        x, y = (b.load(b.param(dtype, size), lane) for _ in range(2))

        def body(v):
            for name in names:
                v = b.one(name, (v,))
            return (b.one("mul", (v, y)),)

        (last,) = b.while_loop((x,), lambda v: b.one("lt", (v, y), bool_), body)
        b.store(b.param(dtype, size, "write"), lane, last)
        return ptx(b.kernel("unforeseen"))

    assert ".minnctapersm 4" in text(float32)
    assert ".minnctapersm" not in text(float64)
    assert ".minnctapersm" not in text(float32, ("sin", "cos", "tan", "lgamma"))
    assert ".minnctapersm" not in text(float32, size=100)


def written(names, dtype, size=1 << 22, trips=False, **options: bool):
    b = Build(size)
    (lane,) = b.indices
    x, y = (b.load(b.param(dtype, size), lane) for _ in range(2))
    for name in names:
        operands = (x, y) if name == "pow" else (x,)
        x = b.loop(b.load(b.param(int32, size), lane), (x,), lambda _k, v, name=name: (b.one(name, (v, y)),))[0] \
            if trips else b.one(name, operands)  # fmt: skip
    b.store(b.param(dtype, size, "write"), lane, x)
    return ptx(b.kernel("written"), **options)


@pytest.mark.in_turns
@pytest.mark.parametrize(("names", "dtype", "most"), [
    (["pow"], float32, 40), (["pow"], float64, 64), (["log1p"], float32, 48), (["pow", "neg"], float32, 40),
    (["log1p", "pow"], float32, 0), (["sin", "pow"], float32, 0), (["sin"], float32, 0), (["log1p"], float64, 0),
])  # fmt: skip
@needs_ptxas
def test_recipes_bound_the_registers_of_elementwise_kernels(names, dtype, most, tmp_path):
    text = written(names, dtype)
    assert re.findall(r"\.maxnreg (\d+)", text) == [str(most)] * bool(most)
    for arch in ARCHITECTURES:
        said = assembled(text, arch, tmp_path)
        assert not most or int(re.search(r"Used (\d+) registers", said)[1]) <= most


def test_recipes_bound_no_registers_of_loops_and_of_fast_math():
    assert "maxnreg" not in written(["pow"], float32, trips=True)
    assert "maxnreg" not in written(["pow"], float32, fast_math=True)


def test_the_launch_is_declared():
    artifact = compile_program(program_of(summed_products(float32)), Options())
    text = artifact.code.decode()
    assert f".reqntid {GROUP}" in text
    assert ".target sm_80" in text
    assert ".version 8.0" in text
    assert ".visible .entry k0(" in text
    assert body(text).count(".param .u64 k0_param_") == 6
    assert artifact.program.modules[0] == Module("summed_products", 0, len(text), "k0", GROUP)
    assert set(artifact.texts) == {"kernel", "llvm", "ptx"}


@needs_ptxas
def test_many_kernels_share_a_table(tmp_path):
    """Constants of a module must fit into 64 KiB."""
    count = 12
    slots, steps = [ArraySlot(TensorType((100,), float32), "input")], []
    kernels = []
    for i in range(count):
        b = Build(100)
        (lane,) = b.indices
        x = b.one("add", (b.load(b.param(float32, 100), lane), b.const(float(i), float32)))
        b.store(b.param(float32, 100, "write"), lane, b.one("sin", (x,)))
        kernels.append(b.kernel(f"sin{i}"))
        slots.append(ArraySlot(TensorType((100,), float32), "output" if i == count - 1 else "temp"))
        steps.append(LaunchStep(i, (i, i + 1)))
    program = Program(tuple(slots), (0,), (count,), tuple(kernels), tuple(steps))
    text = compile_for(program, Options(), nvptx_image()).code.decode()
    assert text.count(".const ") == 1
    assembled(text, "sm_80", tmp_path)


def test_no_table_has_addresses_of_a_workgroups_memory():
    """ptxas refuses them as initial values: they aren't known before a launch."""
    arrays = [f"@a{i} = internal addrspace(3) global [1 x double] poison, align 16" for i in range(5)]
    cases = [f"c{i}: br label %end" for i in range(5)]
    text = f"""target triple = "{NVPTX.triple}"
{"".join(f"{array}{chr(10)}" for array in arrays)}
define {NVPTX.entry}void @k0(i64 %which, ptr addrspace(1) %out) #0 {{
  switch i64 %which, label %c0 [{" ".join(f"i64 {i}, label %c{i}" for i in range(1, 5))}]
{chr(10).join(cases)}
end:
  %p = phi ptr addrspace(3) [{"], [".join(f"@a{i}, %c{i}" for i in range(5))}]
  store double 1.0, ptr addrspace(3) %p
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
{"".join(f"  %v{i} = load double, ptr addrspace(3) @a{i}{chr(10)}" for i in range(5))}
{"".join(f"  store volatile double %v{i}, ptr addrspace(1) %out{chr(10)}" for i in range(5))}
  ret void
}}
{NVPTX.declarations}
attributes #0 = {{ {NVPTX.attributes.format(group=GROUP)} }}
"""
    assert "switch_$_table" not in generate(text)[0].decode()
    with_tables = generate(text.replace('"no-jump-tables"="true"', ""))[0].decode()
    assert "switch_$_table" in with_tables  # that there could be one
