"""What a device's libraries do instead of own kernels, on a simulated CUDA whose libraries are NumPy.

Run by itself this skips; test_with_a_simulated_driver.py runs it where CUDA may be simulated.
"""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from tests.runtime.cuda.simulated_process import inside

PRIME, LONG = 16411, 1 << 14


def numbers(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def close(got, wanted):
    narrow = np.asarray(got).dtype in (np.float32, np.complex64)
    scale = max(np.abs(wanted).max(initial=0), 1e-300)
    np.testing.assert_allclose(np.asarray(got) / scale, wanted / scale, rtol=0, atol=3e-6 if narrow else 1e-13)


@inside
@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [LONG, PRIME, LONG - 1])
def test_transforms_are_the_librarys(sim, n, dtype):
    """All four kinds and norms; imaginary parts that count as nothing hold something here."""
    x = numbers((3, n), dtype)
    r, half = np.ascontiguousarray(x.real), x[:, : n // 2 + 1]

    def ours(xp, x, r, half):
        two = xp.fft.ifft(x), xp.fft.fft(x, norm="ortho")
        return [*two, xp.fft.rfft(r, norm="forward"), xp.fft.irfft(half, n), xp.fft.irfft(half, n, norm="ortho")]

    compiled = lg.compile(lambda *arrays: ours(lg, *arrays))
    given = [lg.asarray(v) for v in (x, r, half)]
    before = len(sim.fourier().done)
    for run in range(4):  # driven, then recorded
        for got, wanted in zip(compiled(*given), ours(np, x, r, half), strict=True):
            close(got, wanted)
        assert len(sim.fourier().done) == before + 5 * (run + 1)
    assert {row.provider for row in compiled.plan(*given).routines} == {"cuFFT"}
    np.testing.assert_array_equal(np.asarray(given[2]), half)  # the library may write to what it is given


@inside
def test_transforms_in_a_graph_see_new_addresses(sim):
    compiled = lg.compile(lambda x: lg.fft.ifft(lg.fft.fft(x) * 2.0) + 1.0)
    arrays = [numbers(LONG, "complex128", seed) for seed in range(8)]
    given = [lg.asarray(x) for x in arrays]
    held = [compiled(x) for x in given]
    for x, result in zip(arrays, held, strict=True):
        close(result, 2 * x + 1)
    for k in (0, 0, 0, 1, 1, 0, 1, 1, 1, 0):
        before = sim.counts()["graph_launches"]
        close(compiled(given[k]), 2 * arrays[k] + 1)
    assert sim.counts()["graph_launches"] == before + 1
    captured = compiled.capture(given[0])
    for x, array in zip(given, arrays, strict=True):
        close(captured.replay(x), 2 * array + 1)


ALONG_AXES = {
    "images": (lambda xp, x: xp.fft.fft2(x), [("Z2Z", (96, 200), 2)]),
    "back": (lambda xp, x: xp.fft.ifft2(x, norm="ortho"), [("Z2Z", (96, 200), 2)]),
    "volume": (lambda xp, x: xp.fft.fftn(x[0].reshape(16, 6, 200)), [("Z2Z", (16, 6, 200), 1)]),
    "four axes": (
        lambda xp, x: xp.fft.ifftn(x.reshape(2, 8, 12, 200)),
        [("Z2Z", (2,), 19200), ("Z2Z", (8, 12, 200), 2)],
    ),
    "columns": (lambda xp, x: xp.fft.fft(x.reshape(384, 100), axis=0), [("Z2Z", (384,), 100)]),
    "short columns": (lambda xp, x: xp.fft.fft(x[1], axis=0), []),
    "beside others": (
        lambda xp, x: xp.fft.fft2(x[0].reshape(12, 8, 200), axes=(0, 1)),
        [("Z2Z", (8,), 2400), ("Z2Z", (12,), 1600)],  # too short for own kernels
    ),
    "in between": (lambda xp, x: xp.fft.fft(x, axis=1), []),
    "in between, long": (lambda xp, x: xp.fft.fft(xp.tile(x, (1, 11, 1)), axis=1), [("Z2Z", (1056,), 400)]),
    "both ways": (lambda xp, x: xp.fft.ifft(xp.fft.fft(x[0]), axis=0), [("Z2Z", (200,), 96)]),
    "real": (lambda xp, x: xp.fft.rfft2(x.real), [("D2Z", (96, 200), 2)]),
    "real columns": (lambda xp, x: xp.fft.rfft(x.reshape(384, 100).real, axis=0), [("D2Z", (384,), 100)]),
    "real, turned": (
        lambda xp, x: xp.fft.rfft2(x[0].real, axes=(1, 0)),
        [("Z2Z", (200,), 49)],
    ),
    "to real": (lambda xp, x: xp.fft.irfft2(x, s=(96, 398), norm="ortho"), [("Z2D", (96, 398), 2)]),
    "to real of odd lengths": (
        lambda xp, x: xp.fft.irfftn(x[0].reshape(12, 8, 200), s=(12, 8, 399), axes=(0, 1, 2)),
        [("Z2D", (12, 8, 399), 1)],
    ),
    "columns to real": (lambda xp, x: xp.fft.irfft(x[0], axis=0), [("Z2D", (190,), 200)]),
    "of reals": (lambda xp, x: xp.fft.fft2(x.real), [("D2Z", (96, 200), 2)]),
    "read twice": (
        lambda xp, x: xp.fft.fft(xp.fft.fft(x[0]), axis=0) + xp.fft.fft(x[0]),
        [("Z2Z", (200,), 96)],
    ),
}  # what is computed, and the calls: which, of what lengths, how many


@inside
@pytest.mark.in_turns
@pytest.mark.parametrize("name", ALONG_AXES)
def test_transforms_along_axes_are_as_few_calls_as_can_be(sim, name):
    function, calls = ALONG_AXES[name]
    x = numbers((2, 96, 200), "complex128")
    compiled = lg.compile(lambda x: function(lg, x))
    for _ in range(3):
        before = len(sim.fourier().done)
        close(compiled(lg.asarray(x)), function(np, x))
        assert sorted(sim.fourier().done[before:]) == calls


@inside
def test_gradients_through_transforms_along_axes(sim):
    x, weight = numbers((96, 200), "float64"), numbers((96, 101), "float64", 1)

    def loss(x):
        return lg.sum(lg.fft.irfft2(lg.fft.rfft2(x) * lg.asarray(weight), s=(96, 200)) ** 2)

    slope = lg.compile(lg.grad(loss))(lg.asarray(x))
    with lg.default_device("cpu"):
        close(slope, np.asarray(lg.grad(loss)(lg.asarray(x))))


@inside
def test_gradients_through_transforms_of_the_library(sim):
    x, weight = numbers(LONG, "float64"), numbers(LONG // 2 + 1, "float64", 1)

    def loss(x):
        return lg.sum(lg.fft.irfft(lg.fft.rfft(x) * lg.asarray(weight), LONG) ** 2)

    def filtered(x):
        return np.fft.irfft(np.fft.rfft(x) * weight, LONG)

    before = len(sim.fourier().done)
    close(lg.compile(lg.grad(loss))(lg.asarray(x)), 2 * filtered(filtered(x)))
    assert len(sim.fourier().done) == before + 4


@inside
def test_where_own_kernels_transform(sim):
    """Short ones; in a loop that the device decides on; where the caller wants it so."""
    x = numbers(LONG, "complex128")

    def rounds(x, n):
        return lg.fori_loop(0, n, lambda _, v: lg.fft.ifft(lg.fft.fft(v) * 2.0), x)

    def twice(x):
        return lg.fft.fft(x) * 2.0

    before = len(sim.fourier().done)
    compiled, given = lg.compile(rounds), (lg.asarray(x), lg.asarray(3))
    for _ in range(3):
        close(compiled(*given), 8 * x)
    row = compiled.plan(*given).routines[0]
    assert (row.provider, row.reason[:35]) == ("cuFFT", "where the device decides on loops: ")
    close(lg.compile(twice)(lg.asarray(x[:60])), 2 * np.fft.fft(x[:60]))
    assert len(sim.fourier().done) == before
    close(lg.compile(twice)(lg.asarray(x)), 2 * np.fft.fft(x))
    assert len(sim.fourier().done) == before + 1
    with lg.options(libraries=False):
        own = lg.compile(lambda x: twice(x))
        close(own(lg.asarray(x)), 2 * np.fft.fft(x))
        assert "in memory of workgroups" in own.plan(lg.asarray(x)).routines[0].provider
    assert len(sim.fourier().done) == before + 1


@inside
def test_a_plan_that_the_library_refuses(sim, monkeypatch):
    """Own kernels do it then."""
    from tests.simulator.cuda.libraries import INVALID

    library = sim.fourier()
    refusing = type(library.cufftMakePlanMany64)(lambda *_: INVALID)
    monkeypatch.setattr(library, "cufftMakePlanMany64", refusing)
    x, before = numbers(1 << 15, "complex128"), len(library.done)
    close(lg.compile(lambda x: lg.fft.fft(x) * 3.0)(lg.asarray(x)), 3 * np.fft.fft(x))
    assert len(library.done) == before


# ---- factorisations

DTYPES = ("float32", "float64", "complex64", "complex128")


def factors(xp, a, h, b, c):
    """What the library factorises, as results that don't depend on how: no signs of vectors, no order of ties."""
    q, r = xp.linalg.qr(c)
    w, v = xp.linalg.eigh(h)
    u, s, vh = xp.linalg.svd(c, full_matrices=False)
    sign, logarithm = xp.linalg.slogdet(a)
    return {
        "cholesky": xp.linalg.cholesky(h),
        "solve": xp.linalg.solve(a, b),
        "slogdet": sign * logarithm,
        "qr": r,
        "q @ r": q @ r,
        "complete": xp.linalg.qr(c, mode="complete")[1],
        "eigh": w,
        "v @ w @ v.H": (v * w[..., None, :]) @ xp.conj(xp.swapaxes(v, -1, -2)),
        "eigvalsh": xp.linalg.eigvalsh(h),
        "svd": s,
        "u @ s @ vh": (u * s[..., None, :]) @ vh,
        "full": xp.abs(xp.linalg.det(xp.linalg.svd(c, full_matrices=True)[2])),
        "pinv": xp.linalg.pinv(c),
    }


@inside
@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "m", "n"), [((), 33, 40), ((2, 2), 36, 34)])
def test_factorisations_are_the_librarys(sim, batch, m, n, dtype):
    a, b = numbers((*batch, n, n), dtype), numbers((*batch, n, 3), dtype, 1)
    c = numbers((*batch, m, n), dtype, 2)
    h = (a @ a.conj().swapaxes(-1, -2) + n * np.eye(n)).astype(dtype)
    compiled, given = lg.compile(lambda *arrays: factors(lg, *arrays)), [lg.asarray(x) for x in (a, h, b, c)]
    before, wanted = len(sim.solver().done), factors(np, a, h, b, c)
    for _ in range(2):
        for name, got in compiled(*given).items():
            scale = np.abs(wanted[name]).max()
            tolerance = 1e-3 if dtype in ("float32", "complex64") else 1e-10
            assert np.asarray(got).dtype == wanted[name].dtype, name
            np.testing.assert_allclose(np.asarray(got) / scale, wanted[name] / scale, 0, tolerance, err_msg=name)
    assert len(sim.solver().done) > before
    providers = {row.provider for row in compiled.plan(*given).routines if row.name not in ("exchanged", "matmul")}
    assert providers == {"cuSOLVER", "cuBLAS"}


