"""Who multiplies on a simulated CUDA whose cuBLAS is NumPy, and which graphs have products in them.

Run by itself this skips; test_with_a_simulated_driver.py runs it where CUDA may be simulated.
"""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.cuda.api import CudaApi
from loopgrad.runtime.devices import get_device
from tests.lazy.networks.test_attention import by_numpy
from tests.runtime.cuda.simulated_process import inside, spent


@inside
@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("left", "right", "transpose"),
    [
        ((128, 70), (70, 130), (False, False)),
        ((70, 128), (70, 130), (True, False)),
        ((128, 70), (130, 70), (False, True)),
        ((70, 128), (130, 70), (True, True)),
        ((5, 64, 70), (5, 70, 66), (False, False)),
        ((5, 70, 64), (5, 66, 70), (True, True)),
        ((2048, 600), (600, 1), (False, False)),
    ],
)
def test_large_products_are_the_librarys(sim, dtype, left, right, transpose):
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=left).astype(dtype), rng.normal(size=right).astype(dtype)

    def product(a, b):
        a = lg.swapaxes(a, -1, -2) if transpose[0] else a
        b = lg.swapaxes(b, -1, -2) if transpose[1] else b
        return lg.exp(a @ b * 0.01)

    compiled = lg.compile(product)
    wanted = (a.swapaxes(-1, -2) if transpose[0] else a) @ (b.swapaxes(-1, -2) if transpose[1] else b)
    for _ in range(4):  # driven, then recorded
        before = sim.blas().cublas_products()
        got = np.asarray(compiled(lg.asarray(a), lg.asarray(b)))
        assert sim.blas().cublas_products() == before + 1
        np.testing.assert_allclose(got, np.exp(wanted * 0.01), rtol=1e-5 if dtype == "float32" else 1e-12)


@inside
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("wide", [False, True])
def test_the_library_reads_16_bit_factors_as_they_are(sim, dtype, wide):
    own = getattr(lg, dtype)
    rng = np.random.default_rng(8)
    a, b = (lg.asarray(rng.normal(size=shape)).astype(own) for shape in ((100, 120), (120, 110)))
    lg.eval(a, b)
    compiled = lg.compile(lambda a, b: a.astype(lg.float32) @ b.astype(lg.float32) if wide else a @ b)
    before = sim.blas().cublas_products()
    calls = spent(sim, lambda: lg.eval(compiled(a, b)))
    got = compiled(a, b)
    assert got.dtype is (lg.float32 if wide else own)
    exact = np.asarray(a.astype(lg.float64)) @ np.asarray(b.astype(lg.float64))
    digit = 1e-6 if wide else 2.0 ** (-8 if dtype == "bfloat16" else -11)
    assert (np.abs(np.asarray(got.astype(lg.float64)) - exact) <= digit * np.abs(exact) + 1e-4).all()
    assert sim.blas().cublas_products() == before + 2
    assert calls["launches"] == 0


@inside
def test_a_librarys_precision_is_what_the_option_says(sim):
    """For float32 only, in programs of their own, announced; and refused where nobody has such a one."""
    rng = np.random.default_rng(7)

    def multiply(dtype, **options):
        a, b = rng.normal(size=(128, 90)).astype(dtype), rng.normal(size=(90, 130)).astype(dtype)
        with lg.options(**options):
            compiled = lg.compile(lambda a, b: a @ b)
            np.testing.assert_allclose(compiled(lg.asarray(a), lg.asarray(b)), a @ b, rtol=1e-3, atol=1e-3)
            return int(sim.blas().cublas_compute_type()), str(compiled.plan(lg.asarray(a), lg.asarray(b)))

    for precision, wanted in ((None, 68), ("tf32", 77), ("bfloat16", 75), ("float32", 68)):
        options = {} if precision is None else {"matmul_precision": precision}
        compute, plan = multiply("float32", **options)
        assert compute == wanted
        assert ("1 of 1 products of float32 round their factors so" in plan) == (wanted != 68)
    assert multiply("float64", matmul_precision="tf32")[0] == 70
    _, plan = multiply("float32", matmul_precision="tf32", libraries=False)
    assert "1 products keep all digits, in own kernels" in plan
    with pytest.raises(TypeError, match="'tf32', 'bfloat16'"):
        multiply("float32", matmul_precision="fp8")


