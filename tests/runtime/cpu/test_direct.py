"""Programs that run without being compiled: the same bits as compiled ones, and when they stop."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives import FAMILIES, PRIMITIVES
from loopgrad.graph.types import DTYPES, DType, TensorType, bool_, float32, float64, int64
from loopgrad.runtime.cpu import direct
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.direct_program import CpuDirectProgram
from loopgrad.runtime.executable import DirectProgram, Executable
from loopgrad.runtime.session import COMPILING, Session
from tests.programs.same_bits import same_bits

REAL = [dtype for dtype in DTYPES.values() if dtype.kind != "c"]
NUMBERS = [
    0.0, -0.0, 1, -1, 2, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 7, -7, 0.1, -0.3, np.inf, -np.inf, np.nan, 1e-3, 255.5, 65504,
    65520, 1e5, 127.5, -129, 2.0**31, 2.0**31 - 1, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 1e30, 1e300,
    5e-324, 1e-40, 6e-8, 3e-8, 1 + 2**-8 + 2.0**-40, 1 + 3 * 2**-8 - 2.0**-40, 1 + 2**-11 + 2.0**-40,
    1 + 2**-24 + 2.0**-50,
]  # fmt: skip
WHOLE = [
    0,
    1,
    -1,
    2,
    3,
    -3,
    5,
    7,
    -8,
    13,
    31,
    32,
    33,
    63,
    64,
    65,
    -64,
    100,
    2049,
    (1 << 25) + 3,
    (1 << 30) + (1 << 22) + 1,
]
WIDE = [(1 << 32) + (1 << 24) + 1, (1 << 40) + (1 << 32) + 1, (1 << 53) + 1, (1 << 62) + (1 << 54) + 1]


def special(dtype: DType) -> np.ndarray:
    """Numbers at which functions have edges, and elements of random bits."""
    if dtype is bool_:
        return np.array([False, True])
    bits = np.random.default_rng(1).integers(0, 256, 24 * dtype.itemsize, dtype=np.uint8).view(dtype.np)
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.concatenate([np.array(NUMBERS).astype(dtype.np), bits])
    limits = np.iinfo(dtype.np)
    ends = [limits.min, limits.min + 1, limits.max // 2, limits.max - 1, limits.max]
    numbers = [n for n in (*WHOLE, *WIDE) if limits.min <= n <= limits.max]
    return np.concatenate([np.array([*ends, *numbers], dtype.np), bits])


def elementwise(dtype: DType, count: int) -> Graph:
    """Every elementwise primitive of two arrays of a dtype, and of bools."""
    type = TensorType((count,), dtype)
    x, y, pred = Value(type), Value(type), Value(TensorType((count,), bool_))
    nodes, arities = [], ((x,), (x, y), (pred, x, y))
    for op, row in FAMILIES["elementwise"].items():
        if dtype.kind not in row.kinds:
            continue
        choices: list[dict[str, DType]] = [{}, *[{"dtype": d} for d in REAL]]
        possible = [(o, attrs) for o in arities for attrs in choices if accepts(op, o, attrs)]
        assert possible, op
        fewest = [one for one in possible if one[0] is possible[0][0]]
        distinct = fewest if "dtype" in possible[0][1] else possible[:1]
        nodes += [Node(op, operands, row.infer(operands, attrs, ()), attrs) for operands, attrs in distinct]
    return Graph((x, y, pred), tuple(nodes), tuple([node.results[0] for node in nodes]))


def accepts(op: str, operands: tuple[Value, ...], attrs: dict[str, DType]) -> bool:
    try:
        PRIMITIVES[op].infer(operands, attrs, ())
    except (TypeError, ValueError, KeyError):  # another number of operands, or an attribute is missing
        return False
    return True


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_every_elementwise_primitive_has_the_bits_of_compiled_code(dtype: DType) -> None:
    device, numbers = CpuDevice(), special(dtype)
    x, y = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    pred = np.random.default_rng(2).integers(0, 2, x.shape).astype(np.bool_)
    graph = elementwise(dtype, x.size)
    assert len(graph.nodes) > 15
    buffers = [device.put(a) for a in (x, y, pred)]
    compiled, program = device.compile(graph, DEFAULT_OPTIONS), device.direct(graph, DEFAULT_OPTIONS)
    assert program is not None
    for node, a, b in zip(graph.nodes, program.run(buffers), compiled.run(buffers), strict=True):
        assert same_bits(a.array, b.array), node


@pytest.mark.parametrize("count", [0, 1, 3, 64, 65, 1025])
def test_functions_of_any_number_of_elements(count: int) -> None:
    device, x = CpuDevice(), np.linspace(-3.0, 3.0, count)
    graph = trace(lambda v: (ops.exp(v), ops.pow(v, ops.full(3.0, v.type))), [TensorType((count,), float64)])[0]
    program, buffers = device.direct(graph, DEFAULT_OPTIONS), [device.put(x)]
    assert program is not None
    for a, b in zip(program.run(buffers), device.compile(graph, DEFAULT_OPTIONS).run(buffers), strict=True):
        assert same_bits(a.array, b.array)


@pytest.mark.parametrize("count", [5_000, 32_768, 40_001])
def test_large_arrays_have_the_bits_of_compiled_code_and_leave_inputs_alone(count: int) -> None:
    def function(x: Value, y: Value, k: Value) -> tuple[Value, ...]:
        once = ops.mul(x, y)
        turned = ops.reshape(once, (count, 1))
        early = ops.neg(turned)
        last = ops.add(ops.add(once, y), x)  # doesn't write over it: a view of it is read later
        chain = ops.add(ops.mul(ops.sub(x, y), y), ops.sin(x))
        middle = ops.exp(ops.neg(ops.mul(chain, chain)))
        places = ops.cast(ops.add(k, ops.iota(k.type, 0)), float64)
        taken = ops.gather(ops.add(chain, ops.mul(middle, places)), k)
        return (early, last, ops.add(turned, turned), middle, taken, chain, ops.full(0.3, x.type))

    device, rng = CpuDevice(), np.random.default_rng(count)
    types = [TensorType((count,), d) for d in (float64, float64, int64)]
    given = [rng.normal(size=count), rng.normal(size=count), rng.integers(0, count, count)]
    graph, buffers = trace(function, types)[0], [device.put(a) for a in given]
    program = device.direct(graph, DEFAULT_OPTIONS)
    assert program is not None
    for a, b in zip(program.run(buffers), device.compile(graph, DEFAULT_OPTIONS).run(buffers), strict=True):
        assert same_bits(a.array, b.array)
    for buffer, array in zip(buffers, given, strict=True):
        np.testing.assert_array_equal(buffer.array, array)


def grown(x: Value) -> tuple[Value, ...]:
    return (ops.add(x, x),)


def test_what_is_compiled() -> None:
    device = CpuDevice()

    def of(shape: tuple[int, ...], options: Options = DEFAULT_OPTIONS) -> DirectProgram | None:
        return device.direct(trace(grown, [TensorType(shape, float32)])[0], options)

    assert of((3,)) is not None
    assert of((direct.MOST_ELEMENTS,)) is not None
    assert of((direct.MOST_ELEMENTS + 1,)) is None
    large = trace(lambda x: (ops.reduce_sum(x, (1,)),), [TensorType((direct.MOST_TERMS, 2), float32)])[0]
    assert device.direct(large, DEFAULT_OPTIONS) is None
    assert of((3,), Options(fast_math=True)) is None
    gather = trace(lambda x, i: (ops.gather(x, i),), [TensorType((3,), float32), TensorType((2,), int64)])[0]
    assert device.direct(gather, DEFAULT_OPTIONS) is not None
    assert device.direct(gather, Options(check_indices=True)) is None
    long = trace(lambda x: (ops.reduce_sum(x, (0,)),), [TensorType((10_000,), float32)])[0]
    assert device.direct(long, DEFAULT_OPTIONS) is None
    contracted = trace(lambda x: (ops.accumulate(x, ops.mul(x, x)),), [TensorType((3,), float32)])[0]
    assert device.direct(contracted, DEFAULT_OPTIONS) is None


def test_results_are_dense_and_nobody_writes_to_them() -> None:
    device = CpuDevice()
    graph = trace(lambda x: (ops.transpose(x, (1, 0)), x, ops.full(2.0, x.type)), [TensorType((2, 3), float64)])[0]
    program, x = device.direct(graph, DEFAULT_OPTIONS), device.put(np.arange(6.0).reshape(2, 3))
    assert program is not None
    turned, same, constant = program.run([x])
    assert same is x
    assert turned.array.flags.c_contiguous
    assert turned.array.base is None
    assert not turned.array.flags.writeable
    assert not constant.array.flags.writeable
    np.testing.assert_array_equal(turned.array, x.array.T)


def scaled(factor: float, count: int = 3) -> Graph:
    return trace(lambda x: (ops.mul(x, ops.full(factor, x.type)),), [TensorType((count,), float64)])[0]


def test_a_program_is_compiled_once_it_has_run_for_as_long_as_that_takes() -> None:
    session, device = Session(), CpuDevice()
    graph, runs = scaled(0.3), 0
    while True:
        found, _ = session.lookup(graph, device, DEFAULT_OPTIONS)
        if isinstance(found, Executable):
            break
        runs += 1
        assert runs * found.work < 2 * sum(COMPILING)
    assert runs > 100
    assert session.compiled == 1
    assert session.lookup(graph, device, DEFAULT_OPTIONS)[0] is found


def test_numbers_that_changed_meanwhile_are_inputs_at_once() -> None:
    session, device = Session(), CpuDevice()
    x = device.put(np.ones(3))
    for k in range(100_000):
        factor = 0.3 + k
        found, constants = session.lookup(scaled(factor), device, DEFAULT_OPTIONS)
        np.testing.assert_array_equal(found.run([x, *constants])[0].array, factor)
        if isinstance(found, Executable):
            break
    assert len(constants) == 1
    assert session.compiled == 1


def test_shapes_compile_nothing() -> None:
    session, device = Session(), CpuDevice()
    for count in range(200):
        found, _ = session.lookup(scaled(0.3, count), device, DEFAULT_OPTIONS)
        assert isinstance(found, DirectProgram)
    assert session.compiled == 0
    assert isinstance(session.lookup(scaled(0.3, 1000), device, Options(direct=False))[0], Executable)


def test_long_programs_run_directly_for_as_long_as_compiling_takes() -> None:
    def chain(x: Value) -> tuple[Value, ...]:
        for k in range(600):
            x = ops.add(x, ops.full(0.5 + k, x.type))
        return (x,)

    session, device = Session(), CpuDevice()
    graph = trace(chain, [TensorType((), float64)])[0]
    found, _ = session.lookup(graph, device, DEFAULT_OPTIONS)
    assert isinstance(found, DirectProgram)
    assert session.compiled == 0
    assert found.run([device.put(np.array(1.0))])[0].array == 1.0 + sum([0.5 + k for k in range(600)])
    runs = 1
    while isinstance(session.lookup(graph, device, DEFAULT_OPTIONS)[0], DirectProgram):
        runs += 1
        assert runs * found.work < 2 * (COMPILING[0] + COMPILING[1] * len(graph.nodes))
    assert session.compiled == 1


def power_of_a_difference(x: Value) -> tuple[Value, ...]:
    """Passes make 0 of the difference, and 1.0 of its exponential, in NumPy."""
    zero = ops.cast(ops.sub(x, x), float64)
    return (ops.exp(ops.add(zero, ops.full(0.7, zero.type))), ops.pow(zero, zero))


def test_functions_of_what_turns_out_to_be_constant() -> None:
    device = CpuDevice()
    graph = trace(power_of_a_difference, [TensorType((3,), int64)])[0]
    program, buffers = device.direct(graph, DEFAULT_OPTIONS), [device.put(np.arange(3))]
    assert program is not None
    for a, b in zip(program.run(buffers), device.compile(graph, DEFAULT_OPTIONS).run(buffers), strict=True):
        assert same_bits(a.array, b.array)


@pytest.mark.parametrize("exponent", [0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 4.0, 1.25, -2.0])
def test_powers_to_numbers(exponent: float) -> None:
    device, x = CpuDevice(), special(float64)
    graph = trace(lambda v: (ops.pow(v, ops.full(exponent, v.type)),), [TensorType(x.shape, float64)])[0]
    program, buffers = device.direct(graph, DEFAULT_OPTIONS), [device.put(x)]
    assert program is not None
    assert same_bits(program.run(buffers)[0].array, device.compile(graph, DEFAULT_OPTIONS).run(buffers)[0].array)


def test_long_programs_of_complex_numbers() -> None:
    x = lg.asarray(np.arange(100.0) * (1 + 2j))
    total = each = lg.sum(x)
    for _ in range(600):
        total = total + each
    assert complex(total) == 601 * (4950 + 9900j)


def test_fourier_transforms_have_the_bits_of_compiled_code() -> None:
    """Those along several axes are one there."""

    def transforms(z: Value) -> tuple[Value, ...]:
        first, norm = {"inverse": False, "norm": "none"}, {"inverse": True, "norm": "full"}
        once = emit("dft", [z], first)[0]
        further = emit("dft", [ops.transpose(once, (1, 0, 2))], first)[0]
        return once, further, emit("dft", [ops.transpose(z, (1, 0, 2))], norm)[0]

    device, rng = CpuDevice(), np.random.default_rng(5)
    for dtype in (float32, float64):
        graph = trace(transforms, [TensorType((17, 12, 2), dtype)])[0]
        program, x = device.direct(graph, DEFAULT_OPTIONS), rng.normal(size=(17, 12, 2)).astype(dtype.np)
        assert program is not None
        buffers = [device.put(x)]
        for a, b in zip(program.run(buffers), device.compile(graph, DEFAULT_OPTIONS).run(buffers), strict=True):
            assert same_bits(a.array, b.array)
    z = lg.asarray(rng.normal(size=(3, 17, 2)) + 1j * rng.normal(size=(3, 17, 2)))
    results = []
    for direct_too in (True, False):
        with lg.options(direct=direct_too):
            several = lg.fft.fftn(z), lg.fft.irfftn(z), lg.fft.rfftn(z.real), lg.fft.fft2(z, axes=(1, 0))
            results.append([np.asarray(t) for t in several])
    for ours, theirs in zip(*results, strict=True):
        assert same_bits(ours, theirs)


def test_extremes_of_zeros_keep_their_order_beside_each_other() -> None:
    device, type = CpuDevice(), TensorType((2,), float64)
    graph = trace(lambda x, y: (*extremes(x, y), *extremes(y, x)), [type, type])[0]
    buffers = [device.put(np.array(zeros)) for zeros in ([0.0, -0.0], [-0.0, 0.0])]
    program = device.direct(graph, DEFAULT_OPTIONS)
    assert program is not None
    for a, b in zip(program.run(buffers), device.compile(graph, DEFAULT_OPTIONS).run(buffers), strict=True):
        assert same_bits(a.array, b.array)


def extremes(x: Value, y: Value) -> list[Value]:
    return [emit(op, (x, y))[0] for op in ("min", "max")]


def test_lists_of_numbers_run_as_arrays() -> None:
    def function(x: Value) -> tuple[Value, ...]:
        numbers = [
            ops.add(ops.mul(ops.reshape(ops.slice(x, (i,), (i + 1,), (1,)), ()), 0.3 * i), 1.0) for i in range(90)
        ]
        return ops.stacked(numbers, 0), numbers[7], numbers[-1]

    graph = trace(function, [TensorType((90,), float64)])[0]
    device, x = CpuDevice(), np.random.default_rng(0).normal(size=90)
    program = device.direct(graph, DEFAULT_OPTIONS)
    assert isinstance(program, CpuDirectProgram)
    assert len(program.operations) < 20 < len(graph.nodes)
    compiled = device.compile(graph, DEFAULT_OPTIONS)
    for a, b in zip(program.run([device.put(x)]), compiled.run([device.put(x)]), strict=True):
        assert same_bits(a.array, b.array)


def test_a_list_of_one_element_is_one_of_others_the_next_time() -> None:
    """The elements that are taken from the array which a list became are as many as those that the list is made of, but
    no other numbers of these."""
    x = np.arange(20.0) - 3.0
    with lg.default_device("cpu"), lg.options(direct=True):
        t = lg.asarray(x)
        for places in (*[[0] * 20] * 4, [-i for i in range(20)]):
            made = [t[i] * -1 for i in places]
            assert lg.stack(made).tolist() == (-x[places]).tolist()