@inside
def test_singular_values_by_rotations_or_not(sim):
    """Many small ones in one call, others one after the other; of large ones by reflections."""
    cases = (((3, 20, 14), "gesvdjBatched", 1), ((3, 40, 33), "gesvdj", 3), ((2, 1025), "gesvd", 1))
    for shape, name, calls in cases:
        a, compiled = numbers(shape, "complex128"), lg.compile(lambda a: (*lg.linalg.svd(a), lg.linalg.svdvals(a)))
        before = len(sim.solver().done)
        u, s, vh, values = map(np.asarray, compiled(lg.asarray(a)))
        assert sim.solver().done[before:] == [name] * (2 * calls)
        close(s, np.linalg.svd(a)[1])
        close(values, s)
        close((u[..., : s.shape[-1]] * s[..., None, :]) @ vh[..., : s.shape[-1], :], a)
    for dtype in ("float32", "complex64"):  # what rotations lose isn't seen where they have twice the digits
        a = numbers((40, 33), dtype)
        u, s, vh = map(np.asarray, lg.compile(lg.linalg.svd)(lg.asarray(a)))
        assert (u.dtype, s.dtype, vh.dtype) == (a.dtype, np.float32, a.dtype)
        exact = np.linalg.svd(a.astype(np.result_type(dtype, np.float64)))[1]
        assert np.abs(s - exact).max() <= 1e-7 * exact[0]


