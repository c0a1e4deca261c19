"""The device itself: buffers, listing, and one line of reason where it is missing."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from loopgrad.graph.types import TensorType, float64
from loopgrad.runtime.devices import devices, get_device
from loopgrad.runtime.gpu.memory import LARGEST_PIECE
from loopgrad.runtime.vulkan.api import device_count, structure_type
from loopgrad.runtime.vulkan.device import VulkanDevice
from loopgrad.runtime.vulkan.gpu import Gpu

needs_device = pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")


@needs_device
def test_it_is_listed_and_made_once():
    assert any(d.name == "vulkan:0" and d.available for d in devices())
    assert get_device("vulkan:0") is get_device("vulkan")
    assert get_device("vulkan:0").kind == "vulkan"


@needs_device
def test_a_number_beyond_the_last_says_how_many_there_are():
    with pytest.raises(RuntimeError, match=r"device 'vulkan:99' can't be used: there are only \d+ devices"):
        get_device("vulkan:99")


def test_a_missing_loader_is_one_line():
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "vulkan" or name.startswith("vulkan."):
            raise WHAT
sys.meta_path.insert(0, Missing())
import loopgrad as lg
status = [d for d in lg.devices() if d.kind == "vulkan"]
print(status[0])
try:
    lg.asarray([1.0], device="vulkan:0")
except RuntimeError as error:
    print(error)
"""
    for what, reason in (
        ("OSError('no libvulkan')", "libvulkan.so.1 (the Vulkan loader) not found"),
        ("ImportError('no package')", "the package 'vulkan' is not installed (pip install loopgrad[vulkan])"),
    ):
        run = subprocess.run(
            [sys.executable, "-c", code.replace("WHAT", what)], capture_output=True, text=True, timeout=60, check=True
        )
        lines = run.stdout.splitlines()
        assert lines[0] == f"vulkan:0: {reason}"
        assert lines[1].startswith(f"device 'vulkan:0' can't be used: {reason}; use one of")


def test_a_missing_driver_is_one_line():
    code = """
import os
os.environ["VK_ICD_FILENAMES"] = os.environ["VK_DRIVER_FILES"] = "/nonexistent.json"
import loopgrad as lg
print([d for d in lg.devices() if d.kind == "vulkan"][0].reason)
try:
    lg.asarray([1.0], device="vulkan:0")
except RuntimeError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    reason, error, place = run.stdout.splitlines()
    if "libvulkan" not in reason and "not installed" not in reason:
        assert reason == "the Vulkan loader finds no driver (no ICD is installed)"
    assert error.startswith(f"device 'vulkan:0' can't be used: {reason}; use one of")
    assert place.strip().startswith("at ")


@needs_device
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float32", "float64", "complex64"])
def test_put_and_get(dtype):
    device = get_device("vulkan:0")
    source = np.arange(12).reshape(3, 4).astype(dtype).T
    array = device.get(device.put(source))
    np.testing.assert_array_equal(array, source)
    assert array.flags.c_contiguous
    assert not array.flags.writeable
    assert device.get(device.put(np.zeros((0, 3)))).shape == (0, 3)


@needs_device
def test_memory_is_used_again():
    device = get_device("vulkan:0")
    heap = device.driver.data
    for size in (100, 5000, LARGEST_PIECE + 1):
        heap.take(size)
        held = heap.held
        for _ in range(50):
            heap.take(size)
        assert heap.held <= held, "less, where others' memory of no use goes back to the driver meanwhile"


@needs_device
def test_more_memory_than_there_is():
    device = get_device("vulkan:0")
    with pytest.raises((MemoryError, RuntimeError)):
        device.driver.data.take(1 << 50)
    buffer = device.put(np.ones(3))
    assert buffer.type == TensorType((3,), float64)


@needs_device
def test_buffers_from_many_threads():
    device = get_device("vulkan:0")
    wrong = []

    def work(number):
        for i in range(50):
            x = np.full(100 + i, float(number))
            if not np.array_equal(device.get(device.put(x)), x):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_structure_types_follow_from_names():
    assert structure_type("VkBufferCreateInfo") == "VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO"
    wanted = "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES"
    assert structure_type("VkPhysicalDeviceVulkan12Features") == wanted
    assert structure_type("VkPhysicalDeviceFeatures2") == "VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2"


@needs_device
def test_the_host_copy_is_shared_while_it_lives():
    device = get_device("vulkan:0")
    buffer = device.put(np.arange(4.0))
    first = device.get(buffer)
    assert device.get(buffer) is first


@needs_device
def test_nvidia_says_what_it_gets_wrong(monkeypatch):
    """Opening such a device warns, and its features leave out what the driver can't do."""
    monkeypatch.setattr(Gpu, "is_nvidia", True)
    with pytest.warns(RuntimeWarning, match="NVIDIA's Vulkan driver computes some kernels wrongly"):
        device = VulkanDevice(0)
    assert not device.gpu.features.known_bits
    assert not device.gpu.features.rounded_halves
    assert 64 not in device.gpu.features.nearest


AS_NVIDIA = """
import warnings
import numpy as np
import loopgrad as lg
from loopgrad.runtime.vulkan.gpu import Gpu

Gpu.is_nvidia = True
a = np.random.default_rng(0).normal(size=(3, 3))
x = np.arange(70, dtype=np.int32).reshape(7, 10)

def program(xp, a, x):
    return xp.linalg.inv(a + 0.5 * a), (x.T[::-1, 1:] * 7 - 3) // 4 % 5 & 3, xp.cumsum(x, 1)[:, ::3]

warnings.simplefilter("ignore")
with lg.default_device("vulkan:0"), lg.options(direct=False):
    for given, wanted in zip(lg.compile(lambda *v: program(lg, *v))(a, x), program(np, a, x)):
        np.testing.assert_allclose(np.asarray(given), wanted, rtol=1e-12)
"""


@needs_device
def test_what_nvidia_is_given_computes_the_same():
    """Its masks, shifts, quotients and products of integers end with a zero that its compiler can't know."""
    run = subprocess.run([sys.executable, "-c", AS_NVIDIA], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
