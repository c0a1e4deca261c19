"""Group I: stack capacity, overflow, growth and running out of memory.

Forced capacities are a property of compiled devices; the interpreter's stacks are Python lists.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from oracles import check, tolerance

import loopgrad as lg
from loopgrad.codegen.targets.cpu.entry import launch as driver_launch
from loopgrad.runtime.cpu import memory

STARTS = np.array([0.1, 0.3, 0.5, 0.8])


def side_output(x, n):
    """`for n: y += sin(v); v += 1`: every trip saves v. The bound is data, the body nonlinear."""
    trips = lg.full(x.shape, 1, dtype=lg.int64) * n
    y, _ = lg.fori_loop(0, trips, lambda _, c: (c[0] + lg.sin(c[1]), c[1] + 1.0), (lg.zeros_like(x), x))
    return lg.sum(y)


def grown(x, limit):
    """A value-dependent loop: nobody knows its depth before it ran."""
    return lg.sum(lg.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1.0, c[1] + lg.sin(c[0])), (x, x))[1])


def slope(x, n):
    return np.cos(x[:, None] + np.arange(n)).sum(axis=1)


@pytest.mark.parametrize("n", [30, 100, 128])
def test_i1_i9_around_the_capacity(device, dtype, n):
    x = lg.asarray(STARTS, dtype=dtype)
    gradient = forced(4096 if n == 128 else n, lg.grad(side_output), x, lg.asarray(n))
    check(gradient, slope(STARTS, n), tolerance(dtype, 1e-4, 1e-11), tolerance(dtype, 2e-5, 0.0))


def test_i2_eight_carries(device):
    def loss(x):
        start = tuple(x * 1.0 for _ in range(8))
        step = lambda _, c: tuple(0.9 * a + lg.sin(x) for a in c)
        return lg.sum(sum(lg.fori_loop(0, lg.full(x.shape, 32), step, start)))

    x = np.array([0.2, 0.4])
    want = 8 * (0.9**32 + sum(0.9**k for k in range(32)) * np.cos(x))
    check(forced(4096, lg.grad(loss), lg.asarray(x)), want, 1e-12)


def forced(capacity, function, *arguments):
    """Compile and run with every kernel-local stack at this depth; what is returned is computed."""
    with lg.options(stack_capacity=capacity):
        return np.asarray(lg.compile(function)(*arguments))


def line_of(function, fragment):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if fragment in line)


def test_i3_i4_i5_forced_capacity_overflows_and_recovers(compiled_device):
    x, n = lg.asarray(STARTS), lg.asarray(66)
    small = lg.compile(lg.grad(side_output))
    with pytest.raises(lg.StackCapacityError) as caught, lg.options(stack_capacity=32):
        np.asarray(small(x, n))
    assert caught.value.needed == 66
    assert caught.value.allocated == 32
    assert caught.value.lane in range(4)
    assert caught.value.loc.line == line_of(side_output, "fori_loop")
    assert caught.value.loop == "fori_loop"
    assert "test_i_capacity.py" in str(caught.value)
    with lg.options(stack_capacity=32):
        check(small(x, lg.asarray(20)), slope(STARTS, 20), 1e-12)
    check(forced(1024, lg.grad(side_output), x, n), slope(STARTS, 66), 1e-11)
    check(small(x, n), slope(STARTS, 66), 1e-11)


@pytest.mark.parametrize("name", ["march", "outer/march", None])
def test_an_overflow_names_the_loop(compiled_device, name):
    def loss(x):
        return lg.sum(lg.while_loop(lambda v: v < 40.0, lambda v: v + 1.5 + lg.cos(v), x, name=name))

    with pytest.raises(lg.StackCapacityError, match=f"^{name or 'while_loop'}: expected at most 4 saved trips"):
        forced(4, lg.grad(loss), lg.asarray([1.0, 2.0]))


def test_i6_sixteen_lanes_overflow_at_once(compiled_device):
    x = lg.asarray(np.linspace(0, 1, 16))
    with pytest.raises(lg.StackCapacityError):
        forced(32, lg.grad(side_output), x, lg.asarray(66))


@pytest.mark.in_turns
@pytest.mark.parametrize("synchronise", [True, False])
def test_i7_overflow_then_exit(process_device, synchronise):
    program = textwrap.dedent(f"""
        import numpy as np
        import loopgrad as lg

        def loss(x, n):
            body = lambda _, c: (c[0] + lg.sin(c[1]), c[1] + 1.0)
            return lg.sum(lg.fori_loop(0, lg.full(x.shape, 1) * n, body, (x * 0.0, x))[0])

        with lg.default_device({process_device!r}), lg.options(stack_capacity=32):
            x = lg.asarray([0.1, 0.2])
            try:
                result = lg.compile(lg.grad(loss))(x, lg.asarray(66))
                if {synchronise}:
                    np.asarray(result)
            except lg.StackCapacityError:
                pass
    """)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=os.environ)
    assert run.returncode == 0, run.stderr


def test_i8_growth_and_return(device):
    """Nobody forces a capacity: 2, 8, 2 and 64 trips, then a value-dependent loop that deepens."""
    x = lg.asarray(STARTS)
    gradient = lg.compile(lg.grad(side_output))
    for n in (2, 8, 2, 64, 1000, 3):
        check(gradient(x, lg.asarray(n)), slope(STARTS, n), 1e-10, 1e-11)
    dependent = lg.compile(lg.grad(grown))
    for limit in (2.0, 8.0, 2.0, 64.0, 1000.0, 3.0):
        trips = np.ceil(limit - STARTS).astype(int)
        want = [1 + np.cos(x + np.arange(n)).sum() for x, n in zip(STARTS, trips, strict=True)]
        check(dependent(x, lg.asarray(limit)), want, 1e-9, 1e-10)


@pytest.mark.parametrize("lanes", [5, 40])
def test_a_launch_that_is_repeated_adds_once(device, lanes):
    """The loop's stack lies inside a branch, is too small at first, and the kernel adds to what another one left."""
    rng = np.random.default_rng(0)
    data, start = rng.uniform(0.1, 1, 6), rng.uniform(0.1, 1, lanes)
    few, own, climbs = rng.integers(0, 6, 40), rng.integers(0, 6, lanes), rng.random(lanes) < 0.7

    def loss(table):
        def climb(v):
            return lg.while_loop(lambda u: u < 3.0, lambda u: u + 0.1 * lg.sin(u) + 0.02, v + table[lg.asarray(own)])

        ended = lg.cond(lg.asarray(climbs), lg.checkpoint(climb), lambda v: v, lg.asarray(start))
        return lg.sum(ended**2) + lg.sum(lg.sin(table[lg.asarray(few)]))

    wanted = np.bincount(few, np.cos(data[few]), 6)
    for lane in np.flatnonzero(climbs):
        v, slope = start[lane] + data[own[lane]], 1.0
        while v < 3.0:
            v, slope = v + 0.1 * np.sin(v) + 0.02, slope * (1.0 + 0.1 * np.cos(v))
        wanted[own[lane]] += 2.0 * v * slope
    step = lg.compile(lg.grad(loss))
    for _ in range(2):
        check(step(lg.asarray(data)), wanted, rtol=1e-10)