@inside
def test_launches_ask_for_memory_of_workgroups(sim, monkeypatch):
    """In calls and in graphs; the plan says how many digits are read."""
    rng, asked, function = np.random.default_rng(9), [], CudaApi.function
    monkeypatch.setattr(CudaApi, "function", lambda *given: [asked.append(given[-1]), function(*given)][1])
    q, k = (lg.asarray(rng.normal(size=(n, 250)).astype(np.float32)) for n in (3, 17))

    def checked(near, **options):
        with lg.options(**options):
            compiled = lg.compile(lambda q, k: lg.attention(q, k, k, scale=0.5))
            replay = compiled.capture(q, k)
            for got in (compiled(q, k), replay.replay(q, k)):
                np.testing.assert_allclose(np.asarray(got), by_numpy(*map(np.float64, (q, k, k)), scale=0.5)[1], **near)
            return str(compiled.plan(q, k))

    assert "11 bits" not in checked({"rtol": 0, "atol": 2e-6})
    assert max(asked) > 48 << 10
    plan = checked({"rtol": 0, "atol": 2e-2}, matmul_precision="tf32")
    assert "attention of float32 read 11 bits of factors" in plan


def layers(a, b):
    return lg.exp(lg.tanh(a @ b) @ b * 0.01)


def layers_reference(a, b):
    return np.exp(np.tanh(a @ b) @ b * 0.01)


@inside
def test_a_program_with_library_products_is_one_graph(sim):
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(110, 120)), rng.normal(size=(120, 120)) / 10
    compiled, x, y = lg.compile(layers), lg.asarray(a), lg.asarray(b)
    for _ in range(6):
        got = np.asarray(compiled(x, y))
        np.testing.assert_allclose(got, layers_reference(a, b), rtol=1e-12)
    calls = sim.blas().cublas_calls()
    launches = spent(sim, lambda: compiled(x, y))
    assert (launches["launches"], launches["graph_launches"]) == (0, 1)
    assert sim.blas().cublas_calls() == calls


@inside
def test_library_products_in_a_graph_see_new_addresses(sim):
    """Results and inputs of which many are kept, so that they lie elsewhere in every call, and then again not."""
    rng = np.random.default_rng(9)
    b = rng.normal(size=(120, 120)) / 10
    compiled, y = lg.compile(layers), lg.asarray(b)
    arrays = [rng.normal(size=(110, 120)) for _ in range(12)]
    held = [compiled(lg.asarray(a), y) for a in arrays]
    for a, result in zip(arrays, held, strict=True):
        np.testing.assert_allclose(np.asarray(result), layers_reference(a, b), rtol=1e-12)
    given = [lg.asarray(a) for a in arrays[:2]]
    for k in (0, 0, 0, 1, 1, 0, 1, 1, 1, 0):
        np.testing.assert_allclose(np.asarray(compiled(given[k], y)), layers_reference(arrays[k], b), rtol=1e-12)


@inside
def test_library_products_whose_results_replace_each_other_are_graphs(sim):
    """Each result is held until there is a next, so that they lie in two places in turn; what checks indices, or reads
    memory of another library, has one list of commands for both."""
    rng = np.random.default_rng(10)
    a, b, i = rng.normal(size=(110, 120)), rng.normal(size=(120, 120)) / 10, np.arange(110) % 7
    results = []

    def replace():
        results.append(compiled(x, y, k))
        del results[:-1]

    with lg.options(check_indices=True):
        compiled, x, y, k = lg.compile(lambda a, b, i: layers(a, b)[i] @ b), lg.asarray(a), lg.asarray(b), lg.asarray(i)
        for _ in range(6):
            replace()
        for _ in range(3):
            calls = spent(sim, replace)
            assert (calls["launches"], calls["graph_launches"]) == (0, 1)
            np.testing.assert_allclose(np.asarray(results[0]), layers_reference(a, b)[i] @ b, rtol=0, atol=1e-12)


