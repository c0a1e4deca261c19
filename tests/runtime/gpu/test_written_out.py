"""Loops of known trips are recorded trip by trip: what is launched, and that values are right however often."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.gpu import written_out
from loopgrad.runtime.gpu.region_recorder import RecordedLaunch, RecordedRegion

DEVICE = "simulator:1"  # decides on loops
X = np.linspace(-0.6, 0.9, 300)  # more than one lane of a kernel carries


def mixing(trips, reverse=False):
    """Every trip takes the mean, so the loop runs over whole tensors."""

    def step(v, row):
        return lg.sin(v * row[0]) + 0.3 * lg.mean(v) + row[1], lg.max(v)

    def loss(x, w):
        last, most = lg.scan(step, x, w, reverse=reverse)
        return lg.sum(last) + lg.sum(most * lg.arange(trips))

    return loss


def arguments(trips, seed):
    rng = np.random.default_rng(seed)
    return X + rng.normal(size=X.shape) / 9, rng.normal(size=(trips, 2))


def regions(block):
    return [entry for entry in block if isinstance(entry, RecordedRegion)]


@pytest.mark.parametrize(
    ("gpu", "trips", "reverse"),
    [(DEVICE, 2, False), (DEVICE, 5, False), (DEVICE, 5, True), ("simulator:0", 5, False), ("simulator:0", 2, True)],
)
def test_no_loop_is_left(recordings, gpu, trips, reverse):
    """Gradients pop in the second loop what the first one pushed; carries change places an odd number of times."""
    gradient = lg.value_and_grad(mixing(trips, reverse), argnums=(0, 1))
    with lg.default_device(gpu):
        replay = lg.compile(gradient).capture(*map(lg.asarray, arguments(trips, 0)))
    assert not regions(recordings[-1])
    assert len([entry for entry in recordings[-1] if isinstance(entry, RecordedLaunch)]) > 4 * trips
    for seed in (1, 2, 3):
        with lg.default_device(gpu):
            value, slopes = replay.replay(*map(lg.asarray, arguments(trips, seed)))
        with lg.default_device("interpreter"):
            wanted, wanted_slopes = gradient(*map(lg.asarray, arguments(trips, seed)))
        for got, want in zip((value, *slopes), (wanted, *wanted_slopes), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-11, atol=1e-12)


def test_long_ones_stay_loops(recordings, monkeypatch):
    monkeypatch.setattr(written_out, "MOST", 12)
    with lg.default_device(DEVICE):
        given = [lg.asarray(v) for v in arguments(9, 0)]
        replay = lg.compile(mixing(9)).capture(*given)
        got = np.asarray(replay.replay(*given))
    assert len(regions(recordings[-1])) == 1
    with lg.default_device("interpreter"):
        np.testing.assert_allclose(got, np.asarray(mixing(9)(*map(lg.asarray, arguments(9, 0)))), rtol=1e-12)


def test_a_stack_of_two_kinds_of_loops_keeps_both(recordings, monkeypatch):
    """What one that is written out pushes, one that isn't couldn't pop."""
    found = []
    original = written_out.written_out

    def with_room_for_one(program, known):
        steps = [step for step in program.steps if isinstance(step, written_out.ForStep)]
        monkeypatch.setattr(written_out, "MOST", 5 * len(steps[0].body))
        found.append((len(steps), original(program, known)))
        return found[-1][1]

    monkeypatch.setattr("loopgrad.runtime.gpu.step_recorder.written_out", with_room_for_one)
    with lg.default_device(DEVICE):
        lg.compile(lg.grad(mixing(5))).capture(*map(lg.asarray, arguments(5, 0)))
    assert found == [(2, {})]
    assert len(regions(recordings[-1])) == 2