def test_i10_heap_follows_the_real_extent(device):
    coefficients = [1.01 + 0.01 * k for k in range(10)]

    def loss(x):
        step = lambda _, c: tuple(a * k for a, k in zip(c, coefficients, strict=True))
        return lg.sum(sum(lg.fori_loop(0, lg.full(x.shape, 3), step, (x,) * 10)))

    x = lg.asarray(np.linspace(0.1, 0.6, 6).reshape(2, 3))
    gradient = forced(4096, lg.grad(loss), x)
    check(gradient, np.full((2, 3), sum(c**3 for c in coefficients)), 1e-13)


def test_i11_lane_count_beside_a_power_of_two(device):
    x = np.linspace(0.0, 1.0, 65_700)

    def loss(x):
        return lg.sum(lg.fori_loop(0, lg.full(x.shape, 5, dtype=lg.int32), lambda _, v: lg.sin(v) + 0.1, x))

    v, want = x.copy(), np.ones_like(x)
    for _ in range(5):
        want *= np.cos(v)
        v = np.sin(v) + 0.1
    check(lg.grad(loss)(lg.asarray(x)), want, 1e-12)


def test_i14_static_bound_does_not_need_the_forced_capacity(device):
    """A linear body saves nothing, whatever the capacity."""
    loss = lambda x: lg.sum(lg.fori_loop(0, 66, lambda _, v: 0.95 * v + 0.01, x))
    check(forced(1, lg.grad(loss), lg.asarray(STARTS)), np.full(4, 0.95**66), 1e-13)