@inside
def test_equations_of_many_matrices_and_their_gradient(sim):
    a, b = numbers((5, 40, 40), "float64") + 9 * np.eye(40), numbers((5, 40, 2), "float64", 1)

    def loss(a, b):
        return lg.sum(lg.linalg.solve(a, b) ** 2)

    before = len(sim.dense_blas().done)
    slope = np.asarray(lg.compile(lg.grad(loss))(lg.asarray(a), lg.asarray(b)))
    assert len(sim.dense_blas().done) > before
    x = np.linalg.solve(a, b)
    close(slope, -np.linalg.solve(a.swapaxes(1, 2), 2 * x) @ x.swapaxes(1, 2))


@inside
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_equations_of_one_vector_are_solved_as_a_column(sim, dtype):
    """By either triangle, transposed or not; the library takes longer for a row."""
    a, b = numbers((40, 40), dtype) + 9 * np.eye(40, dtype=dtype), numbers(40, dtype, 1)
    before = len(sim.dense_blas().done)
    compiled = lg.compile(lambda a, b: (lg.linalg.solve(a, b), lg.linalg.solve(a.T, b), lg.linalg.solve(a, b[:, None])))
    for got, matrix in zip(compiled(lg.asarray(a), lg.asarray(b)), (a, a.T, a), strict=True):
        close(np.asarray(got).reshape(40), np.linalg.solve(matrix, b))
    if dtype == "float32":
        slope = np.asarray(lg.compile(lg.grad(lambda b: lg.sum(lg.linalg.solve(lg.asarray(a), b))))(lg.asarray(b)))
        close(slope, np.linalg.solve(a.T, np.ones(40)))
    assert set(sim.dense_blas().done[before:]) == {"trsv"}


