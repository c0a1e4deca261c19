"""Products of matrices and factorisations of programs that run directly: the bits of compiled code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule.factorisations import WORTH_LOOPS
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace, unbound
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import DType, TensorType, float16, float32, float64
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.direct_program import CpuDirectProgram
from loopgrad.runtime.session import SESSION
from tests.programs.same_bits import same_bits

CPU = CpuDevice()

# rows, terms, columns: both wide, few rows or columns, a tie of these, one term, more than are added at once
EXTENTS = [(9, 300, 8), (64, 33, 70), (100, 40, 1), (3, 257, 90), (5, 100, 5), (30, 1, 30), (2, 8200, 40), (1, 600, 1)]


def turned(value: Value) -> Value:
    rank = len(value.shape)
    (result,) = emit("transpose", (value,), {"perm": (*range(rank - 2), rank - 1, rank - 2)})
    return result


def as_it_is(value: Value) -> Value:
    return value


def squared(value: Value) -> Value:
    return ops.mul(value, value)


def both(graph: Graph, arrays: Sequence[np.ndarray]) -> None:
    """Compare the graph run directly with the compiled one."""
    device = CpuDevice()
    program, buffers = device.direct(graph, DEFAULT_OPTIONS), [device.put(a) for a in arrays]
    assert program is not None
    found, expected = program.run(buffers), device.compile(unbound(graph), DEFAULT_OPTIONS).run(buffers)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert same_bits(a.array, b.array), i


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [float64, float32, float16], ids=str)
@pytest.mark.parametrize("alone", [True, False])
def test_products_have_the_bits_of_compiled_code(dtype: DType, alone: bool) -> None:
    rng, arrays, makers = np.random.default_rng(0), [], []
    for m, k, n in EXTENTS:
        for left, right, after in (
            (as_it_is, as_it_is, squared),
            (turned, as_it_is, turned),
            (squared, turned, turned),
        ):
            shapes = (k, m) if left is turned else (m, k), (n, k) if right is turned else (k, n)
            batch = (2,) if m * k * n < 20_000 else ()
            arrays.append([rng.normal(size=(*batch, *shape)).astype(dtype.np) for shape in shapes])
            makers.append((left, right, after))

    def function(*values: Value) -> tuple[Value, ...]:
        pairs = zip(values[::2], values[1::2], makers, strict=True)
        return tuple([after(ops.matmul(left(a), right(b))) for a, b, (left, right, after) in pairs])

    given = [a for pair in arrays for a in pair]
    graph = trace(function, [TensorType(a.shape, dtype) for a in given])[0]
    if not alone:
        both(graph, given)
        return
    device = CpuDevice()
    expected = device.compile(unbound(graph), DEFAULT_OPTIONS).run([device.put(a) for a in given])
    with lg.default_device("cpu"):
        for pair, (left, right, after), buffer in zip(arrays, makers, expected, strict=True):
            a, b = [lg.asarray(x) for x in pair]
            made = [lg.matrix_transpose(x) if how is turned else x * x if how is squared else x
                    for x, how in ((a, left), (b, right))]  # fmt: skip
            product = made[0] @ made[1]
            result = lg.matrix_transpose(product) if after is turned else product * product
            assert same_bits(np.asarray(result), buffer.array), (pair[0].shape, pair[1].shape)


def test_a_factor_that_passes_find_to_be_transposed() -> None:
    """One transposed twice, one multiplied by 1.0, a slice of all of it: the long factor's order follows from these."""

    def function(x: Value, y: Value) -> tuple[Value, ...]:
        one = ops.full(1.0, x.type)
        twice = turned(turned(x))
        whole = emit("slice", (turned(y),), {"start": (0, 0), "stop": y.shape[::-1], "step": (1, 1)})[0]
        return ops.matmul(twice, y), ops.matmul(turned(ops.mul(x, one)), whole), ops.matmul(ops.mul(x, one), y)

    rng = np.random.default_rng(1)
    shapes = (7, 130), (130, 7)
    graph = trace(function, [TensorType(s, float64) for s in shapes])[0]
    both(graph, [rng.normal(size=s) for s in shapes])


