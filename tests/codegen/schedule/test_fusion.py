"""Which operations share a kernel: what the scheduler promises about launches."""

import numpy as np
import pytest

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import LaunchStep
from loopgrad.codegen.schedule.schedule import schedule
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for, traced_while
from loopgrad.graph.types import TensorType, float32, float64, int32, int64

N = 300
VECTOR = TensorType((N,), float64)
SCALAR = TensorType((), float64)


def opcodes(kernel):
    """Every opcode of a kernel, nested blocks included."""
    found, pending = [], [kernel.body]
    while pending:
        for op in pending.pop().ops:
            found.append(op.opcode)
            pending.extend(op.blocks)
    return found


def stream(x, y, a):
    fused = ops.mul(ops.sin(x), ops.exp(ops.neg(ops.mul(x, x))))
    return [ops.reduce_sum(ops.add(fused, ops.mul(ops.broadcast_to(a, x.shape), y)), (0,))]


def ragged(x, n):
    (v,) = traced_for(n, [x], lambda _, v: [ops.add(ops.sin(v), 0.1)])
    return [ops.reduce_sum(v, (0,))]


def value_and_gradient(function, wrt):
    def both(*arguments):
        (value,) = function(*arguments)
        found = vjp_emit([value], [ops.ones_like(value)], [arguments[i] for i in wrt])
        return [value, *[g for g in found if g is not None]]

    return both


def normalised(x):
    """Rows with mean 0 and variance 1, twice their sum of squares."""
    rows, columns = x.shape
    mean = ops.div(ops.reduce_sum(x, (1,)), float(columns))
    off = ops.sub(x, ops.broadcast_to(ops.reshape(mean, (rows, 1)), x.shape))
    variance = ops.div(ops.reduce_sum(ops.mul(off, off), (1,)), float(columns))
    scale = ops.sqrt(ops.add(variance, 1e-5))
    y = ops.div(off, ops.broadcast_to(ops.reshape(scale, (rows, 1)), x.shape))
    return [ops.reduce_sum(ops.mul(ops.sin(y), y), (0, 1))]


def test_no_array_is_stored_that_nothing_loads(check, rng):
    matrix = TensorType((40, 300), float64)
    both = value_and_gradient(normalised, (0,))
    program = check(both, [matrix], [rng.normal(size=(40, 300))], rtol=1e-5, atol=1e-9)
    launches = [(step, program.kernels[step.kernel].params) for step in program.steps if isinstance(step, LaunchStep)]
    touched = [(s, p.access) for step, params in launches for s, p in zip(step.slots, params, strict=True)]
    written = {slot for slot, access in touched if access == "write"}
    read = {slot for slot, access in touched if access == "read"}
    assert written <= read | set(program.outputs)


@pytest.mark.parametrize("count", [64, 100])
def test_few_columns_of_many_rows_are_reduced_by_one_kernel(check, rng, count):
    """What is the same for all columns is computed once, and no matrix of it stored."""

    def forces(x):
        shape = (count, count, 3)
        apart = ops.sub(ops.broadcast(x, shape, (0, 2)), ops.broadcast(x, shape, (1, 2)))
        size = ops.sqrt(ops.add(ops.reduce_sum(ops.mul(apart, apart), (2,)), 0.1))
        return [ops.reduce_sum(ops.div(apart, ops.broadcast_leading(size, shape)), (1,))]

    program = check(forces, [TensorType((count, 3), float64)], [rng.normal(size=(count, 3))], kernels=2)
    sums, _ = program.kernels
    assert opcodes(sums).count("sqrt") == 1
    assert max(slot.type.size for slot in program.slots) == 3 * count


def test_map_and_reduction_are_one_kernel_that_reads_each_input_once(check, rng):
    program = check(stream, [VECTOR, VECTOR, SCALAR], [rng.normal(size=N), rng.normal(size=N), 2.0], kernels=1)
    (kernel,) = program.kernels
    assert kernel.domain == (N,)
    assert opcodes(kernel).count("load") == 3
    assert opcodes(kernel).count("reduce") == 1
    assert "store" not in opcodes(kernel)


