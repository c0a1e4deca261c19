"""Short rows in the registers of neighbouring invocations: how they lie there, and that stages find them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, RowMembers
from loopgrad.codegen.targets.gpu.lanes.row_members import row_members
from loopgrad.codegen.targets.gpu.lanes.row_stages import with_row_stages
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, bool_, float16, float32, float64, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of

ELEMENTS = 1 << 16  # of all rows, from which on short ones are reduced by workgroups


def spread(value: Value, x: Value) -> Value:
    return ops.broadcast(value, x.shape, (0,))


def softmax(x: Value) -> list[Value]:
    e = ops.exp(ops.sub(x, spread(ops.reduce_max(x, (1,)), x)))
    return [ops.div(e, spread(ops.reduce_sum(e, (1,)), x))]


def log_softmax(x: Value) -> list[Value]:
    """Two results, of which one is of rows."""
    most = ops.reduce_max(x, (1,))
    off = ops.sub(x, spread(most, x))
    normal = ops.log(ops.reduce_sum(ops.exp(off), (1,)))
    return [ops.sub(off, spread(normal, x)), ops.add(most, normal)]


def marked(x: Value) -> list[Value]:
    """Reductions of bools and positions, and an integer for each row."""
    above = ops.gt(x, 1)
    row = ops.reduce_or(above, (1,))
    place = ops.argmax(x, 1)
    return [ops.select(spread(row, x), ops.sub(x, ops.cast(spread(place, x), x.dtype)), x)]


def of_rows(function: Any, length: int, dtype: Any) -> tuple[Graph, Any]:
    type = TensorType((ELEMENTS // length + 3, length), dtype)
    return trace(function, [type])[0], type


def members(function: Any, length: int, dtype: Any = float32) -> RowMembers | None:
    (kernel,) = with_row_stages(schedule(of_rows(function, length, dtype)[0], DEFAULT_OPTIONS), Geometry()).kernels
    return shape_of(kernel, Geometry())


def shape_of(kernel: Kernel, geometry: Geometry) -> RowMembers | None:
    """Where workgroups are as large as usual."""
    found = row_members(kernel, geometry)
    assert found is None or found[1] == geometry.group
    return None if found is None else found[0]


@pytest.mark.in_turns
@pytest.mark.parametrize("length", [8, 17, 100])
@pytest.mark.parametrize("function", [softmax, log_softmax], ids=lambda f: f.__name__)
def test_rows_of_any_length(function: Any, length: int) -> None:
    graph, type = of_rows(function, length, float32)
    made = executable_of(schedule(graph, DEFAULT_OPTIONS))
    assert len(made.program.kernels) == 1
    x = np.random.default_rng(length).normal(size=type.shape).astype(np.float32)
    for got, want in zip(made.run([device().put(x)]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=5e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [float16, float64, int64], ids=str)
@pytest.mark.parametrize("function", [softmax, marked], ids=lambda f: f.__name__)
def test_dtypes(function: Any, dtype: Any) -> None:
    if function is softmax and dtype is int64:
        return
    graph, type = of_rows(function, 24, dtype)
    x = np.random.default_rng(1).integers(-3, 3, size=type.shape).astype(dtype.np)
    results = executable_of(schedule(graph, DEFAULT_OPTIONS)).run([device().put(x)])
    tolerance = {"float16": 2e-3, "float64": 1e-14, "int64": 0}[dtype.name]
    for got, want in zip(results, interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=tolerance, atol=tolerance)


def test_vectors_and_members_follow_from_the_length() -> None:
    assert members(softmax, 32) == RowMembers(members=4, turns=2, side=4)
    assert members(softmax, 128) == RowMembers(members=16, turns=2, side=4)
    assert members(softmax, 10) == RowMembers(members=4, turns=2, side=2)
    assert members(softmax, 17) == RowMembers(members=8, turns=3, side=1)
    assert members(softmax, 32, float64) == RowMembers(members=4, turns=4, side=2)


def test_what_rows_are_reduced_to_may_be_wider() -> None:
    """Lanes touch none of it, but for one of each row."""

    def with_wide_roots(x: Value) -> list[Value]:
        quotient, root = rooted(x)
        return [quotient, ops.cast(root, float64)]

    assert members(with_wide_roots, 32) == members(rooted, 32)


def with_exponentials(x: Value) -> list[Value]:
    """What lanes make of elements is a result, and read again."""
    e = ops.exp(ops.sub(x, spread(ops.reduce_max(x, (1,)), x)))
    return [e, ops.div(e, spread(ops.reduce_sum(e, (1,)), x))]


def mirrored(x: Value) -> list[Value]:
    """Lanes read what others of their row have made."""
    e = ops.exp(ops.sub(x, spread(ops.reduce_max(x, (1,)), x)))
    return [e, ops.div(ops.flip(e, (1,)), spread(ops.reduce_sum(e, (1,)), x))]


def test_what_others_have_made_lies_in_memory() -> None:
    """Members would have to wait for each other."""
    assert members(with_exponentials, 32) == RowMembers(members=4, turns=2, side=4)
    assert members(mirrored, 32) is None


@pytest.mark.in_turns
@pytest.mark.parametrize("function", [with_exponentials, mirrored], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("length", "dtype"), [(32, float32), (100, float16), (300, float32)])
def test_what_stages_hand_on_is_a_result_too(function: Any, length: int, dtype: Any) -> None:
    type = TensorType((max(ELEMENTS // length, 256) + 3, length), dtype)
    graph = trace(function, [type])[0]
    x = np.random.default_rng(4).normal(size=type.shape).astype(dtype.np)
    results = executable_of(schedule(graph, DEFAULT_OPTIONS)).run([device().put(x)])
    tolerance = {float16: 2e-3}.get(dtype, 5e-6)
    for got, want in zip(results, interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=tolerance, atol=tolerance)


def rooted(x: Value) -> list[Value]:
    root = ops.sqrt(ops.reduce_sum(ops.mul(x, x), (1,)))
    return [ops.div(x, spread(root, x)), root]


def test_what_a_row_hands_on_may_be_a_result_too() -> None:
    """The next stage has a copy of it."""
    assert members(rooted, 32) == RowMembers(members=4, turns=2, side=4)
    graph, type = of_rows(rooted, 32, float32)
    made = executable_of(schedule(graph, DEFAULT_OPTIONS))
    assert len(made.program.kernels) == 1
    x = np.random.default_rng(3).normal(size=type.shape).astype(np.float32)
    for got, want in zip(made.run([device().put(x)]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=5e-6, atol=1e-6)


def below_the_largest(x: Value) -> list[Value]:
    """Few operations."""
    return [ops.sub(x, spread(ops.reduce_max(x, (1,)), x))]


@pytest.mark.parametrize(
    ("function", "length", "dtype", "held"),
    [
        (softmax, 2048, float32, RowMembers(members=256, turns=2, side=4)),
        (softmax, 1001, float32, RowMembers(members=128, turns=8, side=1)),
        (softmax, 2048, float64, RowMembers(members=256, turns=4, side=2)),
        (below_the_largest, 8192, float32, RowMembers(members=256, turns=8, side=4)),
        (softmax, 8192, float32, RowMembers(members=256, turns=8, side=4)),
        (softmax, 4096, float64, None),
        (softmax, 8192, float64, None),
        (below_the_largest, 4099, float32, None),
        (below_the_largest, 8200, float32, None),
    ],
)
def test_several_warps_have_a_long_row(function: Any, length: int, dtype: Any, held: RowMembers | None) -> None:
    """Where they exchange registers, of what is light and comes as vectors; else it is in memory of the workgroup."""
    graph, _ = trace(function, [TensorType((300, length), dtype)])
    geometry = Geometry(exchanges=True)
    kernel = with_row_stages(schedule(graph, DEFAULT_OPTIONS), geometry).kernels[0]
    assert (shape_of(kernel, geometry) if kernel.stages else None) == held
    assert row_members(kernel, Geometry()) is None


@pytest.mark.parametrize(
    ("function", "length", "held"),
    [
        (below_the_largest, 2048, RowMembers(members=64, turns=8, side=4)),
        (softmax, 2048, RowMembers(members=128, turns=4, side=4)),
        (softmax, 8192, RowMembers(members=256, turns=8, side=4)),
    ],
)
def test_many_long_rows_have_few_members(function: Any, length: int, held: RowMembers) -> None:
    """As many as can hold what is read again without being in the way of other workgroups."""
    graph, _ = trace(function, [TensorType((1 << 13, length), float32)])
    geometry = Geometry(exchanges=True)
    (kernel,) = with_row_stages(schedule(graph, DEFAULT_OPTIONS), geometry).kernels
    assert shape_of(kernel, geometry) == held


@pytest.mark.parametrize(("times", "held"), [(2, RowMembers(members=128, turns=4, side=4)), (40, None)])
def test_heavy_lanes_that_nothing_reads_again_come_after_one_another(times: int, held: RowMembers | None) -> None:
    """All of a row at once needed more registers than there are: a sum over pairs of forces took 12 times as long."""

    def summed(x: Value) -> list[Value]:
        y = x
        for _ in range(times):
            y = ops.mul(ops.add(y, x), ops.sub(y, 1.0))
        return [ops.sqrt(ops.reduce_sum(y, (1,)))]

    graph, _ = trace(summed, [TensorType((1 << 11, 2048), float32)])
    geometry = Geometry(exchanges=True)
    (kernel,) = with_row_stages(schedule(graph, DEFAULT_OPTIONS), geometry).kernels
    assert shape_of(kernel, geometry) == held


def off_the_sum(x: Value) -> list[Value]:
    total = ops.reduce_sum(x, (1,))
    return [ops.sub(x, spread(total, x)), total]


def test_sums_of_long_rows_that_are_no_numbers_or_cancel(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulator.code.GROUP", 128)
    x = np.random.default_rng(1).normal(size=(260, 600)).astype(np.float32)
    x[0, 7], x[1, 500], x[2, [3, 400]] = np.inf, np.nan, (np.inf, -np.inf)
    x[3], x[4, [0, 300]], x[5, [10, 11]] = -0.0, (1e30, -1e30), 3e38
    graph, _ = trace(off_the_sum, [TensorType(x.shape, float32)])
    made = executable_of(schedule(graph, DEFAULT_OPTIONS))
    _, got = (device().get(v) for v in made.run([device().put(x)]))
    with np.errstate(all="ignore"):
        expected = np.sum(x.astype(np.float64), axis=1).astype(np.float32)
    np.testing.assert_allclose(got[4], expected[4], atol=float(np.spacing(np.float32(1e30))))
    rest = np.arange(len(x)) != 4
    np.testing.assert_allclose(got[rest], expected[rest], rtol=2e-7, atol=2e-5)
    assert np.signbit(got[3])


@pytest.mark.in_turns
@pytest.mark.parametrize("length", [600, 1030])
@pytest.mark.parametrize("function", [softmax, log_softmax, marked], ids=lambda f: f.__name__)
def test_long_rows(gpu: str, monkeypatch: pytest.MonkeyPatch, function: Any, length: int) -> None:
    """The simulator's workgroups are usually of one warp."""
    if not gpu.startswith(("simulator", "cuda")):
        pytest.skip("fewer of its invocations exchange registers than a warp has")
    monkeypatch.setattr("tests.simulator.code.GROUP", 128)
    graph, _ = trace(function, [TensorType((260, length), float32)])
    made = executable_of(schedule(graph, DEFAULT_OPTIONS))
    assert len(made.program.kernels) == 1
    x = np.random.default_rng(length).normal(size=(260, length)).astype(np.float32)
    for got, want in zip(made.run([device().put(x)]), interpret(graph, [x]), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=5e-6, atol=1e-6)