FACTORISED: list[Callable[[lg.Tensor], object]] = [
    lg.linalg.cholesky,
    lg.linalg.qr,
    lg.linalg.eigh,
    lg.linalg.svd,
    lg.linalg.inv,
    lg.linalg.det,
    lambda a: lg.linalg.solve(a, a[..., :2]),
    lambda a: lg.linalg.lstsq(a, a[..., 0])[0] if a.ndim == 2 else lg.linalg.slogdet(a),
    lambda a: lg.linalg.pinv(a)[..., 0],
    lg.linalg.eigvals,
]


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("count", [0, 3, WORTH_LOOPS])
def test_factorisations_run_directly_to_the_bits_of_compiled_code(dtype: str, count: int) -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(size=(*((count,) if count else ()), 5, 5)).astype(dtype)
    a = a @ a.swapaxes(-1, -2).conj() + np.eye(5, dtype=dtype)

    def results(direct: bool) -> list[np.ndarray]:
        with lg.default_device("cpu"), lg.options(direct=direct):
            found = [lg.tree.flatten(function(lg.asarray(a)))[0] for function in FACTORISED]
            for each in found:  # at once, as the program of a known call gives them: who factorises depends on that
                lg.eval(*each)
            return [np.asarray(x) for each in found for x in each]

    SESSION.clear()
    before = SESSION.compiled
    directly = results(True)
    if count < WORTH_LOOPS:
        assert SESSION.compiled == before  # lanes do many, as code that is compiled for them
    for x, y in zip(directly, results(False), strict=True):
        assert same_bits(x, y)


def test_a_singular_matrix_is_refused_where_it_is_evaluated() -> None:
    with lg.default_device("cpu"):
        inverse = lg.linalg.inv(lg.zeros((3, 3)))
        with pytest.raises(np.linalg.LinAlgError):
            np.asarray(inverse)


def test_a_transpose_that_was_computed_lies_in_rows() -> None:
    """Who holds its elements multiplies by them in the order of any array; who doesn't, by those of the source."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(130, 70)), rng.normal(size=(130, 3))

    def product(turned_before: bool, direct: bool) -> np.ndarray:
        with lg.default_device("cpu"), lg.options(direct=direct):
            x = lg.matrix_transpose(lg.asarray(a))
            if turned_before:
                np.asarray(x)
            return np.asarray(x @ lg.asarray(b))

    for turned_before in (True, False):
        assert same_bits(product(turned_before, True), product(turned_before, False))


@pytest.mark.parametrize("extents", [(3, 16, 5000), (4096, 1, 3)])
def test_products_that_are_made_transposed(extents: tuple[int, int, int]) -> None:
    """Compiled code makes these by their transposes: lanes multiply in the one order, a routine in the other."""
    m, k, n = extents
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (m, k)) / 3, rng.integers(-9, 9, (k, n)) / 7

    def transposed() -> np.ndarray:
        return np.asarray(lg.matrix_transpose(lg.asarray(a) @ lg.asarray(b)))

    with lg.default_device("cpu"):
        found = transposed()
        with lg.options(direct=False):
            assert same_bits(found, transposed())


def test_what_calls_routines_is_compiled_where_code_would_save_time() -> None:
    """Compiled code asks Python for the same routines: beside them there must be something to compile."""
    rng = np.random.default_rng(3)
    a, x = rng.normal(size=(4, 4)) + 4.0 * np.eye(4), rng.normal(size=(300, 300))
    with lg.default_device("cpu"):
        SESSION.clear()
        before, matrix, rows = SESSION.compiled, lg.asarray(a), lg.asarray(x)
        for _ in range(2000):
            lg.eval(lg.linalg.inv(matrix))
        assert SESSION.compiled == before
        for _ in range(2000):
            result = lg.tanh(rows * 1.5) + lg.linalg.inv(matrix)[0, 0]
            lg.eval(result)
            if SESSION.compiled > before:
                break
        assert SESSION.compiled > before
        np.testing.assert_allclose(result, np.tanh(x * 1.5) + np.linalg.inv(a)[0, 0], rtol=1e-12)


def test_operations_on_numbers_that_stay_are_done_once() -> None:
    """What a script changes from run to run is computed with each time."""
    type = TensorType((3, 3), float64)

    def program(number: float) -> CpuDirectProgram:
        def added(x: Value) -> list[Value]:
            diagonal = ops.eq(ops.iota(type, 0), ops.iota(type, 1))
            return [ops.add(x, ops.select(diagonal, ops.full(number, type), ops.full(0.0, type)))]

        found = CPU.direct(trace(added, [type])[0], DEFAULT_OPTIONS)
        assert isinstance(found, CpuDirectProgram)
        return found

    x = np.arange(9.0).reshape(3, 3)
    given, varying, staying = [CPU.put(x, copy=False)], program(0.3), program(1.0)
    assert len(varying.operations) == 2, "what is added, which differs, and the sum"
    for number in (0.3, 7.25, -4.0):
        other = varying.with_numbers([number])
        assert other is not None
        np.testing.assert_array_equal(other.run(given)[0].array, x + number * np.eye(3))
    assert len(staying.operations) == 1
    np.testing.assert_array_equal(staying.run(given)[0].array, x + np.eye(3))