@inside
def test_library_products_where_streams_can_not_be_captured(sim, monkeypatch):
    monkeypatch.setattr(get_device("cuda:0").driver, "_captures", True)
    sim.set_state("captures", 0)
    try:
        a = np.random.default_rng(11).normal(size=(120, 120)) / 10
        compiled, x = lg.compile(lambda x: lg.exp(layers(x, x))), lg.asarray(a)
        for _ in range(5):
            np.testing.assert_allclose(np.asarray(compiled(x)), np.exp(layers_reference(a, a)), rtol=1e-12)
        assert spent(sim, lambda: compiled(x))["graph_launches"] == 0
    finally:
        sim.set_state("captures", 1)


@inside
@pytest.mark.parametrize(("size", "dtype"), [(20, "float32"), (128, "int32")])
def test_other_products_are_our_own(sim, size, dtype):
    a = (np.arange(size * size).reshape(size, size) % 7).astype(dtype)
    before = sim.blas().cublas_calls()
    got = np.asarray(lg.compile(lambda a: a @ a)(lg.asarray(a)))
    assert sim.blas().cublas_calls() == before
    np.testing.assert_array_equal(got, a @ a)


@inside
def test_many_products_by_vectors_are_read_by_lanes(sim):
    rng = np.random.default_rng(9)
    vectors, matrices = (rng.normal(size=(2048, *n)).astype("float32") for n in ((1, 20), (20, 64)))
    for transposed in (False, True):
        before = sim.blas().cublas_calls()
        if transposed:
            run = lg.compile(lambda v, m: lg.swapaxes(m, -1, -2) @ lg.swapaxes(v, -1, -2))
        else:
            run = lg.compile(lambda v, m: v @ m)
        got = np.asarray(run(lg.asarray(vectors), lg.asarray(matrices)))
        assert sim.blas().cublas_calls() == before
        np.testing.assert_allclose(got.reshape(2048, 64), (vectors @ matrices)[:, 0], rtol=0, atol=2e-5)


@inside
@pytest.mark.in_turns
@pytest.mark.parametrize("looping", [True, False])
def test_lanes_add_up_products_by_vectors_where_no_library_is_called(sim, looping):
    """In loops, and where the options keep from libraries."""
    rng = np.random.default_rng(10)
    a, v = rng.normal(size=(1200, 1200)) / 40, rng.normal(size=1200)

    def powers(a, v):
        return lg.fori_loop(0, 3, lambda _, v: lg.tanh(a @ v), v) if looping else a @ v

    before = sim.blas().cublas_calls()
    with lg.options(libraries=looping):
        compiled = lg.compile(powers)
        got = np.asarray(compiled(lg.asarray(a), lg.asarray(v)))
        domains = [kernel.domain for kernel in compiled.plan(lg.asarray(a), lg.asarray(v)).kernels]
    assert (1200, 1200) in domains
    assert sim.blas().cublas_calls() == before
    wanted = a @ v
    if looping:
        wanted = np.tanh(a @ np.tanh(a @ np.tanh(wanted)))
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


@inside
def test_a_loop_over_products_has_the_same_bits_in_every_call(sim):
    def powers(a, n):
        return lg.fori_loop(0, n, lambda _, v: a @ v / lg.sum(v * v), a)

    a = np.random.default_rng(7).normal(size=(110, 110))
    compiled = lg.compile(powers)
    results = [np.asarray(compiled(lg.asarray(a), lg.asarray(3))) for _ in range(4)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
