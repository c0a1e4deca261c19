"""The plan's rows for stacks: size expressions as text."""

from loopgrad.codegen.schedule.residuals import LONGEST, formula
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.types import TensorType, int32, int64

COUNTS = TensorType((8,), int32)


def text(function, types):
    graph, _ = trace(lambda *arguments: [function(*arguments)], types)
    return formula(graph.outputs[0], {v: f"input{i}" for i, v in enumerate(graph.inputs)})


def test_arithmetic_and_reductions_read_like_the_source():
    def depth(n, m):
        return ops.reduce_max(ops.cast(ops.sub(ops.mul(n, 2), m), int64), (0,))

    assert text(depth, [COUNTS, COUNTS]) == "max(((input0 * 2) - input1))"


def test_lookups_show_table_and_index():
    assert text(ops.gather, [COUNTS, TensorType((3,), int64)]) == "input0[input1]"


def test_large_expressions_are_cut():
    def depth(n):
        for _ in range(60):
            n = ops.max(ops.add(n, n), ops.mul(n, n))
        return n

    found = text(depth, [COUNTS])
    assert len(found) <= LONGEST
    assert found.startswith("max(")