OUT_OF_MEMORY = """
import resource
import numpy as np
import loopgrad as lg
from loopgrad.runtime.cpu import memory

# a run that doesn't refuse would otherwise take the machine's memory; a GPU has its own, and CUDA maps far more
if not DEVICE.startswith(("cuda", "hip")):
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
start = np.linspace(0, 1, 1024 * 1024).reshape(1024, 1024)

def loss(x, n):
    return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(lg.roll(v, 1, axis=0)) + 0.1, x))

with lg.default_device(DEVICE):
    x = lg.asarray(start)
    gradient = lg.compile(lg.grad(loss))
    try:
        np.asarray(gradient(x, lg.asarray(10_000_000_000)))
    except MemoryError as error:
        print("refused:", str(error).splitlines()[0])
    assert np.array_equal(np.asarray(x), start)
    np.testing.assert_allclose(np.asarray(gradient(x, lg.asarray(1))), np.cos(start), rtol=1e-12)
    print("the next call works")
"""


def test_i15_out_of_memory_is_raised_before_the_launch(process_device):
    """A uniform loop over a tensor whose saved values exceed any memory."""
    program = OUT_OF_MEMORY.replace("DEVICE", repr(process_device))
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, env=os.environ)
    assert run.returncode == 0, run.stderr
    refused, works = run.stdout.splitlines()
    assert "need" in refused
    assert works == "the next call works"


@pytest.mark.parametrize("lanes", [None, 3], ids=["tensor", "lanes"])
def test_i15_refused_memory_names_the_loop(compiled_device, lanes):
    """Values saved in kernels and by the host's steps: the message names the loop, not the value in it."""

    def loss(x, n):
        if lanes is None:
            return lg.sum(lg.fori_loop(0, n, lambda _, v: lg.sin(lg.roll(v, 1)), x, name="steps"))
        return lg.sum(lg.vmap(lambda v: lg.fori_loop(0, n, lambda _, c: lg.sin(c), v, name="steps"))(x))

    gradient = lg.compile(lg.grad(loss))
    x = lg.asarray(np.linspace(0, 1, lanes or 4096))
    with pytest.raises(MemoryError, match=r"^loop 'steps': expected its saved values to fit into"):
        np.asarray(gradient(x, lg.asarray(10**15)))


def test_i16_bytes_of_a_saved_value(compiled_device):
    """Depth x resident lanes x the size of one number: 4 bytes for float32, 8 for float64."""
    for dtype, size in ((lg.float32, 4), (lg.float64, 8)):
        gradient = lg.compile(lg.grad(side_output))
        arguments = (lg.asarray(STARTS, dtype=dtype), lg.asarray(7))
        np.asarray(gradient(*arguments))
        plan = gradient.plan(*arguments)
        (saved,) = plan.residuals
        (resident,) = {kernel.width for kernel in plan.kernels if kernel.stacks}
        assert saved.depth == 7
        assert saved.bytes == 7 * resident * size


def test_i17_lanes_in_lockstep_may_need_more_rows_than_the_deepest_lane(compiled_device):
    """Each lane makes its 50 trips in another pass of the outer loop: on the cpu, where lanes take turns at the inner
    loop, 6 x 50 rows are pushed by six lanes or more, 4 x 50 by vectors of four, and the plan says so."""
    trips = np.zeros((16, 6), np.int64)
    trips[np.arange(16), np.arange(16) % 6] = 50

    def walk(x, row):
        inner = lambda i, v: lg.fori_loop(0, row[i], lambda _, w: lg.sin(w) + 0.1, v)
        return lg.fori_loop(0, 6, inner, x)

    gradient = lg.compile(lg.grad(lambda x, n: lg.sum(lg.vmap(walk)(x, n))))
    arguments = (lg.asarray(np.linspace(0, 1, 16)), lg.asarray(trips))
    np.asarray(gradient(*arguments))
    plan = gradient.plan(*arguments)
    (saved,) = plan.residuals
    width = max(kernel.width for kernel in plan.kernels if kernel.stacks)
    assert saved.depth == 50 if compiled_device.split(":")[0] != "cpu" else saved.depth >= 50 * min(6, width)
    assert saved.bytes % (saved.depth * 8) == 0
    assert saved.bytes >= saved.depth * 8 * width


