"""Which execution a context has, and when it gives one up for another."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu.capacities import Capacities
from loopgrad.runtime.gpu.context import GpuContext
from loopgrad.runtime.gpu.device_decided import DeviceDecided
from loopgrad.runtime.gpu.executable import GpuExecutable, allocation_of
from loopgrad.runtime.gpu.host_driven import HostDriven
from loopgrad.runtime.gpu.recorded import Recorded
from tests.runtime.loops import gradient_of_ragged_loops, sum_of_mixing_loop

DEVICES = ("simulator:0", "simulator:1")
X = np.linspace(0.5, 1.0, 300)  # more than one lane of a kernel carries


@pytest.fixture(params=DEVICES)
def on(request):
    with lg.default_device(request.param):
        yield get_device(request.param)


def contexts(device, fun, *arguments):
    """A context of a program, and how to run it with these arrays."""
    compiled = lg.compile(fun)
    compiled(*map(lg.asarray, arguments))
    executable = compiled._called("a context", "")
    assert isinstance(executable, GpuExecutable)
    capacities = Capacities(executable.program, None, device.name)
    context = GpuContext(executable.loaded, capacities, adapt=True)
    held = [device.put(np.asarray(a)) for a in arguments]
    return context, capacities, lambda: context.run([allocation_of(buffer) for buffer in held])


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("fun", "arguments", "first", "then"),
    [
        (gradient_of_ragged_loops(), (X, np.arange(300) % 7), HostDriven, Recorded),
        (lg.grad(sum_of_mixing_loop), (X, np.asarray(3)), HostDriven, DeviceDecided),
        (lambda x: lg.sort(x) * 2.0, (X,), HostDriven, Recorded),
    ],
)
def test_what_is_known_decides_how_a_program_runs(on, fun, arguments, first, then):
    context, capacities, run = contexts(on, fun, *arguments)
    for wanted in (first, then, then):
        run()
        assert type(context._execution) is wanted
        assert context.recorded == (wanted is not HostDriven)
    capacities.forget()
    run()
    assert type(context._execution) is first


def test_a_routine_of_the_host_is_driven_by_it(on, sorted_by_host):
    context, _, run = contexts(on, lambda x: lg.sort(x) * 3.0, X)
    for _ in range(3):
        run()
        assert type(context._execution) is HostDriven


def test_a_loop_with_a_routine_is_decided_on_by_the_device(on):
    context, _, run = contexts(on, lambda x, n: lg.fori_loop(0, n, lambda _, v: lg.sort(-v), x), X, np.asarray(3))
    for _ in range(2):
        run()
    assert type(context._execution) is DeviceDecided


def test_a_program_with_nothing_to_learn_is_recorded_at_once_where_the_host_decides(on):
    context, _, run = contexts(on, sum_of_mixing_loop, X, np.asarray(3))
    run()
    assert type(context._execution) is (DeviceDecided if on.driver.host_decides else HostDriven)


def test_a_placement_stays(on):
    context, _, run = contexts(on, lg.grad(sum_of_mixing_loop), X, np.asarray(3))
    work = context._work
    symbols, control = work.bindings.symbols, work.placement.control.ctypes.data
    for _ in range(3):
        run()
    assert work.bindings.symbols is symbols
    assert work.placement.control.ctypes.data == control == work.placement.shared.words.ctypes.data
    with pytest.raises(FrozenInstanceError):
        work.placement.count = 0
    with pytest.raises(FrozenInstanceError):
        work.placement = work.placement


def test_a_failure_gives_the_execution_up(on, monkeypatch):
    context, _, run = contexts(on, gradient_of_ragged_loops(), X, np.arange(300) % 7)
    run()
    run()
    monkeypatch.setattr(Recorded, "run", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run()
    assert not context.recorded
    monkeypatch.undo()
    run()
    assert context.recorded
