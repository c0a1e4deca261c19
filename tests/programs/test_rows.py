"""Programs that go over the same rows several times, on every device: GPUs make one launch of them."""

import numpy as np
import pytest

import loopgrad as lg

LONG = [(5, 300), (3, 2000), (257, 511), (130, 1030), (2, 3, 400), (1, 1000)]
SHORT = [(300, 40), (600, 100), (1030, 2), (4, 1)]


def softmax(x):
    e = lg.exp(x - lg.max(x, axis=-1, keepdims=True))
    return e / lg.sum(e, axis=-1, keepdims=True)


def normalised(x):
    off = x - lg.mean(x, axis=-1, keepdims=True)
    return off / lg.sqrt(lg.mean(off * off, axis=-1, keepdims=True) + 1e-5)


def numpy_softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def numpy_normalised(x):
    off = x - x.mean(axis=-1, keepdims=True)
    return off / np.sqrt((off * off).mean(axis=-1, keepdims=True) + 1e-5)


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("shape", LONG + SHORT, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_softmax_of_rows(shape, dtype, compiled_device):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    found = np.asarray(lg.compile(softmax)(lg.asarray(x)))
    assert found.dtype == x.dtype
    tolerance = {"float16": 2e-3, "float32": 2e-7, "float64": 1e-15}[dtype]
    np.testing.assert_allclose(found.astype(float), numpy_softmax(x.astype(float)), rtol=20 * tolerance, atol=tolerance)


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", [(40, 300), (600, 64), (7, 1500)], ids=str)
def test_gradient_of_normalised_rows(shape, compiled_device):
    """Sums of rows, of columns and of everything, and a slot that serves again."""
    rng = np.random.default_rng(1)
    x, scale = rng.normal(size=shape), rng.normal(size=shape[-1])
    loss = lambda x, scale: lg.sum(lg.sin(normalised(x) * scale))
    value, (by_x, by_scale) = lg.compile(lg.value_and_grad(loss, argnums=(0, 1)))(lg.asarray(x), lg.asarray(scale))

    off = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((off * off).mean(axis=-1, keepdims=True) + 1e-5)
    y = off / deviation
    slope = np.cos(y * scale) * scale  # of the loss by y
    wanted = (slope - slope.mean(-1, keepdims=True) - y * (slope * y).mean(-1, keepdims=True)) / deviation
    np.testing.assert_allclose(float(value), np.sin(y * scale).sum(), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(by_x), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.asarray(by_scale), (np.cos(y * scale) * y).sum(axis=0), rtol=1e-11)


def test_rows_with_nan_and_infinity(compiled_device):
    x = np.random.default_rng(2).normal(size=(300, 130)).astype(np.float32)
    x[3, 7], x[5, 1], x[6, :], x[8, 2] = np.nan, np.inf, -np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = numpy_softmax(x.astype(float))
    np.testing.assert_allclose(np.asarray(lg.compile(softmax)(lg.asarray(x))), wanted, rtol=2e-6, atol=1e-9)


def test_rows_in_a_loop_over_whole_arrays(compiled_device):
    """The launches are steps of a loop, whose carried array changes its memory on every trip."""
    x = np.random.default_rng(3).normal(size=(60, 200))
    found = lg.compile(lambda x, n: lg.fori_loop(0, n, lambda _, v: normalised(v + lg.flip(v, axis=0)), x))(x, 5)
    for _ in range(5):
        x = numpy_normalised(x + x[::-1])
    np.testing.assert_allclose(np.asarray(found), x, rtol=1e-9, atol=1e-11)


def test_rows_and_what_lies_across_them(compiled_device):
    """A stage may read its own row only: what the neighbours hold is read by another launch."""
    x = np.random.default_rng(4).normal(size=(150, 256))

    def shifted(x):
        y = x - lg.max(x, axis=-1, keepdims=True)
        near = y + lg.roll(y, 1, axis=0)
        return near / lg.sum(lg.exp(y), axis=-1, keepdims=True), lg.roll(y, 3, axis=-1) + lg.sum(near, axis=-1)[:, None]

    y = x - x.max(axis=-1, keepdims=True)
    near = y + np.roll(y, 1, axis=0)
    first, second = lg.compile(shifted)(lg.asarray(x))
    np.testing.assert_allclose(np.asarray(first), near / np.exp(y).sum(axis=-1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(np.asarray(second), np.roll(y, 3, axis=-1) + near.sum(axis=-1)[:, None], rtol=1e-11)


def test_rows_are_one_kernel_on_gpus_with_the_same_bits_every_time(compiled_device):
    x = lg.asarray(np.random.default_rng(5).normal(size=(200, 128)).astype(np.float32))
    program = lg.compile(softmax)
    first, second = np.asarray(program(x)), np.asarray(program(x))
    assert (first == second).all()
    assert compiled_device == "cpu" or len(program.plan(x).kernels) == 1
    replay = program.capture(x)
    assert (np.asarray(replay.replay(x)) == first).all()


@pytest.mark.in_turns
@pytest.mark.parametrize("function", ["sum", "max", "prod"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((4099, 70), 0), ((300, 1500), 0), ((3, 5000, 20), 1), ((16400, 17), 0), ((40, 300, 40), (0, 1))],
)
def test_columns_are_reduced_in_blocks(function, shape, axis, compiled_device):
    x = np.random.default_rng(6).uniform(0.999, 1.001, size=shape)
    found = lg.compile(lambda x: getattr(lg, function)(x, axis=axis))(lg.asarray(x))
    np.testing.assert_allclose(np.asarray(found), getattr(np, function)(x, axis=axis), rtol=1e-12)


def softmax_of_columns(x, axis):
    e = lg.exp(x - lg.max(x, axis=axis, keepdims=True))
    return e / lg.sum(e, axis=axis, keepdims=True)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 4001), 0), ((2, 21, 613), 1), ((32, 700), 0), ((5, 33, 300), 1), ((4, 0), 0), ((2, 2, 9), 1)],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_short_columns_that_go_back_to_their_elements(shape, axis, dtype, compiled_device):
    """With NaN and infinity in some columns, and derivatives, which go back as well."""
    rng = np.random.default_rng(8)
    x, weights = 3 * rng.normal(size=shape), rng.normal(size=shape)
    x, wide = x.astype(dtype), x.astype(dtype).astype(np.float64)
    e = np.exp(wide - wide.max(axis=axis, keepdims=True))
    want = e / e.sum(axis=axis, keepdims=True)
    error = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}[dtype]
    given = lg.asarray(x)
    found = lg.compile(lambda x: softmax_of_columns(x, axis))(given)
    np.testing.assert_allclose(np.asarray(found), want, error, error)
    slope = lg.compile(lg.grad(lambda x: lg.sum(softmax_of_columns(x, axis) * weights.astype(dtype))))(given)
    inner = (want * weights).sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(np.asarray(slope), want * (weights - inner), 10 * error, 10 * error)
    if x.size:
        x.reshape(-1)[1], x.reshape(-1)[-1] = np.nan, np.inf
        lost = np.isnan(np.asarray(lg.compile(lambda x: softmax_of_columns(x, axis))(lg.asarray(x))))
        assert (lost.all(axis) == ~np.isfinite(x).all(axis)).all()
        assert (lost.any(axis) == lost.all(axis)).all()


