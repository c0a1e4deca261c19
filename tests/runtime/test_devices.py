"""Devices by name: what is there, what isn't and why, and buffers on them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.errors import DTypeError
from loopgrad.graph.types import bfloat16, float64
from loopgrad.runtime.devices import devices, get_device


def test_the_cpu_and_the_interpreter_always_work() -> None:
    listed = {d.name: d for d in devices()}
    for name in ("cpu", "interpreter"):
        assert listed[name].available
        assert str(listed[name]) == f"{name}: available"
        assert get_device(name).name == name
        assert get_device(name) is get_device(name)


@pytest.mark.parametrize("name", ["cuda:0", "hip:0", "cuda:1", "cuda"])
def test_an_unusable_device_says_why_in_one_line(name: str) -> None:
    listed = {d.kind: d for d in devices()}[name.split(":")[0]]
    if listed.available:
        pytest.skip(f"{name} can be used here")
    assert listed.reason
    assert "\n" not in listed.reason
    with pytest.raises(RuntimeError, match=r"can't be used: .*; use one of cpu, interpreter"):
        get_device(name)


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "cpu:0", "CPU", "cuda:0:1"])
def test_an_unknown_device_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of the devices cpu, interpreter, cuda:0, .*, got '"):
        get_device(name)


@pytest.mark.parametrize("name", ["cpu", "interpreter"])
def test_put_copies_to_dense_read_only_native_memory(name: str) -> None:
    device = get_device(name)
    source = np.arange(12, dtype=">f8").reshape(3, 4).T
    buffer = device.put(source)
    source[0, 0] = 99.0
    array = device.get(buffer)
    assert array[0, 0] == 0.0
    assert array.shape == (4, 3)
    assert array.flags.c_contiguous
    assert not array.flags.writeable
    assert array.dtype == np.dtype("=f8")
    assert buffer.type.dtype is float64
    assert buffer.device == name
    assert buffer.nbytes == 96
    assert buffer.locate() == array.ctypes.data


def test_put_may_share_memory() -> None:
    source = np.arange(3.0)
    buffer = get_device("cpu").put(source, copy=False)
    assert buffer.locate() == source.ctypes.data
    assert source.flags.writeable


def test_dtypes() -> None:
    assert get_device("cpu").put(np.zeros(2, ml_dtypes.bfloat16)).type.dtype is bfloat16
    with pytest.raises(DTypeError, match="expected one of the dtypes"):
        _ = get_device("cpu").put(np.array(["a"])).type


def test_synchronize_waits_for_all_devices_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    for device in (get_device("cpu"), get_device("interpreter")):
        monkeypatch.setattr(type(device), "finish", lambda self: waited.append(self.name))
    lg.synchronize()
    assert {"cpu", "interpreter"} <= set(waited)
    waited.clear()
    lg.synchronize("cpu")
    assert waited == ["cpu"]
