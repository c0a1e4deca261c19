"""Sums, products and totals computed by NumPy in the order of generated code: the same bits, whatever is fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives import COMBINES, PRIMITIVES, REDUCTIONS, RUNNING_TOTALS
from loopgrad.graph.types import DType, TensorType, bfloat16, float16, float32, float64
from loopgrad.runtime.cpu.device import CpuDevice
from tests.programs.same_bits import same_bits

SHAPES = [(1,), (3,), (4,), (5,), (17,), (19,), (20,), (3, 1, 4), (2, 3, 5), (6, 9, 2), (3, 2, 4, 2), (40, 3)]
PRODUCTS = [(1, 1, 1), (2, 3, 4), (1, 16, 2), (2, 17, 1), (3, 39, 4), (2, 100, 2), (3, 0, 2)]
FLOATS = [float16, bfloat16, float32, float64]


def terms(type: TensorType, seed: int) -> np.ndarray:
    """Numbers whose sum depends on the order: of many sizes, and zeros of both signs."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(type.shape) * 2.0 ** rng.integers(-4, 5, type.shape)
    numbers[rng.random(type.shape) < 0.1] = 0.0
    return np.where(rng.random(type.shape) < 0.1, -numbers, numbers).astype(type.dtype.np)


def longer(x: Value) -> Value:
    """More operations of a term than are worth having several times."""
    for _ in range(15):
        x = ops.sub(ops.mul(x, x), ops.full(1.25, x.type))
    return x


def sums(x: Value) -> Iterator[Value]:
    rank = len(x.shape)
    for op in sorted(REDUCTIONS):
        if op not in ("reduce_and", "reduce_or"):
            for count in range(1, rank + 1):
                for axes in combinations(range(rank), count):
                    yield emit(op, (x,), {"axes": axes})[0]


def totals(x: Value) -> Iterator[Value]:
    for op in sorted(op for op in RUNNING_TOTALS if COMBINES[op] in PRIMITIVES):  # the others are left to compiled code
        for axis in range(len(x.shape)):
            for reverse in (False, True):
                yield emit(op, (x,), {"axis": axis, "reverse": reverse})[0]


def checked(graph: Graph) -> int:
    """Compare all results; how many of them ran directly."""
    device = CpuDevice()
    buffers = [device.put(terms(v.type, i)) for i, v in enumerate(graph.inputs) if isinstance(v.type, TensorType)]
    program = device.direct(graph, DEFAULT_OPTIONS)
    if program is None:
        return 0
    compiled = device.compile(graph, DEFAULT_OPTIONS).run(buffers)
    for value, a, b in zip(graph.outputs, program.run(buffers), compiled, strict=True):
        assert same_bits(a.array, b.array), (value.node, a.array, b.array)
    return 1


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("make", [sums, totals])
def test_reductions_of_every_shape(make: Callable[[Value], Iterator[Value]], dtype: DType) -> None:
    shapes = SHAPES if dtype is float64 else SHAPES[::4]
    ran = [checked(trace(lambda x: tuple(make(x)), [TensorType(shape, dtype)])[0]) for shape in shapes]
    assert sum(ran) > len(ran) // 2


@pytest.mark.parametrize("shape", [(19,), (61,), (6, 7)])
def test_long_terms_are_added_up_in_the_same_order(shape: tuple[int, ...]) -> None:
    def both(x: Value) -> tuple[Value, ...]:
        return (*sums(longer(x)), *sums(ops.exp(x)))

    assert checked(trace(both, [TensorType(shape, float64)])[0]) == 1


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), PRODUCTS)
def test_small_products(m: int, k: int, n: int, dtype: DType) -> None:
    types = [TensorType((2, m, k), dtype), TensorType((2, k, n), dtype)]
    graph = trace(lambda a, b: (ops.matmul(a, b), ops.matmul(longer(a), b)), types)[0]
    assert checked(graph) == 1


LONG = [
    ((64,), (0,)), ((1000,), (0,)), ((3, 100), (1,)), ((10, 100), (0, 1)), ((5, 6, 80), (1, 2)), ((100, 5), (0,)),
    ((100, 40), (0,)), ((2, 70, 3), (1,)), ((9, 129), (1,)),
]  # fmt: skip


@pytest.mark.in_turns
@pytest.mark.parametrize(("shape", "axes"), LONG)
def test_rows_of_any_length_are_combined_in_one_order_whatever_is_computed_beside_them(
    shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    for dtype in (float32, float64):

        def several(x: Value) -> tuple[Value, ...]:
            def reduced(op: str, x: Value) -> Value:
                return emit(op, (x,), {"axes": axes})[0]

            total = reduced("reduce_sum", longer(x))
            others = [reduced(op, x) for op in ("reduce_prod", "reduce_max", "reduce_min")]
            wide = reduced("reduce_sum", ops.cast(x, float64))
            return (total, *others, wide, ops.mul(total, total), ops.mul(x, x))

        assert checked(trace(several, [TensorType(shape, dtype)])[0]) == 1


@pytest.mark.parametrize(("shape", "axes"), [((5,), (0,)), ((4, 30), (1,)), ((3, 100), (1,))])
def test_extremes_that_are_zero_or_no_numbers(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    def both(x: Value) -> tuple[Value, ...]:
        return tuple([emit(op, (x,), {"axes": axes})[0] for op in ("reduce_max", "reduce_min")])

    graph, device = trace(both, [TensorType(shape, float64)])[0], CpuDevice()
    program, compiled = device.direct(graph, DEFAULT_OPTIONS), device.compile(graph, DEFAULT_OPTIONS)
    assert program is not None
    rng = np.random.default_rng(1)
    for numbers in ([0.0, -0.0], [0.0, -0.0, 1.0], [-0.0, 0.0, -1.0], [1.0, 2.0, np.nan, -np.nan], [1.0, np.inf]):
        given = [device.put(rng.choice(numbers, shape))]
        for a, b in zip(program.run(given), compiled.run(given), strict=True):
            assert same_bits(a.array, b.array), (numbers, a.array, b.array)


def test_what_might_share_a_kernel_with_another_order_is_compiled() -> None:
    def rows_and_all(x: Value) -> tuple[Value, ...]:
        return (ops.reduce_sum(x, (1,)), ops.reduce_sum(ops.mul(x, x), (0, 1)))

    assert checked(trace(rows_and_all, [TensorType((10, 100), float64)])[0]) == 0

    def sums_of_sums(x: Value) -> tuple[Value, ...]:
        return (ops.reduce_sum(ops.reduce_sum(x, (1,)), (0,)),)

    assert checked(trace(sums_of_sums, [TensorType((100, 20), float64)])[0]) == 0


def test_large_ones_are_compiled() -> None:
    for shape, axis in (((10_000,), 0), ((5000, 2), 0)):
        graph = trace(lambda x, axis=axis: (ops.reduce_sum(x, (axis,)),), [TensorType(shape, float32)])[0]
        assert checked(graph) == (shape == (5000, 2))