def test_value_and_gradient_of_a_map_and_reduction_are_one_kernel(check, rng):
    both = value_and_gradient(stream, (0, 1))
    program = check(both, [VECTOR, VECTOR, SCALAR], [rng.normal(size=N), rng.normal(size=N), 2.0], kernels=1)
    assert opcodes(program.kernels[0]).count("load") == 3
    assert opcodes(program.kernels[0]).count("sin") == 1


def test_a_ragged_loop_and_its_sum_are_one_kernel(check, rng):
    types = [VECTOR, TensorType((N,), int32)]
    program = check(ragged, types, [rng.normal(size=N), rng.integers(0, 9, N)], kernels=1)
    assert program.kernels[0].order_key is not None
    assert opcodes(program.kernels[0]).count("for") == 1


def test_ragged_value_and_gradient_are_one_kernel_after_the_size_evaluation(check, rng):
    types = [VECTOR, TensorType((N,), int32)]
    arrays = [rng.normal(size=N), rng.integers(0, 9, N)]
    program = check(value_and_gradient(ragged, (0,)), types, arrays, kernels=2)
    size, main = program.kernels
    assert opcodes(size).count("reduce") == 1
    assert main.domain == (N,)
    found = opcodes(main)
    assert [found.count(o) for o in ("for", "push", "pop", "reduce", "store")] == [2, 1, 1, 1, 1]
    (stack,) = main.stacks
    depth = program.steps[1].slots[stack.depth_param]
    assert depth == program.steps[0].slots[size.reductions[0].param]
    (row,) = program.residuals
    assert row.place == "kernel"
    assert "max(" in row.formula


def test_a_value_dependent_loop_and_its_gradient_are_one_kernel(check, rng):
    def root(x):
        def off(v):
            return ops.gt(ops.abs(ops.sub(ops.mul(v, ops.mul(v, v)), x)), 1e-3)

        def step(v):
            return [ops.sub(v, ops.div(ops.sub(ops.mul(v, ops.mul(v, v)), x), ops.mul(ops.mul(v, v), 3.0)))]

        return [ops.reduce_sum(traced_while([ops.ones_like(x)], off, step)[0], (0,))]

    program = check(value_and_gradient(root, (0,)), [VECTOR], [1 + rng.random(N)], kernels=1)
    assert all(s.depth_param is None for s in program.kernels[0].stacks)


def test_gradients_of_captured_parameters_are_reduced_in_the_same_kernel(check, rng):
    def loss(x, w, n):
        (v,) = traced_for(n, [x], lambda _, v: [ops.tanh(ops.mul(v, ops.broadcast_to(w, v.shape)))])
        return [ops.reduce_sum(ops.mul(v, v), (0, 1))]

    types = [TensorType((N, 3), float64), TensorType((3,), float64), TensorType((N,), int32)]
    arrays = [rng.normal(size=(N, 3)), rng.normal(size=3), rng.integers(0, 5, N)]
    program = check(value_and_gradient(loss, (0, 1)), types, arrays)
    loops = [k for k in program.kernels if "for" in opcodes(k)]
    assert len(loops) == 1
    assert len(loops[0].reductions) == 4  # the loss, and one for each of the three parameters


def test_a_loop_is_replayed_only_for_its_stack(check, rng):
    """The cotangent depends on the sum: forward and reverse can't share a kernel, so the reverse kernel runs
    the forward loop again, and the forward kernel pushes nothing."""

    def loss(x, n):
        (v,) = traced_for(n, [x], lambda _, v: [ops.add(ops.sin(v), 0.1)])
        total = ops.reduce_sum(v, (0,))
        return [ops.mul(total, total)]

    types = [VECTOR, TensorType((N,), int32)]
    program = check(value_and_gradient(loss, (0,)), types, [rng.normal(size=N), rng.integers(0, 9, N)])
    loops = [k for k in program.kernels if "for" in opcodes(k)]
    assert len(loops) == 2
    assert "push" not in opcodes(loops[0])
    assert opcodes(loops[1]).count("push") == opcodes(loops[1]).count("pop") == 1


