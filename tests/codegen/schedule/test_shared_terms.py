"""Products with few rows or columns as sums: which are, for which targets, and that they are right."""

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.options import OwnProducts
from loopgrad.codegen.program import LaunchStep, MatmulStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.schedule.shared_terms import as_sums, has_few_terms, is_narrow, outpaces_library
from loopgrad.codegen.steps import all_steps
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float16, float32, float64, int32, int64


def exchanged(v):
    rank = len(v.shape)
    return ops.transpose(v, (*range(rank - 2), rank - 1, rank - 2))


def product(batch, m, k, n, turn_left=False, turn_right=False, dtype=float64):
    """The graph of a product whose operands may be transposed in memory."""

    def program(x, y):
        return [ops.matmul(exchanged(x) if turn_left else x, exchanged(y) if turn_right else y)]

    left, right = ((k, m) if turn_left else (m, k)), ((n, k) if turn_right else (k, n))
    return trace(program, [TensorType((*batch, *left), dtype), TensorType((*batch, *right), dtype)])[0]


def descent():
    def loop(n, x, y, w):
        def body(_, w):
            off = ops.sub(ops.tanh(ops.matmul(x, w)), y)
            return [ops.sub(w, ops.mul(ops.matmul(exchanged(x), off), 0.01))]

        return traced_for(n, [w], body)

    shapes = ((519, 67), (519, 1), (67, 1))
    return trace(loop, [TensorType((), int32), *[TensorType(shape, float64) for shape in shapes]])[0]


def products(program):
    return [step for step in all_steps(program.steps) if isinstance(step, MatmulStep)]


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("batch", "m", "k", "n"),
    [
        ((), 301, 203, 1),
        ((), 1, 700, 203),
        ((2, 3), 70, 130, 3),
        ((4,), 5, 501, 33),
        ((), 3, 20_000, 2),
        ((), 3, 700, 40),
        ((), 40, 700, 4),
    ],
)
def test_sums_are_the_product(batch, m, k, n, turned, rng):
    graph = product(batch, m, k, n, *turned)
    program = schedule(graph, own_products=OwnProducts.ALL)
    assert not products(program)
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float64) for v in graph.inputs]
    np.testing.assert_array_equal(interpret_program(program, arrays)[0], interpret(graph, arrays)[0])


@pytest.mark.parametrize(
    ("turned", "m", "n", "terms"),
    [((False, False), 301, 1, (301, 1, 203)), ((True, False), 301, 1, (203, 301, 1)),
     ((False, False), 1, 301, (203, 1, 301)), ((False, True), 1, 301, (301, 1, 203))],
)  # fmt: skip
def test_terms_lie_as_the_matrix_does(turned, m, n, terms):
    graph = as_sums(product((), m, 203, n, *turned), is_narrow)
    (total,) = [node for node in graph.nodes if node.op == "reduce_sum"]
    assert total.operands[0].shape == terms
    assert not any(node.op == "transpose" for node in graph.nodes)


@pytest.mark.parametrize("turned", [False, True])
def test_a_kernel_adds_up_the_terms_of_few_rows_and_reads_the_other_factor_once(turned):
    """With what else is a sum over its rows."""

    def both(x, y):
        product = ops.matmul(exchanged(y), x) if turned else ops.matmul(exchanged(x), y)
        return [product, ops.reduce_sum(y, (0,))]

    graph, _ = trace(both, [TensorType((70_000, n), float32) for n in (3, 40)])
    first, *_ = schedule(graph, own_products=OwnProducts.ALL).kernels
    assert [param.access for param in first.params].count("write") == 4


@pytest.mark.parametrize(
    ("shape", "dtype", "narrow"),
    [((1, 1000, 100), float32, True), ((100, 1000, 7), float64, True), ((100, 1000, 8), float64, False),
     ((1000, 63, 1), float64, False), ((1, 100, 100), float64, False), ((1, 1000, 100), float16, False),
     ((1, 1000, 100), int64, False)],
)  # fmt: skip
def test_which_are(shape, dtype, narrow):
    """Those that squares are of no use for, with terms to share out; whoever adds up other dtypes does so in lanes."""
    graph = product((), *shape, dtype=dtype)
    assert [is_narrow(node) for node in graph.nodes if node.op == "matmul"] == [narrow]
    assert (as_sums(graph, is_narrow) is graph) != narrow


