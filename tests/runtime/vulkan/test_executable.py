"""Whole programs on the device: steps, recorded command buffers, replay, growth, errors."""

import threading

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.vulkan.api import device_count
from tests.runtime.loops import gradient_of_ragged_loops, mixing_reference, ragged_reference, sum_of_mixing_loop

pytestmark = pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")


@pytest.fixture(autouse=True)
def on_vulkan():
    with lg.default_device("vulkan:0"):
        yield


def test_calls_after_the_first_submit_the_recorded_commands():
    compiled = lg.compile(gradient_of_ragged_loops())
    rng = np.random.default_rng(0)
    for most in (3, 4, 30, 5):
        x, n = rng.uniform(0.5, 1.5, 40), rng.integers(0, most, 40, dtype=np.int32)
        got = compiled(lg.asarray(x), lg.asarray(n))
        np.testing.assert_allclose(np.asarray(got), ragged_reference(x, n), rtol=1e-12)


def test_outputs_of_earlier_calls_stay():
    compiled = lg.compile(lambda x: (x + 1.0, lg.sum(x)))
    results = [compiled(lg.asarray(np.full(1000, float(i)))) for i in range(5)]
    for i, (array, total) in enumerate(results):
        assert np.asarray(array).tolist() == [i + 1.0] * 1000
        assert float(total) == 1000.0 * i


@pytest.mark.parametrize("most", [1, 3])
def test_workgroups_that_stay_take_all_lanes(monkeypatch, most):
    monkeypatch.setattr("loopgrad.runtime.vulkan.driver.MOST_GROUPS", most)
    x, places = np.zeros(1000, np.int32), np.random.default_rng(most).permutation(1000)[:700]
    wanted = x.copy()
    wanted[places] = np.arange(700)
    got = lg.compile(lambda x, k, y: x.at[k].set(y))(x, places, np.arange(700, dtype=np.int32))
    np.testing.assert_array_equal(np.asarray(got), wanted)
    left, right = np.arange(24_000.0).reshape(3, 100, 80), np.ones((3, 80, 90))
    np.testing.assert_array_equal(np.asarray(lg.compile(lambda x, y: x @ y)(left, right)), left @ right)


def test_replay_with_other_values_and_deeper_loops():
    compiled = lg.compile(gradient_of_ragged_loops())
    rng = np.random.default_rng(1)
    x, n = rng.uniform(0.5, 1.5, 20), rng.integers(0, 4, 20, dtype=np.int32)
    captured = compiled.capture(lg.asarray(x), lg.asarray(n))
    first = captured.replay(lg.asarray(x), lg.asarray(n))
    for most in (4, 60, 3):
        n = rng.integers(0, most, 20, dtype=np.int32)
        got = captured.replay(lg.asarray(x), lg.asarray(n))
        np.testing.assert_allclose(np.asarray(got), ragged_reference(x, n), rtol=1e-12)
    assert np.asarray(first).shape == (20,)


def test_loops_over_whole_tensors_run_step_by_step():
    def power_iteration(a, n):
        v = lg.ones((4,), dtype=lg.float64)
        return lg.fori_loop(0, n, lambda _, v: a @ v / lg.sum(v * v), v)

    compiled = lg.compile(power_iteration)
    a = np.random.default_rng(2).normal(size=(4, 4))
    v = np.ones(4)
    for _ in range(7):
        v = a @ v / (v * v).sum()
    got = compiled(lg.asarray(a), lg.asarray(7, dtype=lg.int32))
    np.testing.assert_allclose(np.asarray(got), v, rtol=1e-12)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((1, 1), (1, 1)), ((33, 65), (65, 17))])
def test_products_of_matrices(shapes):
    rng = np.random.default_rng(3)
    a, b = (rng.normal(size=shape) for shape in shapes)
    got = lg.asarray(a) @ lg.asarray(b)
    np.testing.assert_allclose(np.asarray(got), a @ b, rtol=1e-12, atol=1e-13)


def test_a_library_routine():
    x = np.random.default_rng(4).normal(size=(5, 30))
    got = lg.sort(lg.asarray(x) * 2.0, axis=1) + 1.0
    np.testing.assert_allclose(np.asarray(got), np.sort(x * 2.0, axis=1) + 1.0)


def test_the_plan_tells_what_is_there():
    compiled = lg.compile(gradient_of_ragged_loops())
    x, n = lg.ones((8,), dtype=lg.float64), lg.asarray(np.arange(8, dtype=np.int32))
    compiled(x, n)
    text = str(compiled.plan(x, n))
    assert "vulkan:0" in text
    assert "kernels" in text


def test_texts():
    compiled = lg.compile(lambda x: x * 2.0)
    x = lg.ones((3,), dtype=lg.float32)
    assert "OpFMul" in compiled.text("spirv", x)
    assert "mul" in compiled.text("kernel", x)
    with pytest.raises(ValueError, match="expected one of the stages graph, kernel, spirv"):
        compiled.text("llvm", x)


def test_threads_take_turns():
    compiled = lg.compile(lambda x: lg.sum(lg.sin(x) * x))
    found = {}

    def work(number):
        with lg.default_device("vulkan:0"):
            x = np.linspace(0, number, 500)
            found[number] = {float(compiled(lg.asarray(x))) for _ in range(10)}

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, results in found.items():
        x = np.linspace(0, number, 500)
        assert len(results) == 1
        assert np.isclose(results.pop(), (np.sin(x) * x).sum(), rtol=1e-12)
    assert len(found) == 4


def test_a_failed_call_leaves_the_executable_usable():
    def count(n):
        return lg.while_loop(lambda k: k < n, lambda k: k + 1, lg.asarray(0), max_steps=10)

    compiled = lg.compile(count)
    assert int(compiled(lg.asarray(4))) == 4
    with pytest.raises(lg.LoopLimitError):
        int(compiled(lg.asarray(20)))
    assert int(compiled(lg.asarray(5))) == 5


def test_loops_over_whole_tensors_are_few_submissions(monkeypatch):
    """As many trips as before: one. A loop that nobody knows: about as many as the trips have binary digits."""
    monkeypatch.setattr("loopgrad.runtime.gpu.speculation.START_SECONDS", 1e9)
    timeline = get_device("vulkan:0").gpu.timeline
    x = np.linspace(-0.6, 0.9, 300)
    compiled = lg.compile(sum_of_mixing_loop)
    placed = lg.asarray(x)
    for trips, most in ((40, 5), (40, 1), (3, 2), (3, 1), (100, 8)):
        n = lg.asarray(trips)
        lg.eval(n)
        before = timeline.submitted
        value = compiled(placed, n)
        assert timeline.submitted - before <= most
        np.testing.assert_allclose(np.asarray(value), mixing_reference(x, trips), rtol=1e-12)


def test_loops_around_loops_are_not_to_be_unrolled():
    """Drivers may unroll the short ones. A loop that pops has a copy with several trips."""

    def loss(x, n):
        return lg.sum(lg.fori_loop(0, n, lambda _, v: v * v, x))

    x, n = lg.ones((3000,), dtype=lg.float32), lg.asarray(np.arange(3000) % 7)
    text = lg.compile(lg.grad(loss)).text("spirv", x, n)
    module = max(text.split("\n; "), key=lambda part: part.count("OpLoopMerge"))
    hints = [line.split()[-1] for line in module.splitlines() if line.startswith("OpLoopMerge")]
    assert hints.count("%2") >= 1
    assert hints.count("%0") >= 3