def over_sum(e):
    return [ops.div(e, ops.broadcast_to(ops.reduce_sum(e, (0,)), e.shape))]


def test_expensive_values_are_not_computed_in_two_kernels(check, rng):
    program = check(lambda x, y: over_sum(ops.exp(ops.add(x, y))), [VECTOR] * 2, rng.normal(size=(2, N)), kernels=2)
    assert sum(opcodes(k).count("exp") for k in program.kernels) == 1


@pytest.mark.parametrize(("in_order", "computed"), [(False, 2), (True, 1)])
def test_what_is_made_of_one_array_is_computed_again_on_gpus(in_order, computed):
    """The stored value would be read as the array is, and written besides."""
    graph, _ = trace(lambda x: over_sum(ops.exp(x)), [TensorType((1 << 13,), float32)])
    program = schedule(graph, DEFAULT_OPTIONS, in_order=in_order)
    assert sum(opcodes(k).count("exp") for k in program.kernels) == computed


@pytest.mark.parametrize(("axis", "length", "computed"), [(1, 512, 1), (1, 2048, 2), (2, 512, 1)])
def test_only_what_workgroups_hold_waits_for_one(axis, length, computed):
    """Longer columns are summed by lanes: what they sum would go through memory."""
    type = TensorType((10, length, 128), float32)

    def over_sums(x):
        e = ops.exp(x)
        kept = [d for d in range(3) if d != axis]
        return [ops.div(e, ops.broadcast(ops.reduce_sum(e, (axis,)), e.shape, kept))]

    program = schedule(trace(over_sums, [type])[0], DEFAULT_OPTIONS)
    assert sum(opcodes(k).count("exp") > 0 for k in program.kernels) == computed


@pytest.mark.parametrize(
    ("length", "in_order", "across"), [(32, False, True), (32, True, True), (16, True, False), (40, False, False)]
)
def test_who_reduces_many_short_rows(length, in_order, across):
    """A lane each, or lanes for all elements."""
    rows = TensorType((1 << 13, length), float32)
    graph, _ = trace(lambda x, y: [ops.reduce_sum(ops.mul(x, y), (1,))], [rows, rows])
    (kernel,) = schedule(graph, DEFAULT_OPTIONS, in_order=in_order).kernels
    assert bool(kernel.reductions) == across


def test_windows_that_overlap_are_reduced_by_a_lane_each():
    line = TensorType(((1 << 13) + 15,), float32)

    def moving(x):
        windows = [ops.reshape(ops.slice(x, (k,), ((1 << 13) + k,)), (1 << 13, 1)) for k in range(16)]
        return [ops.reduce_sum(ops.concat(windows, 1), (1,))]

    program = schedule(trace(moving, [line])[0], DEFAULT_OPTIONS)
    assert not any(kernel.reductions for kernel in program.kernels)


def test_cheap_values_are_computed_again_rather_than_stored(check, rng):
    def centred(x):
        d = ops.add(x, 1.0)
        return [ops.sub(d, ops.broadcast_to(ops.reduce_sum(d, (0,)), x.shape))]

    program = check(centred, [VECTOR], [rng.normal(size=N)], kernels=2)
    assert sum(slot.kind == "temp" and slot.type.size == N for slot in program.slots) == 0


def test_what_is_repeated_is_stored_and_not_the_copies(check, rng):
    """Read at two places, as rows of a table are by position."""

    def shifted(x, y):
        rows = ops.broadcast(ops.exp(ops.sin(x)), (40, N), (1,))
        return [ops.add(ops.mul(y, ops.slice(rows, (0, 1), (39, N))), ops.slice(rows, (1, 0), (40, N - 1)))]

    arrays = [rng.normal(size=N), rng.normal(size=(39, N - 1))]
    program = check(shifted, [VECTOR, TensorType((39, N - 1), VECTOR.dtype)], arrays, kernels=2)
    assert [slot.type.size for slot in program.slots if slot.kind == "temp"] == [N]