@pytest.mark.parametrize(
    ("own", "in_loops", "alone"), [(OwnProducts.NONE, 2, 1), (OwnProducts.IN_LOOPS, 0, 1), (OwnProducts.ALL, 0, 0)]
)
def test_where_a_library_is_called_it_multiplies(own, in_loops, alone, rng):
    graph = descent()
    program = schedule(graph, own_products=own)
    assert len(products(program)) == in_loops
    assert len(products(schedule(product((), 301, 203, 1), own_products=own))) == alone
    arrays = [np.int32(3), *[rng.normal(size=v.shape) / 9 for v in graph.inputs[1:]]]
    np.testing.assert_allclose(interpret_program(program, arrays)[0], interpret(graph, arrays)[0], rtol=1e-12)


def test_each_term_has_a_lane():
    program = schedule(descent(), own_products=OwnProducts.ALL)
    launched = [program.kernels[s.kernel] for s in all_steps(program.steps) if isinstance(s, LaunchStep)]
    assert sum(np.prod(kernel.domain) == 519 * 67 for kernel in launched) == 2 + 1  # and x is transposed once


@pytest.mark.parametrize(
    ("case", "summed"),
    [
        (((), 8192, 8192, 1), True),
        (((), 8192, 8192, 1, True), False),  # columns lie beside each other
        (((), 1, 8192, 8192, False, True), True),
        (((), 1, 8192, 8192), False),
        (((), 1024, 1024, 1), False),
        (((), 2, 1 << 20, 2), True),
        (((), 4, 1 << 20, 4, True), True),  # lanes read rows of either, once
        (((), 3, 1 << 20, 64, True), True),
        (((), 5, 1 << 20, 64, True), False),
        (((), 1, 1 << 20, 16, True), True),
        (((), 1, 1 << 20, 64, True), False),
        (((), 7, 1 << 20, 7), True),
        (((8,), 8192, 8192, 1), False),
        (((), 8192, 8192, 1, False, False, float64), False),
    ],
)
def test_which_outpace_a_library(case, summed):
    """Where one is called at all; others do all narrow ones so."""
    options = dict(zip(("batch", "m", "k", "n", "turn_left", "turn_right"), case, strict=False))
    graph = product(**options, dtype=case[6] if len(case) > 6 else float32)
    assert [outpaces_library(node) for node in graph.nodes if node.op == "matmul"] == [summed]
    assert bool(products(schedule(graph, own_products=OwnProducts.IN_LOOPS))) != summed
    assert products(schedule(graph, own_products=OwnProducts.NONE))


def of_pairs(x, y):
    """Something of each of some points and each of others, (m, k), of whose distances nobody has an array."""
    shape = (x.shape[0], y.shape[0])
    return ops.mul(ops.broadcast(x, shape, (0,)), ops.broadcast(y, shape, (1,)))


def pairs(m, k, few, turned=False, right=False):
    """The graph of a product of such a matrix and `few` columns, or as many rows and it."""

    def program(x, y, z):
        made = exchanged(of_pairs(y, x)) if turned else of_pairs(x, y)
        return [ops.matmul(exchanged(z), exchanged(made)) if right else ops.matmul(made, z)]

    return trace(program, [TensorType(shape, float64) for shape in ((m,), (k,), (k, few))])[0]


@pytest.mark.parametrize("own", [OwnProducts.IN_LOOPS, OwnProducts.ALL])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "k", "few"), [(301, 203, 1), (301, 203, 3), (300, 1030, 4), (70, 1300, 2)])
def test_a_matrix_of_pairs_is_not_stored_for_few_columns(m, k, few, turned, right, own, rng):
    graph = pairs(m, k, few, turned, right)
    program = schedule(graph, own_products=own)
    assert not products(program)
    assert max(np.prod(slot.type.shape) for slot in program.slots) < m * k
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float64) for v in graph.inputs]
    np.testing.assert_array_equal(interpret_program(program, arrays)[0], interpret(graph, arrays)[0])


def picture(x, y, z):
    """A product whose rows are those of a picture's pixels."""
    shape = (20, 30, 64)
    made = ops.mul(ops.broadcast(x, shape, (1,)), ops.broadcast(y, shape, (2,)))
    return [ops.matmul(ops.reshape(made, (600, 64)), z), made]


PICTURE = [TensorType(shape, float32) for shape in ((30,), (64,), (64, 3))]


def test_a_library_multiplies_a_picture_that_is_read_again():
    graph, _ = trace(lambda x, y, z: [v for p in picture(x, y, z) for v in (p, ops.exp(p))], PICTURE)
    assert products(schedule(graph, own_products=OwnProducts.IN_LOOPS))


