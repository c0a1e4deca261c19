"""Loops under grad that would save more rows than kernels can count, or than there is memory for."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.gpu.emit import stacks
from loopgrad.runtime.devices import devices, get_device
from loopgrad.runtime.gpu import capacities, failures, stack_heap
from loopgrad.runtime.vulkan.driver import VulkanDriver

MOST = 1000
REFUSED = r"loop 'endless'.*needed more than .* memory_budget=[\s\S]*test_uncounted.py"
VULKAN = [s.name for s in devices() if s.available and s.name == "vulkan:0"]


@pytest.fixture(params=["simulator:0", "simulator:1", *VULKAN])
def few(request, monkeypatch, tmp_path):
    """A GPU whose kernels count to MOST."""
    monkeypatch.setenv("LOOPGRAD_CACHE_DIR", str(tmp_path))
    for module in (stacks, failures, capacities, stack_heap):
        monkeypatch.setattr(module, "MOST_ROWS", MOST)
    with lg.default_device(request.param):
        yield get_device(request.param)


def endless(x):
    return lg.sum(lg.while_loop(lambda v: v > 0.0, lambda v: lg.sin(v) * 0.0 + 0.5, x, name="endless"))


def climbing(x, limit):
    """Saves a value each trip, `limit - x` of them."""

    def step(c):
        return c[0] + 1.0, c[1] + lg.sin(c[0] * 0.1)

    return lg.sum(lg.while_loop(lambda c: c[0] < limit, step, (x, x * 0.0), name="endless")[1])


def slopes(x, limit):
    return np.array([0.1 * np.cos(0.1 * np.arange(start, limit)).sum() for start in x])


@pytest.mark.parametrize("lanes", [1, 40, 3000])
def test_a_loop_that_never_ends_is_left(few, lanes):
    gradient = lg.compile(lg.grad(endless))
    for _ in range(2):
        with pytest.raises(MemoryError, match=REFUSED):
            np.asarray(gradient(lg.asarray(np.ones(lanes))))


def test_all_rows_that_can_be_counted_are_used(few):
    x, gradient = np.arange(5.0), lg.compile(lg.grad(climbing))
    np.testing.assert_allclose(np.asarray(gradient(lg.asarray(x), lg.asarray(MOST - 1.0))), slopes(x, MOST - 1))
    with pytest.raises(MemoryError, match=REFUSED):
        np.asarray(gradient(lg.asarray(x), lg.asarray(MOST + 1.0)))


def test_a_call_that_is_not_waited_for(few):
    """Recorded since the second call."""
    x, gradient = np.arange(5.0), lg.compile(lg.grad(climbing))
    for limit in (100, 100, MOST * 2, 50, 900):
        if limit > MOST:
            with pytest.raises(MemoryError, match=REFUSED):
                np.asarray(gradient(lg.asarray(x), lg.asarray(float(limit))))
        else:
            slope = gradient(lg.asarray(x), lg.asarray(float(limit)))
            np.testing.assert_allclose(np.asarray(slope), slopes(x, limit), rtol=1e-10)


@pytest.mark.parametrize("inner", ["while", "for"])
def test_loops_in_a_loop_add_up(few, inner):
    """No loop makes as many trips as there may be rows."""

    def walk(s):
        return s[0] + 1, lg.sin(s[1]) + 0.3

    def loss(x, passes, trips):
        def again(c):
            if inner == "while":
                ended = lg.while_loop(lambda s: s[0] < trips, walk, (trips * 0, c[1]), name="endless")
                return c[0] + 1, ended[1]
            return c[0] + 1, lg.fori_loop(0, trips, lambda _, v: lg.sin(v) + 0.3, c[1], name="endless")

        return lg.sum(lg.while_loop(lambda c: c[0] < passes, again, (passes * 0, x), name="endless")[1])

    def wanted(x, passes, trips):
        v, slope = x.copy(), np.ones_like(x)
        for k in range(int(np.max(passes * trips))):
            on = k < passes * trips
            slope, v = np.where(on, slope * np.cos(v), slope), np.where(on, np.sin(v) + 0.3, v)
        return slope

    x, gradient = np.linspace(0.1, 0.5, 6), lg.compile(lg.grad(loss))
    trips = np.arange(1, 7)
    for passes in (3, 40):
        count = np.full(6, passes)
        got = gradient(lg.asarray(x), lg.asarray(count), lg.asarray(trips))
        np.testing.assert_allclose(np.asarray(got), wanted(x, count, trips), rtol=1e-9, atol=1e-300)
    for passes, each in ((40, 200), (2, 10**10 if inner == "for" else 5 * MOST)):
        with pytest.raises(MemoryError, match=REFUSED):
            np.asarray(gradient(lg.asarray(x), lg.asarray(np.full(6, passes)), lg.asarray(trips * 0 + each)))


def test_stacks_that_are_emptied_now_and_then_may_take_more(few):
    """Segments between snapshots are run again and saved one after the other."""

    def loss(x):
        return lg.sum(lg.fori_loop(0, lg.full(x.shape, 3 * MOST), lambda _, v: lg.sin(v) + 0.1, x, memory_budget=3_000))

    x = np.linspace(0.1, 0.5, 4)
    v, wanted = x.copy(), np.ones_like(x)
    for _ in range(3 * MOST):
        v, wanted = np.sin(v) + 0.1, wanted * np.cos(v)
    np.testing.assert_allclose(np.asarray(lg.compile(lg.grad(loss))(lg.asarray(x))), wanted, rtol=1e-8, atol=1e-300)


@pytest.mark.parametrize("depth", [MOST + 1, (1 << 32) + 5, 1 << 60])
def test_a_known_depth_that_cannot_be_counted(few, depth):
    def loss(x, n):
        return lg.sum(lg.vmap(lambda v: lg.fori_loop(0, n, lambda _, c: lg.sin(c) * lg.cos(c), v, name="endless"))(x))

    with pytest.raises(MemoryError, match=REFUSED):
        np.asarray(lg.compile(lg.grad(loss))(lg.asarray(np.ones(3)), lg.asarray(depth)))


def test_a_forced_capacity_is_reported_as_ever(few):
    with lg.options(stack_capacity=32), pytest.raises(lg.StackCapacityError) as caught:
        np.asarray(lg.compile(lg.grad(endless))(lg.asarray(np.ones(3))))
    assert caught.value.needed == MOST + 1
    with lg.options(stack_capacity=MOST + 1), pytest.raises(MemoryError, match=REFUSED):
        np.asarray(lg.compile(lg.grad(endless))(lg.asarray(np.ones(3))))


@pytest.mark.skipif(not VULKAN, reason="no Vulkan")
def test_kernels_that_are_continued_look_at_the_memory_between_launches(monkeypatch):
    monkeypatch.setattr(VulkanDriver, "available", lambda _: 1 << 26)
    if get_device("vulkan:0").driver.endless_loops:
        pytest.skip("this driver lets loops run to their end")
    gradient = lg.compile(lg.grad(endless), device="vulkan:0")
    with pytest.raises(MemoryError, match=REFUSED):
        np.asarray(gradient(np.ones(40)))