def test_elements_that_all_lanes_read_stay_where_they_are():
    """Coefficients of a polynomial, for example: a launch that copies each of them saves nothing."""
    given = [TensorType((1 << 20,), float64), TensorType((4,), float64)]

    def polynomial(x, c):
        total = ops.broadcast_to(ops.reshape(ops.slice(c, (0,), (1,)), ()), x.shape)
        for k in range(1, 4):
            coefficient = ops.reshape(ops.slice(c, (k,), (k + 1,)), ())
            total = ops.add(ops.mul(total, x), ops.broadcast_to(coefficient, x.shape))
        return [total]

    graph, _ = trace(polynomial, given)
    assert len(schedule(graph, DEFAULT_OPTIONS).kernels) == 1


@pytest.mark.parametrize("in_order", [False, True])
def test_gpus_compute_positions_again_rather_than_store_them(in_order):
    def halves(x):
        place = ops.broadcast(ops.floordiv(ops.iota(TensorType((N,), int32), 0), 2), (40, N), (1,))
        return [ops.mul(ops.gather(x, place), ops.gather(ops.neg(x), place))]

    program = schedule(trace(halves, [VECTOR])[0], DEFAULT_OPTIONS, in_order=in_order)
    assert any(slot.kind == "temp" and slot.type.dtype is int32 for slot in program.slots) == in_order


def test_a_stencil_of_an_expensive_value_stores_it(check, rng):
    shape = (40, 50)

    def stencil(x):
        s = ops.sin(ops.exp(x))
        return [ops.sub(ops.slice(s, (2, 0), (None, None)), ops.slice(s, (0, 0), (38, None)))]

    program = check(stencil, [TensorType(shape, float64)], [rng.normal(size=shape)], kernels=2)
    assert sum(opcodes(k).count("sin") for k in program.kernels) == 1


def test_contiguous_programs_have_one_dimension(check, rng):
    def program_of(x, y):
        return [ops.add(ops.reshape(x, (60, 2)), ops.slice(y, (1, 0, 0), (None, None, None))), ops.mul(x, x)]

    types = [TensorType((5, 6, 4), float64), TensorType((61, 2, 1), float64)]

    def function(x, y):
        flat = ops.reshape(ops.slice(y, (1, 0, 0), (None, None, None)), (60, 2))
        return [ops.add(ops.reshape(x, (60, 2)), flat), ops.mul(x, x)]

    program = check(function, types, [rng.normal(size=(5, 6, 4)), rng.normal(size=(61, 2, 1))], kernels=1)
    assert program.kernels[0].domain == (120,)


def test_a_broadcast_row_splits_the_domain_where_it_must(check, rng):
    def rows(x, b):
        return [ops.add(x, ops.broadcast_to(b, x.shape))]

    shape = (7, 5, 6)
    types = [TensorType(shape, float64), TensorType((5, 6), float64)]
    program = check(rows, types, [rng.normal(size=shape), rng.normal(size=(5, 6))], kernels=1)
    assert program.kernels[0].domain == (7, 30)


def test_long_rows_reduce_across_lanes_and_short_columns_along_them(check, rng):
    def sums(x):
        return [ops.reduce_sum(x, (1,)), ops.reduce_max(x, (0,))]

    program = check(sums, [TensorType((60, 100), float64)], [rng.normal(size=(60, 100))], kernels=2)
    across = next(k for k in program.kernels if k.reductions)
    assert across.domain == (60, 100)
    assert across.reductions[0].rank == 1
    along = next(k for k in program.kernels if not k.reductions)
    assert along.domain == (100,)
    assert "for" in opcodes(along)


@pytest.mark.parametrize(("rows", "lanes"), [(1 << 17, 1 << 17), (1 << 10, 1 << 16)])
def test_rows_that_are_not_in_memory_are_made_by_a_lane_each_if_there_are_many(rows, lanes):
    """Whether each of some numbers is among 64 others: nothing is read that lanes of a workgroup would share."""
    shape = (rows, 64)

    def among(x, y):
        return [ops.reduce_or(ops.eq(ops.broadcast(x, shape, (0,)), ops.broadcast(y, shape, (1,))), (1,))]

    graph, _ = trace(among, [TensorType((rows,), int32), TensorType((64,), int32)])
    (kernel,) = schedule(graph, DEFAULT_OPTIONS).kernels
    assert np.prod(kernel.domain) == lanes