def test_nor_is_one_whose_rows_are_pixels_of_a_picture(rng):
    graph, _ = trace(lambda x, y, z: picture(x, y, z)[:1], PICTURE)
    made = schedule(graph, own_products=OwnProducts.IN_LOOPS)
    assert not products(made)
    assert max(np.prod(slot.type.shape) for slot in made.slots) < 600 * 64
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float32) for v in graph.inputs]
    np.testing.assert_array_equal(interpret_program(made, arrays)[0], interpret(graph, arrays)[0])


def test_a_library_multiplies_a_matrix_of_pairs_and_many_columns():
    assert products(schedule(pairs(301, 203, 8), own_products=OwnProducts.IN_LOOPS))


def test_few_terms_of_what_is_computed_are_one_sum_for_all_columns():
    """A sum for each of them would be very many."""

    def program(x, y):
        return [ops.matmul(ops.mul(x, x), y)]

    graph, _ = trace(program, [TensorType(shape, float32) for shape in ((400, 3), (3, 300))])
    assert sum(node.op == "reduce_sum" for node in as_sums(graph, has_few_terms).nodes) == 1


def test_products_of_pairs_share_the_kernel_of_their_rows_sums(rng):
    """As those of a batch do, each of whose matrices is differences between one point and all others."""

    def program(x, y, z):
        n, few = z.shape
        made, shape = of_pairs(x, y), (*x.shape, n, few)
        far = ops.sub(ops.broadcast(z, shape, (0, 2)), ops.broadcast(z, shape, (1, 2)))
        one_by_one = ops.matmul(ops.reshape(made, (n, 1, n)), far)
        return [ops.matmul(made, z), ops.reduce_sum(made, (1,)), one_by_one]

    graph, _ = trace(program, [TensorType(shape, float64) for shape in ((203,), (203,), (203, 3))])
    program = schedule(graph, own_products=OwnProducts.IN_LOOPS)
    pair_kernels = [kernel for kernel in program.kernels if np.prod(kernel.domain) >= 203 * 203]
    assert len(pair_kernels) == 1
    assert len(pair_kernels[0].reductions) == 7
    arrays = [rng.integers(-4, 5, v.shape).astype(np.float64) for v in graph.inputs]
    for found, expected in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_columns_of_what_an_array_became_are_left_to_a_library():
    """It has to be read for both anyway, and lanes that add up columns take two launches."""

    def program(x, y):
        return [ops.matmul(exchanged(ops.tanh(x)), y)]

    graph, _ = trace(program, [TensorType(shape, float32) for shape in ((1024, 256), (1024, 1))])
    assert products(schedule(graph, own_products=OwnProducts.IN_LOOPS))


@pytest.mark.parametrize(
    ("shape", "dtype", "few"),
    [((4000, 3, 3), float32, True), ((4000, 7, 4000), float64, True), ((2, 3, 4), float32, False),  # lanes' anyway
     ((4000, 8, 4), float32, False), ((4000, 3, 3), float16, True)],
)  # fmt: skip
def test_few_terms_are_added_up_by_who_reads_the_product(shape, dtype, few):
    m, k, n = shape

    def program(x, y, b):
        return [ops.add(ops.matmul(x, y), ops.broadcast(b, (m, n), (1,)))]

    graph = trace(program, [TensorType(s, dtype) for s in ((m, k), (k, n), (n,))])[0]
    assert [has_few_terms(node) for node in graph.nodes if node.op == "matmul"] == [few]
    if few:
        for own in (OwnProducts.IN_LOOPS, OwnProducts.ALL):
            (step,) = schedule(graph, own_products=own).steps
            assert isinstance(step, LaunchStep)
        assert products(schedule(graph, own_products=OwnProducts.NONE))


def test_few_terms_of_halves_are_added_up_in_float32():
    """Each product would be rounded else, and sums beyond 65,504 be infinite."""
    graph = product((), 400, 3, 2, dtype=float16)
    x, y = np.full((400, 3), 300.0, np.float16), np.asarray([[200.0, 1.25], [200.0, 1.0], [-200.0, 1.0]], np.float16)
    (found,) = interpret_program(schedule(graph, own_products=OwnProducts.ALL), [x, y])
    np.testing.assert_array_equal(found, np.broadcast_to(np.asarray([60_000.0, 975.0], np.float16), (400, 2)))
