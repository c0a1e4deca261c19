"""Run as a program, with a folder and a linker as arguments: `hip:0` on the stand-in for libamdhip64.so."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.gpu.streams.api import StreamFailure
from loopgrad.runtime.hip import device as hip_device
from loopgrad.runtime.hip.api import HipApi
from loopgrad.runtime.hip.device import HipDevice
from tests.simulator.code import UPDATE_GROUP, compile_program
from tests.simulator.code import update_code as simulated_update
from tests.simulator.hip_library import CAPACITY, StandIn

X = np.linspace(0.5, 300.0, 1000)


def ragged(x: Any) -> Any:
    """A stack whose depth nobody knows before."""
    return lg.sum(lg.while_loop(lambda y: y > 1.5, lambda y: lg.sqrt(y) * 1.01, x))


def host_driven(x: Any) -> Any:
    """A loop whose body mixes lanes, so that its steps are a sub-program."""
    total = lg.fori_loop(0, 5, lambda i, c: c * 0.5 + lg.sum(c) / (i + 1), x)
    return lg.sum(total * total)


def library_calls(x: Any) -> Any:
    return lg.sum(lg.sort(lg.sin(x)) ** 2) + lg.max(x)


def expect(refused: type[Exception], text: str, call: Any, *arguments: Any) -> None:
    with pytest.raises(refused, match=text):
        call(*arguments)


def listing(stand_in: StandIn) -> None:
    statuses = {d.name: d for d in lg.devices()}
    assert statuses["hip:0"].available, statuses["hip:0"].reason
    assert get_device("hip:0").processor == "gfx90a"
    expect(RuntimeError, "HIP device 1: expected an AMD GPU of gfx900", get_device, "hip:1")
    expect(RuntimeError, "there are only 2 devices of this kind", get_device, "hip:2")


def amd_code(stand_in: StandIn) -> None:
    """Real code objects: each is loaded, its kernels are found, and the words are those of the machine."""
    device = get_device("hip:0")
    with lg.default_device("hip:0"):
        compiled = lg.compile(library_calls)
        np.asarray(compiled(lg.array(X)))
        assert "v_" in compiled.text("amdgpu", lg.array(X))
    assert stand_in.launches
    for entry, groups, group, words in stand_in.launches:
        assert entry[0] == "k"
        assert group == 256
        assert 0 < groups < 64
        assert words[0] % 8 == 0
        assert words[3] == 0
        assert words[4] > 0
    code, entry, group = hip_device.update_code(device.processor, None)
    assert device.driver.image(code).pipeline("update", entry, group).fit == 2
    stand_in.launches.clear()


def calls(stand_in: StandIn) -> None:
    """What whole programs don't reach."""
    api = HipApi(0)
    before = api.enter()
    place, pinned = api.allocate(4096), api.pin(64)
    api.fill(place, 0xFFFFFFFE, 3)
    graph = api.make_graph()
    first = api.add_fill(graph, (), place + 12, 0x80000001, 2)
    second = api.add_copy(graph, (first,), place + 1024, place, 20)
    api.add_download(graph, (first, second), pinned, place + 1024, 20)
    executable = api.instantiate(graph)
    api.destroy_graph(graph)
    api.launch_graph(executable)
    api.synchronize()
    assert api.idle()
    found = (ctypes.c_uint32 * 5).from_address(pinned)
    assert list(found) == [0xFFFFFFFE] * 3 + [0x80000001] * 2
    api.destroy_executable(executable)
    event = api.make_event()
    api.record(event)
    api.wait(event)
    second = api.make_stream()
    api.order(api.stream, second)
    api.record(event, second)
    api.follow(event)
    assert api.available() == CAPACITY
    api.unpin(pinned)
    api.free(place)
    expect(MemoryError, "taking device memory: hipErrorOutOfMemory", api.allocate, CAPACITY + 1)
    image = bytes(bytearray(hip_device.update_code("gfx90a", None)[0]))
    references = sys.getrefcount(image)
    module = api.load(image)
    assert sys.getrefcount(image) == references + 1, "HIP reads an image as long as its module is loaded"
    expect(StreamFailure, "looking for kernel nothing: hipErrorNotFound", api.function, module, "nothing", 0)
    api.unload(module)
    assert sys.getrefcount(image) == references
    api.leave(before)


def programs(stand_in: StandIn) -> None:
    """Eagerly, compiled, and replayed, in turns."""
    HipDevice.emit = lambda _, program, options: compile_program(program, options)
    get_device("hip:0").driver._update_code = lambda: (simulated_update(), "k0", UPDATE_GROUP)
    for function in (ragged, host_driven, library_calls):
        both = lg.value_and_grad(function)
        with lg.default_device("hip:0"):
            compiled = lg.compile(both)
            replay = compiled.capture(lg.array(X))
        for scale in (1.0, 1.0, 0.5, 3.0):
            with lg.default_device("cpu"):
                wanted = [np.asarray(result) for result in both(lg.array(X * scale))]
            with lg.default_device("hip:0"):
                for run in (both, compiled, replay.replay):
                    for result, expected in zip(run(lg.array(X * scale)), wanted, strict=True):
                        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-11)
    assert stand_in.launches


def exchange(stand_in: StandIn) -> None:
    """DLPack, out to the legacy default stream and back into our own."""
    x = lg.asarray(X, device="hip:0") + 1.0
    assert x.__dlpack_device__() == (10, 0)

    class Foreign:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (10, 0)

        def __dlpack__(self, **asked: Any) -> Any:
            return held[0].__dlpack__(stream=0)

    held = [x]
    y = lg.from_dlpack(Foreign())
    assert y._value.buffer.address == x._value.buffer.address
    np.testing.assert_array_equal(np.asarray(y * 2.0), (X + 1.0) * 2.0)
    with pytest.raises(AttributeError):
        _ = x.__cuda_array_interface__
    before = stand_in.calls["hipDeviceSynchronize"]
    del x, y
    gc.collect()
    assert stand_in.calls["hipDeviceSynchronize"] == before + 1


def main(folder: Path, linker: str) -> None:
    stand_in = StandIn(folder, linker)
    for part in (listing, amd_code, calls, programs, exchange):
        part(stand_in)
        assert not stand_in.failures, (part.__name__, stand_in.failures)
        assert stand_in.device == 1, "the thread's own device must be left as it was"
    unused = [name for name, count in stand_in.calls.items() if not count]
    assert not unused, unused
    sys.stdout.write("every function was called\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