@pytest.mark.parametrize(("shape", "axis"), [((6400, 20), 0), ((30, 1200, 3), 1)])
def test_narrow_rows_are_reduced_side_by_side_on_cpus(shape, axis):
    """So vectors read what lies side by side; run at once and compiled, a sum has the same bits."""
    x = np.random.default_rng(7).normal(size=shape).astype(np.float32)
    program = lg.compile(lambda x: lg.sum(x, axis=axis), device="cpu")
    found = np.asarray(program(lg.asarray(x)))
    np.testing.assert_allclose(found, x.sum(axis=axis, dtype=np.float64), rtol=1e-5, atol=1e-4)
    domain = program.plan(lg.asarray(x)).kernels[0].domain
    assert domain[-1] >= 256
    assert domain[-1] % shape[-1] == 0
    with lg.default_device("cpu"):
        assert np.asarray(lg.sum(lg.asarray(x), axis=axis)).tobytes() == found.tobytes()


@pytest.mark.in_turns
@pytest.mark.parametrize("function", ["argmax", "argmin"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((300, 70), 1), ((5, 2000), 1), ((5000, 60), 0), ((3, 4000, 30), 1), ((6, 1, 80), 2)]
)
@pytest.mark.parametrize("dtype", ["float32", "int16", "uint64"])
def test_the_first_best_of_each_row_and_column(function, shape, axis, dtype, compiled_device):
    """With ties, and with NaN, of which the first is best."""
    rng = np.random.default_rng(7)
    x = (rng.normal(size=shape) * 20).astype(np.int16).astype(dtype)  # of uint64 some are huge
    if dtype == "float32":
        x.reshape(-1)[rng.integers(0, x.size, 4)] = np.nan
    found = np.asarray(lg.compile(lambda x: getattr(lg, function)(x, axis=axis))(lg.asarray(x)))
    assert (found == getattr(np, function)(x, axis=axis)).all()
