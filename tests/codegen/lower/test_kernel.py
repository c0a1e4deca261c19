"""The shape of lowered kernels: affine reads, checks, registers, static indices."""

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.codegen.schedule import schedule
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.errors import IndexRangeError
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int32, int64


def kernel_of(function, types, options=DEFAULT_OPTIONS):
    graph, _ = trace(function, types)
    (kernel,) = schedule(graph, options).kernels
    return kernel


def all_ops(kernel):
    found, pending = [], [kernel.body]
    while pending:
        for op in pending.pop().ops:
            found.append(op)
            pending.extend(op.blocks)
    return found


def test_padding_reads_under_a_branch():
    kernel = kernel_of(lambda x: [ops.pad(x, (2, 0), (0, 0))], [TensorType((6, 5), float64)])
    assert kernel.domain == (40,)
    (branch,) = [op for op in kernel.body.ops if op.opcode == "if"]
    assert [op.opcode for op in branch.blocks[0].ops if op.opcode == "load"] == ["load"]
    assert not any(op.opcode in ("min", "max") for op in all_ops(kernel))


def test_a_concatenation_evaluates_one_operand():
    kernel = kernel_of(lambda x: [ops.concat([ops.sin(x), ops.cos(x)], 0)], [TensorType((6, 5), float64)])
    (branch,) = [op for op in kernel.body.ops if op.opcode == "if"]
    assert {op.opcode for op in branch.blocks[0].ops} & {"sin", "cos"} == {"cos"}
    assert {op.opcode for op in branch.blocks[1].ops} & {"sin", "cos"} == {"sin"}


def test_components_of_a_lane_are_registers():
    """H1: a vector rebuilt from its own components, without any index arithmetic in the loop."""

    def function(x, n):
        def body(_, q):
            a, b = ops.slice(q, (0, 0), (None, 1)), ops.slice(q, (0, 1), (None, None))
            return [ops.concat([ops.mul(a, a), ops.add(b, ops.mul(a, 0.1))], 1)]

        return traced_for(n, [x], body)

    kernel = kernel_of(function, [TensorType((9, 2), float64), TensorType((9,), int32)])
    (loop,) = [op for op in kernel.body.ops if op.opcode == "for"]
    assert sorted(op.opcode for op in loop.blocks[0].ops) == ["add", "mul", "mul"]


def test_small_tables_fold_into_constants():
    table = np.array([0.5, 0.25, 0.125])

    def function(x):
        return [ops.reduce_sum(ops.mul(x, ops.broadcast_to(ops.literal(table, float64), x.shape)), (1,))]

    kernel = kernel_of(function, [TensorType((90_000, 3), float64)])
    constants = {op.attrs["value"] for op in all_ops(kernel) if op.opcode == "const"}
    assert set(table) <= constants
    assert len(kernel.params) == 2


def test_a_gather_by_the_lane_number_reads_the_lane_itself():
    def function(x):
        return [ops.gather(x, ops.iota(TensorType((9,), int64), 0))]

    kernel = kernel_of(function, [TensorType((9,), float64)])
    assert [op.opcode for op in all_ops(kernel)] == ["load", "store"]


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_checked_indices_raise_with_the_index(op):
    def function(x, i):
        if op == "gather":
            return [ops.gather(x, i)]
        return [ops.scatter("add", x, [i], ops.gather(x, ops.iota(i.type, 0)))]

    graph, _ = trace(function, [TensorType((5,), float64), TensorType((3,), int64)])
    program = schedule(graph, Options(check_indices=True))
    interpret_program(program, [np.arange(5.0), np.array([0, 4, 2])])
    with pytest.raises(IndexRangeError, match=r"\[0, 5\), got 7"):
        interpret_program(program, [np.arange(5.0), np.array([0, 7, 2])])


def test_long_sums_along_a_lane_carry_what_their_additions_lose():
    kernel = kernel_of(lambda x: [ops.reduce_sum(x, (0,))], [TensorType((1031, 80_000), float64)])
    (loop,) = [op for op in kernel.body.ops if op.opcode == "for"]
    found = [op.opcode for op in loop.blocks[0].ops]
    assert len(loop.results) == 2
    assert found.count("load") == 4  # some terms are added up first
    assert found.count("sub") == 2