def test_i18_each_saved_value_has_its_own_bytes():
    """Snapshots of one loop have one name: of its trip count, a number, a vector and a matrix."""

    def loss(v, m):
        step = lambda s: (s[0] + 0.1 * lg.cos(s[0]) + 0.1, lg.roll(lg.sin(s[1]), 1), s[2] * lg.sum(s[1]))
        s = lg.while_loop(lambda s: s[0] < 3, step, (lg.sum(v) * 0, v, m), memory_budget=40_000)
        return s[0] + lg.sum(s[1]) + lg.sum(s[2])

    gradient = lg.compile(lg.grad(loss), device="cpu")
    arguments = (lg.asarray(np.linspace(0.1, 0.6, 6)), lg.asarray(np.ones((20, 6))))
    np.asarray(gradient(*arguments))
    saved = [row for row in gradient.plan(*arguments).residuals if row.name == "snapshot"]
    assert {row.type for row in saved} == {"int64[]", "float64[]", "float64[6]", "float64[20,6]"}
    for row in saved:
        size = {"[]": 1, "[6]": 6, "[20,6]": 120}[row.type[row.type.index("[") :]]
        assert row.depth > 0
        assert row.bytes in (row.depth * size * 8, row.depth * -(-size * 8 // 64) * 64)  # rows may be aligned


def test_i19_vectors_of_a_lane_count_with_all_their_elements(compiled_device):
    def loss(x, n):
        return lg.sum(lg.vmap(lambda v: lg.fori_loop(0, n, lambda _, c: lg.sin(c) * c[0], v))(x))

    gradient = lg.compile(lg.grad(loss))
    arguments = (lg.asarray(np.ones((5, 3))), lg.asarray(7))
    np.asarray(gradient(*arguments))
    plan = gradient.plan(*arguments)
    (resident,) = {kernel.width for kernel in plan.kernels if kernel.stacks}
    assert [(row.depth, row.bytes) for row in plan.residuals] == [(7, 7 * resident * 3 * 8)]


def endless_sines(x):
    return lg.sum(lg.while_loop(lambda v: v > 0.0, lambda v: lg.sin(v) * 0.0 + 0.5, x, name="endless"))


def test_i20_an_endless_loop_under_grad_ends_when_its_saved_values_cannot_fit(monkeypatch):
    """It isn't counted to its end, which would never come."""
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 26)
    gradient = lg.compile(lg.grad(endless_sines), device="cpu")
    for lanes in (1, 40, 3000):
        with pytest.raises(MemoryError, match=r"loop 'endless'.*more than .* memory_budget=[\s\S]*endless_sines"):
            np.asarray(gradient(np.ones(lanes)))


def test_i21_memory_that_is_there_by_now_is_used(monkeypatch):
    """How much there is was looked up before; the loop ends too early, and runs again."""
    looked = []

    def available():
        looked.append(None)
        return 1 << 26 if len(looked) < 2 else 1 << 33

    monkeypatch.setattr(memory, "available_bytes", available)
    trips = 300_000

    def halved(x):
        return lg.sum(lg.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, lg.sin(s[1])), (x * 0, x))[1])

    gradient = lg.compile(lg.grad(halved), device="cpu")
    slopes = np.asarray(gradient(np.zeros(64)))
    assert len(looked) >= 2
    np.testing.assert_array_equal(slopes, 1.0)


def test_i22_lanes_whose_trips_cannot_be_counted_are_refused(monkeypatch):
    """Lanes that save in each trip count their trips in 32 bits."""
    monkeypatch.setattr(driver_launch, "COUNTED_ROWS", 1000)

    def program(trips):
        def halved(x):
            return lg.sum(lg.while_loop(lambda s: s[0] < trips, lambda s: (s[0] + 1, lg.sin(s[1])), (x * 0, x))[1])

        return lg.compile(lg.grad(halved), device="cpu")

    np.testing.assert_array_equal(np.asarray(program(991)(np.zeros(3))), 1.0)
    with pytest.raises(MemoryError, match=r"while_loop.*memory_budget="):
        np.asarray(program(1009)(np.zeros(3)))
