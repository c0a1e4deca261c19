"""`lg.memory_stats`: what compiled programs hold on a device."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import loopgrad as lg


def test_every_device_reports_bytes(device):
    np.asarray(lg.asarray([1.0, 2.0]) + 1.0)
    assert all(v >= 0 for v in dataclasses.astuple(lg.memory_stats()))
    assert lg.memory_stats(device) == lg.memory_stats()


def test_stacks_of_lanes_and_idle_results_are_counted():
    def loss(x):
        return lg.sum(lg.while_loop(lambda v: v < 4.0, lambda v: v + lg.exp(-v), x))

    x = lg.asarray(np.linspace(0.0, 1.0, 1000))
    slope = np.asarray(lg.grad(loss)(x))
    stats = lg.memory_stats("cpu")
    assert stats.heap_bytes > 0
    assert stats.heap_peak_bytes >= 8 * 3  # one lane's saved values
    del slope, x
    assert lg.memory_stats("cpu").spare_bytes >= 8000


def test_an_unknown_device_is_named():
    with pytest.raises(ValueError, match="got 'nowhere'"):
        lg.memory_stats("nowhere")