def test_products_call_the_library_with_transpositions_folded(check, rng):
    def product(a, b):
        return [ops.matmul(ops.transpose(a, (1, 0)), b)]

    types = [TensorType((30, 20), float64), TensorType((30, 25), float64)]
    program = check(product, types, [rng.normal(size=(30, 20)), rng.normal(size=(30, 25))], kernels=0)
    (step,) = program.steps
    assert (step.m, step.k, step.n, step.transpose_left, step.transpose_right) == (20, 30, 25, True, False)


@pytest.mark.parametrize("dtype", [float32, float64, int32, int64])
def test_one_launch_reads_integer_and_float_reductions_together(check, rng, dtype):
    def both(x):
        return [ops.reduce_sum(x, (0, 1)), ops.reduce_max(x, (0, 1)), ops.mul(x, x)]

    x = rng.integers(-9, 9, (20, 30))
    program = check(both, [TensorType((20, 30), dtype)], [x], kernels=1)
    assert [type(s) for s in program.steps] == [LaunchStep]
    assert np.prod(program.kernels[0].domain) == 600


@pytest.mark.parametrize("use", ["added to", "compared with", "carried", "multiplied", "sorted"])
def test_reductions_kept_apart_are_put_together_for_whatever_needs_them_whole(check, rng, use):
    """Few columns of many rows have a buffer each."""

    def function(x, i):
        sums = ops.reduce_sum(x, (0,))
        match use:
            case "added to":
                return [ops.scatter("add", sums, [i], ops.sin(sums))]
            case "compared with":  # by a kernel that also reads the columns
                return [ops.scatter("max", sums, [i], ops.flip(sums, (0,))), sums]
            case "carried":  # by a loop that mixes lanes, and so is a sub-program
                count = ops.full(3, TensorType((), int64))
                return traced_for(count, [sums], lambda _, v: [ops.flip(ops.cumsum(ops.sin(v), 0), (0,))])
            case "multiplied":
                square = ops.reshape(sums, (2, 2))
                return [ops.matmul(square, square)]
        return [ops.sort(sums, 0)]

    check(function, [TensorType((1000, 4), float64), TensorType((4,), int64)], [rng.random((1000, 4)), [3, 1, 1, 0]])


def test_one_value_is_stored_in_the_place_of_its_multiples(check, rng):
    """A convolution's gradient adds up shifted multiples of what costs much to compute."""
    wide, taps = TensorType((40, 60), float32), TensorType((9,), float32)

    def program(x, factors):
        out = x
        for _ in range(40):
            out = ops.sin(out)
        total = None
        for k in range(9):
            factor = ops.reshape(ops.slice(factors, (k,), (k + 1,)), ())
            i, j = divmod(k, 3)
            term = ops.pad(ops.mul(out, ops.broadcast_to(factor, out.shape)), (i, j), (2 - i, 2 - j))
            total = term if total is None else ops.add(total, term)
        return [total]

    built = check(program, [wide, taps], [rng.normal(size=t.shape) for t in (wide, taps)], rtol=1e-4, atol=1e-5)
    assert sum(slot.kind == "temp" and slot.type.size == 2400 for slot in built.slots) == 1


def test_on_a_cpu_kernels_have_results_whose_extents_nest():
    """Elsewhere lanes would divide to find out where they are. What is elementwise has no extents."""
    x, y = TensorType((6, 10, 35), float64), TensorType((14, 15, 10), float64)

    def function(a, b):
        return [ops.flip(a, (1,)), ops.cos(b), ops.flip(ops.reshape(a, (60, 35)), (0,)), ops.flip(b, (0, 2))]

    graph = trace(function, [x, y])[0]
    kernels = schedule(graph, DEFAULT_OPTIONS, in_order=True).kernels
    assert sorted([len([p for p in kernel.params if p.access == "write"]) for kernel in kernels]) == [1, 3]
    assert len(schedule(graph, DEFAULT_OPTIONS).kernels) == 1
