"""Kernels of one program: which of them share code."""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Block, BufferParam, ErrorSite, Kernel, KOp, KValue
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import ArraySlot, LaunchStep, MatmulStep, Program
from loopgrad.codegen.targets.gpu.support import steps
from loopgrad.codegen.targets.gpu.support.support_kernels import matmul_kernel
from loopgrad.codegen.targets.spirv.target import compile_program
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import DType, TensorType, bool_, float32, int64


def scaled(name: str, factor: float, line: int = 0) -> Kernel:
    """param 1 = factor * param 0; with a line, a check that names it."""
    lane = KValue(int64)
    x = KOp("load", (lane,), (float32,), {"param": 0})
    c = KOp("const", (), (float32,), {"value": factor})
    y = KOp("mul", (x.results[0], c.results[0]), (float32,))
    ops = [x, c, y, KOp("store", (lane, y.results[0]), (), {"param": 1})]
    errors: tuple[ErrorSite, ...] = ()
    if line:
        fine = KOp("const", (), (bool_,), {"value": True})
        ops += [fine, KOp("check", (fine.results[0], lane), (), {"error": 0})]
        errors = (ErrorSite("index", "lane {lane}", Location("user.py", line, "f")),)
    params = (BufferParam(float32, 8, "read"), BufferParam(float32, 8, "write"))
    return Kernel(name, (8,), params, Block((lane,), ops), errors=errors)


def modules(*kernels: Kernel) -> list[int]:
    slots = (
        ArraySlot(TensorType((8,), float32), "input"),
        *[ArraySlot(TensorType((8,), float32), "output")] * len(kernels),
    )
    steps = tuple([LaunchStep(k, (0, 1 + k)) for k in range(len(kernels))])
    program = Program(slots, (0,), tuple(range(1, len(slots))), kernels, steps)
    record = compile_program(program, Options()).program
    assert len({k.module for k in record.kernels}) == len(record.modules)
    return [k.module for k in record.kernels]


def test_kernels_that_say_the_same_share_their_code() -> None:
    assert modules(scaled("k0", 2.0), scaled("k1", 3.0), scaled("k2", 2.0)) == [0, 1, 0]


def test_products_that_differ_in_their_arrays_alone_are_made_once(monkeypatch) -> None:
    made = []

    def counted(step: MatmulStep, factors: DType, result: DType) -> Kernel:
        made.append(step)
        return matmul_kernel(step, factors, result)

    monkeypatch.setattr(steps, "matmul_kernel", counted)
    slots = (ArraySlot(TensorType((4, 4), float32), "input"), *[ArraySlot(TensorType((4, 4), float32), "temp")] * 4)
    shape = (1, 4, 4, 4)
    products = [MatmulStep(k, 0, k + 1, *shape, transpose_right=k == 2) for k in range(3)]
    program = Program(slots, (0,), (4,), (), (*products, MatmulStep(3, 3, 4, *shape)))
    record = compile_program(program, Options()).program
    assert made == products[::2]
    assert [step.by for step in record.steps] == [0, 0, 1, 0]


def test_a_kernel_whose_failures_name_a_line_keeps_its_own_code() -> None:
    assert modules(scaled("k0", 2.0, line=3), scaled("k1", 2.0, line=4)) == [0, 1]
