"""Arrays handed to and taken from other libraries on a CUDA device, by DLPack and the CUDA array interface.

Where CUDA can be simulated, all of it but the tests with real libraries runs in a process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.runtime import dlpack
from loopgrad.runtime.devices import get_device
from tests.runtime.cuda.simulated_process import SIMULATED
from tests.runtime.loops import gradient_of_ragged_loops, ragged_reference

ROOT = Path(__file__).parents[3]


def has_cuda() -> bool:
    return any(status.kind == "cuda" and status.available for status in lg.devices())


needs_cuda = pytest.mark.skipif(not has_cuda(), reason="no CUDA device, and not the process in which one is simulated")
needs_gpu = pytest.mark.skipif(SIMULATED in os.environ or not has_cuda(), reason="no CUDA device")


@pytest.fixture
def x():
    """Six numbers on the device; nothing is exported before and after."""
    gc.collect()
    assert not dlpack._exports
    yield lg.asarray(np.arange(6, dtype=np.float32).reshape(2, 3), device="cuda:0") * 2.0
    gc.collect()
    assert not dlpack._exports


EXPECTED = np.arange(6, dtype=np.float32).reshape(2, 3) * 2


def address_of(t):
    lg.eval(t)
    return t._value.buffer.address


class Foreign:
    """An array of another library: the capsule of `t`, changed by `change` before somebody takes it."""

    def __init__(self, t, change=None, **arguments):
        self._t, self._change, self._arguments = t, change, arguments
        self.asked = None

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **asked):
        self.asked = asked
        capsule = self._t.__dlpack__(**{**asked, **self._arguments})
        name = next(n for n in dlpack.LAYOUTS if dlpack._is_named(capsule, n))
        if self._change is not None:
            self._change(dlpack.LAYOUTS[name].from_address(dlpack._pointer(capsule, name)))
        return capsule


class Interface:
    """An array of a library that has the CUDA array interface alone."""

    def __init__(self, t, **changes):
        self._t, self.__cuda_array_interface__ = t, {**t.__cuda_array_interface__, **changes}


def orders() -> int:
    if SIMULATED not in os.environ:
        pytest.skip("counted in the simulator")
    from tests.simulator.cuda.device import counts

    return counts()["orders"]


@needs_cuda
@pytest.mark.parametrize("version", [None, (1, 0), (1, 1)])
def test_a_round_trip_shares_the_memory(x, version):
    foreign = Foreign(x, max_version=version)
    y = lg.from_dlpack(foreign)
    assert y.device == "cuda:0"
    assert address_of(y) == address_of(x)
    assert foreign.asked["max_version"] == (1, 0)
    assert foreign.asked["stream"] > 2
    del x, foreign
    np.testing.assert_array_equal(np.asarray(y + 1.0), EXPECTED + 1)
    del y


@needs_cuda
def test_asarray_copies_on_the_device(x):
    y = lg.asarray(Foreign(x))
    assert y.device == "cuda:0"
    assert address_of(y) != address_of(x)
    assert address_of(lg.asarray(Foreign(x), copy=False)) == address_of(x)
    np.testing.assert_array_equal(np.asarray(y), EXPECTED)
    assert lg.asarray(Foreign(x), dtype=lg.int32).dtype is lg.int32


@needs_cuda
@pytest.mark.parametrize("how", ["dlpack", "copy", "interface"])
def test_others_get_what_a_call_makes_that_had_to_be_done_again(x, how):
    """Its stacks were too small, and nobody had looked."""
    with lg.default_device("cuda:0"):
        gradient = lg.compile(gradient_of_ragged_loops())
        values, trips = np.linspace(0.3, 0.7, 40), np.full(40, 2, np.int32)
        for _ in range(2):
            np.asarray(gradient(lg.asarray(values), lg.asarray(trips)))
        made = gradient(lg.asarray(values), lg.asarray(trips * 40))
        assert not get_device("cuda:0").driver.ledger.empty
        y = lg.from_dlpack(Foreign(made, copy=how == "copy")) if how != "interface" else lg.asarray(Interface(made))
        assert get_device("cuda:0").driver.ledger.empty
        np.testing.assert_allclose(np.asarray(y), ragged_reference(values, trips * 40), rtol=1e-9)
    del made, y


@needs_cuda
def test_calls_that_read_memory_of_others_are_waited_for(x):
    """It may have changed when they would be done again."""
    with lg.default_device("cuda:0"):
        gradient = lg.compile(gradient_of_ragged_loops())
        values, trips = lg.from_dlpack(Foreign(lg.asarray(np.linspace(0.3, 0.7, 40)))), np.full(40, 2, np.int32)
        for factor in (1, 1, 60):
            result = gradient(values, lg.asarray(trips * factor))
            assert get_device("cuda:0").driver.ledger.empty
        wanted = ragged_reference(np.linspace(0.3, 0.7, 40), trips * 60)
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-9)
    del values


@needs_cuda
def test_another_device_is_a_copy(x):
    y = lg.from_dlpack(Foreign(x), device="cpu")
    assert y.device == "cpu"
    np.testing.assert_array_equal(np.asarray(y), EXPECTED)
    with pytest.raises(BufferError, match=r"cpu.*cuda:0"):
        lg.from_dlpack(Foreign(x), device="cpu", copy=False)


@needs_cuda
def test_a_capsule_that_nobody_takes_lets_go(x):
    capsule = x.__dlpack__()
    assert len(dlpack._exports) == 1
    del capsule
    assert not dlpack._exports


@needs_cuda
def test_what_a_capsule_says(x):
    capsule = x.__dlpack__(stream=-1, max_version=(1, 0))
    managed = dlpack.DLManagedTensorVersioned.from_address(dlpack._pointer(capsule, dlpack.VERSIONED))
    tensor = managed.tensor
    assert (managed.major, managed.flags) == (1, dlpack.READ_ONLY)
    assert (tensor.device.type, tensor.device.index, tensor.ndim) == (2, 0, 2)
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)
    assert [tensor.shape[i] for i in range(2)] == [2, 3]
    assert [tensor.strides[i] for i in range(2)] == [3, 1]
    assert tensor.data == address_of(x)
    copy = x.__dlpack__(max_version=(1, 0), copy=True)
    managed = dlpack.DLManagedTensorVersioned.from_address(dlpack._pointer(copy, dlpack.VERSIONED))
    assert managed.flags == dlpack.IS_COPIED
    assert managed.tensor.data != address_of(x)


@needs_cuda
@pytest.mark.parametrize("name", ["bool", "int8", "uint64", "float16", "bfloat16", "float64", "complex64"])
def test_dtypes_and_shapes(name):
    dtype = getattr(lg, name)
    for shape in ((), (0,), (3, 1, 2)):
        t = lg.asarray(np.ones(shape, dtype.np), device="cuda:0")
        y = lg.from_dlpack(Foreign(t))
        assert (y.dtype, y.shape) == (dtype, shape)
        np.testing.assert_array_equal(np.asarray(y), np.ones(shape, dtype.np))


@needs_cuda
def test_streams_wait_for_each_other(x):
    lg.eval(x)
    before = orders()
    capsule = x.__dlpack__(stream=1)
    assert orders() == before + 1
    del capsule  # what the consumer did comes before our next work
    assert orders() == before + 2
    capsule = x.__dlpack__(stream=-1)
    assert orders() == before + 2
    del capsule


@needs_cuda
@pytest.mark.parametrize("stream", [0, -2, "1"])
def test_streams_that_are_none(x, stream):
    with pytest.raises(ValueError, match="stream's handle"):
        x.__dlpack__(stream=stream)


@needs_cuda
def test_what_is_not_dense_is_refused(x):
    def transposed(managed):
        managed.tensor.strides[0], managed.tensor.strides[1] = 1, 2

    with pytest.raises(BufferError, match=r"row-major.*\(1, 2\).*contiguous"):
        lg.from_dlpack(Foreign(x, transposed))


@needs_cuda
def test_dtypes_that_no_tensor_has_are_refused(x):
    def vectors(managed):
        managed.tensor.dtype.lanes = 4

    def strange(managed):
        managed.tensor.dtype.code, managed.tensor.dtype.bits = 3, 64

    for change in (vectors, strange):
        with pytest.raises(BufferError, match="convert it first"):
            lg.from_dlpack(Foreign(x, change))


@needs_cuda
def test_memory_that_is_not_aligned_is_copied(x):
    def later(managed):
        managed.tensor.byte_offset = 4
        managed.tensor.ndim = 1
        managed.tensor.shape[0], managed.tensor.strides[0] = 5, 1

    y = lg.from_dlpack(Foreign(x, later))
    np.testing.assert_array_equal(np.asarray(y), EXPECTED.ravel()[1:])
    with pytest.raises(BufferError, match="aligned to 256"):
        lg.from_dlpack(Foreign(x, later), copy=False)


@needs_cuda
def test_a_capsule_is_taken_once(x):
    capsules = [x.__dlpack__()]

    class Holder:
        def __dlpack_device__(self):
            return (2, 0)

        def __dlpack__(self, **_):
            return capsules[0]

    y = lg.from_dlpack(Holder())
    with pytest.raises(BufferError, match="nobody took"):
        lg.from_dlpack(Holder())
    assert y.shape == (2, 3)


@needs_cuda
def test_the_host_gets_a_copy_where_it_asks(x):
    capsule = x.__dlpack__(dl_device=(1, 0))

    class Holder:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            return capsule

    np.testing.assert_array_equal(np.from_dlpack(Holder()), EXPECTED)
    with pytest.raises(BufferError, match="copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="to_device"):
        x.__dlpack__(dl_device=(2, 1))


@needs_cuda
def test_the_cuda_array_interface(x):
    facts = x.__cuda_array_interface__
    assert facts["shape"] == (2, 3)
    assert facts["typestr"] == "<f4"
    assert facts["data"] == (address_of(x), True)
    assert facts["stream"] > 2
    y = lg.asarray(Interface(x), copy=False)
    assert y.device == "cuda:0"
    assert address_of(y) == address_of(x)
    np.testing.assert_array_equal(np.asarray(lg.asarray(Interface(x, stream=1))), EXPECTED)
    np.testing.assert_array_equal(np.asarray(lg.asarray(Interface(x, strides=(12, 4)))), EXPECTED)
    with pytest.raises(BufferError, match="row-major"):
        lg.asarray(Interface(x, strides=(4, 8)))
    with pytest.raises(BufferError, match="mask"):
        lg.asarray(Interface(x, mask=x))
    with pytest.raises(BufferError, match="dtypes"):
        lg.asarray(Interface(x, typestr="|V4"))
    assert not hasattr(lg.asarray([1.0], device="cpu"), "__cuda_array_interface__")
    assert not hasattr(lg.astype(x, lg.bfloat16), "__cuda_array_interface__")


@needs_cuda
def test_the_interface_keeps_elements_whose_name_is_rebound(x):
    place = x.__cuda_array_interface__["data"][0]
    x[0, 0] = 100.0
    lg.eval(x)
    assert address_of(x) != place
    others = [address_of(lg.zeros((2, 3), dtype=lg.float32, device="cuda:0") + float(i)) for i in range(8)]
    assert place not in others


@needs_cuda
def test_memory_goes_back_when_the_tensor_goes(x):
    class Owner(Foreign):
        pass

    owner = Owner(x)
    y = lg.from_dlpack(owner)
    assert len(dlpack._exports) == 1
    del y
    gc.collect()
    assert not dlpack._exports


@needs_cuda
def test_cuda_core_reads_what_we_export(x):
    utils = pytest.importorskip("cuda.core.utils")
    view = utils.StridedMemoryView.from_dlpack(x, stream_ptr=1)
    assert (view.ptr, view.shape, view.device_id, view.readonly) == (address_of(x), (2, 3), 0, True)
    assert view.dtype == np.float32
    assert len(dlpack._exports) == 1
    del view
    gc.collect()


LATE = """
import ctypes, os, sys
import numpy as np
if os.environ.get("LOOPGRAD_TEST_SIMULATED_CUDA"):
    from tests.simulator.cuda.device import install
    install()
