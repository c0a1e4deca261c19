"""Indices as sums of multiples of a lane's indices."""

from loopgrad.codegen.kernel.linear_index import Linear, linear, places
from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.graph.types import int64


def kernel(domain, build):
    """A kernel of that domain whose body `build` writes, and the value that it returns."""
    ops, arguments = [], tuple([KValue(int64) for _ in domain])

    def op(opcode, *operands, **attrs):
        ops.append(made := KOp(opcode, operands, (int64,), attrs))
        return made.results[0]

    found = build(op, *arguments)
    return Kernel("k", domain, (), Block(arguments, ops)), found


def form(domain, build):
    made, value = kernel(domain, build)
    return linear(made).get(value)


def test_row_major_index():
    index = form((5, 7), lambda op, i, j: op("add", op("mul", i, op("const", value=7)), j))
    assert index == Linear((7, 1), 0)
    assert places(index, (5, 7)) == (0, 34)


def test_differences_go_down():
    index = form((5, 7), lambda op, _, j: op("sub", op("const", value=6), j))
    assert index == Linear((0, -1), 6)
    assert places(index, (5, 7)) == (0, 6)


def test_dims_of_one_element_count_for_nothing():
    assert form((1, 7), lambda op, i, j: op("add", op("mul", op("const", value=7), i), j)) == Linear((0, 1), 0)


def test_products_of_indices_and_other_operations_are_no_sums():
    assert form((5, 7), lambda op, i, j: op("mul", i, j)) is None
    assert form((5, 7), lambda op, i, j: op("add", op("floordiv", i, op("const", value=2)), j)) is None
