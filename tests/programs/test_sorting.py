"""Sorting on every device, against NumPy's stable sort, bit for bit."""

import numpy as np
import pytest

import loopgrad as lg

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64"]
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, 6e-8, -6e-8, 2.5, -3.0, 100.0]


def elements(dtype, shape, seed=0):
    """Of the whole range, with many duplicates and everything special."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.choice(np.array(SPECIAL).astype(dtype), shape)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    few = rng.integers(limits.min, limits.max, 9, dtype=dtype, endpoint=True)
    return rng.choice(np.append(few, np.array([limits.min, limits.max, 0], dtype)), shape)


def check(x, axis=-1):
    t = lg.asarray(x)
    assert np.asarray(lg.sort(t, axis=axis)).tobytes() == np.sort(x, axis=axis, kind="stable").tobytes()
    np.testing.assert_array_equal(np.asarray(lg.argsort(t, axis=axis)), np.argsort(x, axis=axis, kind="stable"))


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 33), (300,)], ids=str)
def test_every_dtype(device, dtype, shape):
    check(elements(dtype, shape))


@pytest.mark.in_turns
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 1), (2, 0), (0, 4), (1000, 3), (5, 256), (2, 1500)], ids=str)
def test_shapes(device, shape):
    check(elements("float32", shape))
    check(elements("int64", shape))


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(900,), (3, 5000)], ids=str)
def test_rows_that_no_workgroup_holds(device, dtype, shape):
    if device.startswith(("simulator", "emulator")):  # whose workgroups are small
        shape = (*shape[:-1], min(shape[-1], 700))
    check(elements(dtype, shape))


@pytest.mark.costly
def test_every_bit_counts(device):
    """Numbers without duplicates, many tiles of them."""
    count = 1000 if device.startswith("emulator") else 20_000
    x = np.random.default_rng(2).permutation(np.arange(count, dtype=np.int64) * 0x1234567 * (-1) ** np.arange(count))
    check(x)
    check(x.astype(np.float32))


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_any_axis(device, axis):
    check(elements("float64", (5, 6, 7)), axis)


def largest(x, k):
    """By NumPy: sorting what is turned around keeps equal elements in their order."""
    order = np.flip(x.shape[-1] - 1 - np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1)[..., :k]
    return np.take_along_axis(x, order, axis=-1), order


def test_backwards(device):
    """Slices without a number to stop at, of all elements and of a few."""
    x = elements("float64", (300,))
    some = lambda xp, x: (xp.sort(x)[::-1], xp.sort(x + 1.0)[3::-1], xp.sort(x - 1.0)[:-5:-2])
    for got, want in zip(lg.compile(lambda x: some(lg, x))(lg.asarray(x)), some(np, x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest(device, dtype):
    x = elements(dtype, (3, 40))
    for k in (1, 7, 40):
        for got, wanted in zip(lg.top_k(lg.asarray(x), k), largest(x, k), strict=True):
            assert np.asarray(got).tobytes() == wanted.tobytes()


@pytest.mark.costly
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32"])
@pytest.mark.parametrize(
    ("shape", "k"), [((2, 1300), 3), ((1, 10_000), 100), ((2, 700), 400), ((3, 600), 600)], ids=str
)
def test_the_largest_of_long_rows(device, dtype, shape, k):
    """Of chunks, of chunks of candidates, and more than half of what a workgroup holds."""
    if device.startswith(("vulkan", "cuda", "hip")):  # whose workgroups hold more
        shape, k = (shape[0], 8 * shape[1]), 8 * k
    x = elements(dtype, shape)
    for got, wanted in zip(lg.top_k(lg.asarray(x), k), largest(x, k), strict=True):
        assert np.asarray(got).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("int64", marks=pytest.mark.costly)])
def test_a_few_of_rows_in_bad_orders(device, dtype):
    """In which the first guess leaves far too many candidates: rising and falling rows, and equal elements."""
    n = 2100 if device.startswith(("vulkan", "cuda", "hip")) else 1030 if device.startswith("emulator") else 300
    rng = np.random.default_rng(3)
    x = rng.standard_normal((8, n)) * 50
    x[1], x[2], x[3], x[4] = np.sort(x[1]), -np.sort(x[2]), 0.0, rng.integers(0, 2, n)
    x[5, ::2] = 60.0
    if dtype == "float32":
        x[5, 1::7], x[6], x[7] = np.nan, np.nan, -np.inf
    x = x.astype(dtype)
    for got, wanted in zip(lg.top_k(lg.asarray(x), 5), largest(x, 5), strict=True):
        assert np.asarray(got).tobytes() == wanted.tobytes()


def test_loops_and_branches_over_sorted_arrays(device):
    """On GPUs neither the loop nor the branch waits for the host."""

    def step(i, v):
        turned = lg.cond(lg.sum(v) > 0, lambda u: lg.sort(u)[::-1], lambda u: lg.sort(u), v)
        return turned * 0.5 + lg.roll(v, 1)

    x = np.random.default_rng(1).standard_normal(40)
    run = lg.compile(lambda v, n: lg.fori_loop(0, n, step, v))
    for trips in (3, 0, 7):
        wanted = x
        for _ in range(trips):
            ordered = np.sort(wanted)
            wanted = (ordered[::-1] if wanted.sum() > 0 else ordered) * 0.5 + np.roll(wanted, 1)
        np.testing.assert_array_equal(np.asarray(run(lg.asarray(x), lg.asarray(trips))), wanted)


def test_replay(device):
    run = lg.compile(lambda v: lg.argsort(lg.sin(v)) + 1).capture(lg.asarray(np.zeros(50)))
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(50).round(1)
        wanted = np.argsort(np.asarray(lg.sin(lg.asarray(x))), kind="stable") + 1
        np.testing.assert_array_equal(np.asarray(run.replay(lg.asarray(x))), wanted)


def test_the_plan_says_who_sorts(device):
    if device == "interpreter":
        return
    sorts = lg.compile(lg.sort)
    x = lg.zeros((4, 9), dtype=lg.float32)
    (row,) = sorts.plan(x).routines
    assert (row.name, row.operands) == ("sort", "float32[4,9]")
    assert ("host" in row.provider) == (device == "cpu")
    assert row.provider in str(sorts.plan(x))
    sorts(x)
    assert row.provider in sorts.explain()