import loopgrad as lg
from loopgrad.runtime import dlpack
x = lg.asarray(np.ones(4), device="cuda:0")
capsule = x.__dlpack__()
managed = dlpack.DLManagedTensor.from_address(dlpack._pointer(capsule, dlpack.PLAIN))
dlpack._rename(capsule, dlpack.USED[dlpack.PLAIN])  # taken by somebody who never gives it back
import atexit
atexit._run_exitfuncs()
assert not managed.deleter
print("done")
"""


@needs_cuda
def test_a_consumer_may_outlive_us():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    run = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


@needs_cuda
def test_the_layout_is_that_of_dlpack():
    assert ctypes.sizeof(dlpack.DLTensor) == 48
    assert dlpack.DLManagedTensor.deleter.offset == 56
    assert dlpack.DLManagedTensorVersioned.tensor.offset == 32


# ---- real libraries


@needs_gpu
def test_torch(x):
    torch = pytest.importorskip("torch")
    t = torch.from_dlpack(x)
    assert t.data_ptr() == address_of(x)
    np.testing.assert_array_equal(t.cpu().numpy(), EXPECTED)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        np.testing.assert_array_equal(torch.from_dlpack(x + 1.0).cpu().numpy(), EXPECTED + 1)
    given = torch.arange(12, dtype=torch.float32, device="cuda") * 3
    y = lg.from_dlpack(given)
    assert address_of(y) == given.data_ptr()
    np.testing.assert_array_equal(np.asarray(y * 2.0), np.arange(12) * 6)
    np.testing.assert_array_equal(np.asarray(lg.from_dlpack(given[1:])), np.arange(1, 12) * 3)
    with pytest.raises(BufferError, match="row-major"):
        lg.from_dlpack(given.reshape(3, 4).T)
    np.testing.assert_array_equal(np.asarray(lg.asarray(given)), np.arange(12) * 3)
    del t, y


@needs_gpu
def test_torch_waits_for_our_stream():
    torch = pytest.importorskip("torch")
    step = lg.compile(lambda v, n: lg.fori_loop(0, n, lambda _, s: lg.sin(s) + 0.1, v))
    x = lg.asarray(np.linspace(0, 1, 1 << 20, dtype=np.float32), device="cuda:0")
    n = lg.asarray(np.full(1 << 20, 2000, np.int32), device="cuda:0")
    for _ in range(3):
        got = torch.from_dlpack(step(x, n)) + 0.0  # enqueued while our kernel runs
        np.testing.assert_array_equal(got.cpu().numpy(), np.asarray(step(x, n)))


@needs_gpu
def test_cupy(x):
    cupy = pytest.importorskip("cupy")
    c = cupy.from_dlpack(x)
    assert c.data.ptr == address_of(x)
    np.testing.assert_array_equal(cupy.asnumpy(c), EXPECTED)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(x)), EXPECTED)  # by the CUDA array interface
    given = cupy.arange(10, dtype=cupy.int64) * 2
    y = lg.from_dlpack(given)
    assert address_of(y) == given.data.ptr
    np.testing.assert_array_equal(np.asarray(y + 1), np.arange(10) * 2 + 1)
    del c, y


@needs_gpu
def test_jax(x):
    jax = pytest.importorskip("jax")
    j = jax.dlpack.from_dlpack(x)
    np.testing.assert_array_equal(np.asarray(j + 1), EXPECTED + 1)
    assert j.unsafe_buffer_pointer() == address_of(x)
    given = jax.numpy.arange(1000, dtype=jax.numpy.float32) * 2
    y = lg.from_dlpack(given)
    assert address_of(y) == given.unsafe_buffer_pointer()
    np.testing.assert_array_equal(np.asarray(y * 2.0), np.arange(1000) * 4)
    del j, y
