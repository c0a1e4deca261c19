"""Matrix products that a library computes: it reads the source of a transposed operand, which is never stored."""

from __future__ import annotations

from loopgrad.codegen.program import MatmulStep
from loopgrad.graph import ops
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float64, int64

SIZE = 40
SQUARE = TensorType((SIZE, SIZE), float64)
COUNT = TensorType((), int64)


def turned(a):
    return ops.transpose(a, (1, 0))


def test_the_source_of_a_transposed_operand_is_computed_first(check, rng):
    """The second product would be a step of the first level, since nothing stores its operand."""

    def program(a, b):
        return [ops.matmul(turned(ops.sin(ops.matmul(a, b))), b)]

    built = check(program, [SQUARE, SQUARE], [rng.normal(size=SQUARE.shape) for _ in range(2)], kernels=1)
    assert isinstance(built.steps[-1], MatmulStep)


def test_a_scatter_waits_for_a_product_that_reads_its_table_transposed(check, rng):
    def body(k, table, total):
        product = ops.matmul(turned(table), total)
        new = ops.scatter("set", table, (k,), ops.full(0.5, TensorType((SIZE,), float64)))
        return [new, ops.mul(product, 0.1)]

    arrays = [3, *[rng.normal(size=SQUARE.shape) for _ in range(2)]]
    check(lambda n, a, b: traced_for(n, [a, b], body), [COUNT, SQUARE, SQUARE], arrays)