def test_a_bool_for_each_row() -> None:
    graph, _ = of_rows(lambda x: [ops.and_(x, spread(ops.reduce_and(x, (1,)), x))], 16, bool_)
    x = np.random.default_rng(2).random((ELEMENTS // 16 + 3, 16)) > 0.1
    (got,) = executable_of(schedule(graph, DEFAULT_OPTIONS)).run([device().put(x)])
    np.testing.assert_array_equal(device().get(got), interpret(graph, [x])[0])


def weighted_softmax(x: Value, w: Value) -> list[Value]:
    """Sums and a largest term of all rows beside what each row is reduced to, as a loss is beside its derivatives."""
    (y,) = softmax(x)
    terms = ops.mul(y, w)
    inner = ops.reduce_sum(terms, (1,))
    gradient = ops.mul(y, ops.sub(w, spread(inner, x)))
    return [ops.reduce_sum(terms, (0, 1)), gradient, ops.reduce_max(terms, (0, 1)), ops.reduce_sum(gradient, (0, 1))]


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("length", "dtype"), [(8, float32), (17, float32), (100, float64), (130, float32), (264, float16)], ids=str
)
def test_sums_of_all_rows_dont_keep_rows_in_memory(length: int, dtype: Any) -> None:
    type = TensorType((max(ELEMENTS // length, 256) + 3, length), dtype)
    graph = trace(weighted_softmax, [type, type])[0]
    (kernel,) = [
        k for k in with_row_stages(schedule(graph, DEFAULT_OPTIONS), Geometry(exchanges=True)).kernels if k.stages
    ]
    assert row_members(kernel, Geometry(exchanges=True)) is not None
    rng = np.random.default_rng(length)
    given = [rng.normal(size=type.shape).astype(dtype.np) for _ in range(2)]
    made = executable_of(schedule(graph, DEFAULT_OPTIONS))
    tolerance = {float16: 2e-2, float64: 1e-10}.get(dtype, 2e-5)
    wanted = interpret(graph, given)
    for _ in range(2):
        for got, want in zip(made.run([device().put(x) for x in given]), wanted, strict=True):
            np.testing.assert_allclose(device().get(got), want, rtol=tolerance, atol=tolerance)


def kept_much(x: Value) -> list[Value]:
    """Four numbers of an element wait for the last sum."""
    kept = [x]
    for _ in range(3):
        kept.append(ops.exp(ops.mul(kept[-1], spread(ops.reduce_sum(kept[-1], (1,)), x))))
    last = spread(ops.reduce_sum(kept[-1], (1,)), x)
    return [ops.add(ops.add(kept[0], kept[1]), ops.add(kept[2], ops.mul(kept[3], last)))]


@pytest.mark.parametrize(
    ("function", "length", "dtype", "held"),
    [
        (softmax, 8192, float32, (RowMembers(members=256, turns=8, side=4), 256)),
        (softmax, 8192, float64, (RowMembers(members=512, turns=8, side=2), 512)),
        (softmax, 16384, float32, (RowMembers(members=512, turns=8, side=4), 512)),
        (softmax, 32000, float32, (RowMembers(members=1024, turns=8, side=4), 1024)),
        (kept_much, 8192, float16, None),  # one workgroup by itself would wait for little
        (kept_much, 8192, float32, (RowMembers(members=512, turns=4, side=4), 512)),
        (softmax, 33000, float32, None),  # nobody holds it
        (softmax, 32001, float32, None),  # single elements are too many accesses
    ],
)
def test_what_is_too_much_for_a_workgroup_has_a_larger_one(function: Any, length: int, dtype: Any, held: Any) -> None:
    graph, _ = trace(function, [TensorType((1 << 11, length), dtype)])
    geometry = Geometry(exchanges=True, columns_group=1024)
    kernel = with_row_stages(schedule(graph, DEFAULT_OPTIONS), geometry).kernels[0]
    assert (row_members(kernel, geometry) if kernel.stages else None) == held


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("length", [600, 2048, 20_000])
def test_rows_of_larger_workgroups(length: int) -> None:
    """As large as the target has them."""
    type = TensorType((259, length), float32)
    graph = trace(weighted_softmax, [type, type])[0]
    rng = np.random.default_rng(length)
    given = [rng.normal(size=type.shape).astype(np.float32) for _ in range(2)]
    results = executable_of(schedule(graph, DEFAULT_OPTIONS)).run([device().put(x) for x in given])
    for got, want in zip(results, interpret(graph, given), strict=True):
        np.testing.assert_allclose(device().get(got), want, rtol=2e-5, atol=2e-5)