@inside
def test_matrices_without_factors(sim):
    """The rules of docs/linalg.md: errors at the top level, NaN in compiled functions, for that matrix alone."""
    good, singular = numbers((12, 12), "float64"), np.ones((12, 12))
    good = good @ good.T + np.eye(12)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        np.asarray(lg.linalg.inv(lg.asarray(singular)))
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        np.asarray(lg.linalg.cholesky(lg.asarray(-good)))
    lost = good.copy()
    lost[7, 3] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="NaN"):
        np.asarray(lg.linalg.svd(lg.asarray(lost))[1])
    both = lg.asarray(np.stack([good, -good]))
    first, second = np.asarray(lg.compile(lg.linalg.cholesky)(both))
    close(first, np.linalg.cholesky(good))
    assert np.isnan(second).all()
    for function in (lg.linalg.svdvals, lg.linalg.eigvalsh):
        first, second = np.asarray(lg.compile(function)(lg.asarray(np.stack([good, lost]))))
        close(np.sort(first), np.linalg.eigvalsh(good))
        assert np.isnan(second).all()
    assert np.asarray(lg.linalg.det(lg.asarray(singular))) == 0


@inside
def test_loops_with_calls_of_libraries_are_driven_by_the_host(sim):
    a = numbers((40, 40), "float64")
    a = a @ a.T + 40 * np.eye(40)

    def roots(a, n):
        return lg.fori_loop(0, n, lambda _, v: lg.linalg.cholesky(v @ lg.swapaxes(v, 0, 1) + a), a)

    compiled, before = lg.compile(roots), len(sim.solver().done)
    wanted = a
    for _ in range(3):
        wanted = np.linalg.cholesky(wanted @ wanted.T + a)
    for _ in range(3):
        close(compiled(lg.asarray(a), lg.asarray(3)), wanted)
    assert len(sim.solver().done) == before + 9
    assert "libraries do routines in them" in "".join(compiled.plan(lg.asarray(a), lg.asarray(3)).notes)
    with lg.options(libraries=False):
        close(lg.compile(lambda a, n: roots(a, n))(lg.asarray(a), lg.asarray(3)), wanted)
    assert len(sim.solver().done) == before + 9


