"""Products of 16-bit floats for CUDA: tensor cores of warps have them, in code that every GPU of today takes; that they
are right on one `test_matrix_rectangles.py` says."""

from __future__ import annotations

import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.program import ArraySlot, MatmulStep, Program
from loopgrad.codegen.targets.nvptx.target import compile_program
from loopgrad.graph.types import TensorType, bfloat16, float16, float32
from tests.codegen.targets.nvptx.test_target import assembled, needs_ptxas
from tests.ptx_checks import ARCHITECTURES

KINDS = {bfloat16: "bf16.bf16", float16: "f16.f16", float32: ""}


def product(dtype, m, k, n, *turned):
    types = [TensorType(shape, dtype) for shape in ((m, k), (k, n), (m, n))]
    slots = tuple([ArraySlot(t, kind) for t, kind in zip(types, ("input", "input", "output"), strict=True)])
    step = MatmulStep(0, 1, 2, 1, m, k, n, *turned)
    return compile_program(Program(slots, (0, 1), (2,), (), (step,)), Options())


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_which_products_are_by_tensor_cores(dtype):
    found = product(dtype, 128, 256, 64)
    (step,), kind = found.program.steps, KINDS[dtype]
    assert step.units == bool(kind)
    assert (f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.f32" in found.code.decode()) == bool(kind)


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_order_of_factors_assembles(arch, tmp_path):
    for number, turned in enumerate(((False, False), (True, False), (False, True), (True, True))):
        text = product(bfloat16 if number % 2 else float16, 200, 136, 72, *turned).code.decode()
        trans = text.count("ldmatrix.sync.aligned.m8n8.x4.trans"), text.count("ldmatrix.sync.aligned.m8n8.x4.shared")
        assert [count > 0 for count in trans] == [turned[0] or not turned[1], turned[1] or not turned[0]]
        assembled(text, arch, tmp_path)


def test_launches_ask_for_the_memory_of_long_slabs():
    """Each slab is waited for, so few rows are as fast as slabs are long."""
    asked = [product(bfloat16, m, 1024, 1024).program.modules[0] for m in (64, 2048)]
    assert [48 << 10 < module.asked == module.shared <= 99 << 10 for module in asked] == [True, True]
    assert product(bfloat16, 64, 64, 64).program.modules[0].asked == 0