@inside
def test_results_of_the_library_at_new_addresses(sim):
    """Tables of addresses of many matrices are those of the run."""
    matrices = [numbers((4, 40, 40), "float64", seed) for seed in range(6)]
    compiled = lg.compile(lambda a: lg.linalg.inv(a) * 2.0)
    given = [lg.asarray(a) for a in matrices]
    held = [compiled(a) for a in given]
    for k in (0, 0, 0, 1, 1, 2, 0, 3, 4, 5):
        held.append(compiled(given[k]))
        matrices.append(matrices[k])
    for a, got in zip(matrices, held, strict=True):
        close(got, 2 * np.linalg.inv(a))


@inside
def test_the_twins_of_rocm(sim, monkeypatch):
    """The same functions by other names, with other numbers and handles."""
    from dataclasses import replace

    from loopgrad.runtime.devices import get_device
    from loopgrad.runtime.gpu.streams.libraries import Libraries
    from loopgrad.runtime.hip.libraries import AMD
    from tests.simulator.cuda.dense import FakeBlas, FakeSolver
    from tests.simulator.cuda.libraries import FakeFourier

    transforms, solver = FakeFourier(sim.stream(), AMD), FakeSolver(sim.stream(), AMD)
    blas = FakeBlas(sim.blas(), sim.stream(), AMD)
    vendor = replace(
        AMD, fourier=replace(AMD.fourier, load=lambda: transforms), solver=replace(AMD.solver, load=lambda: solver),
        blas=replace(AMD.blas, load=lambda: blas),
    )  # fmt: skip
    driver = get_device("cuda:0").driver
    monkeypatch.setattr(driver, "_libraries", Libraries(driver, vendor))
    n = 12
    a, b, c = numbers((2, n, n), "complex128"), numbers((2, n, 3), "complex128", 1), numbers((2, 9, n), "complex128", 2)
    h = a @ a.conj().swapaxes(-1, -2) + n * np.eye(n)
    x, given = numbers(LONG, "float32"), [lg.asarray(v) for v in (a, h, b, c)]
    compiled, wanted = lg.compile(lambda *arrays: factors(lg, *arrays)), factors(np, a, h, b, c)
    for name, got in compiled(*given).items():
        np.testing.assert_allclose(np.asarray(got), wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)
    close(lg.compile(lambda x: lg.fft.irfft(lg.fft.rfft(x) * 3.0, LONG))(lg.asarray(x)), 3 * x)
    providers = {row.provider for row in compiled.plan(*given).routines if row.name not in ("exchanged", "matmul")}
    assert providers == {"hipSOLVER", "hipBLAS"}
    assert len(transforms.done) == 2
    assert {"potrfBatched", "geqrf", "orgqr", "syevjBatched", "gesvdjBatched"} <= set(solver.done)
    assert {"getrfBatched", "trsmBatched"} <= set(blas.done)
