"""The checks of a Vulkan run notice what they are there for."""

import os
import shutil
import subprocess
import sys

import pytest

from loopgrad.codegen.targets.spirv.assembly import OP
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.probe import fused_probe
from loopgrad.runtime.vulkan.api import device_count
from tests.vulkan_checks import LAYER, Layer, Modules, installed, judged


def ill_typed(code: bytes) -> bytes:
    """The module with a float multiplication that became an integer one."""
    words = [int.from_bytes(code[i : i + 4], "little") for i in range(0, len(code), 4)]
    at = 5
    while words[at] & 0xFFFF != OP["FMul"]:
        at += words[at] >> 16
    words[at] += OP["IMul"] - OP["FMul"]
    return b"".join([word.to_bytes(4, "little") for word in words])


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="spirv-val is not installed")
def test_a_rejected_module_is_named(tmp_path, monkeypatch):
    modules = Modules(tmp_path)
    code = fused_probe(Features(), "f32")
    for _ in range(2):
        modules.keep(code, "good")
        modules.keep(ill_typed(code), "bad")
    found = [text for text in map(judged, tmp_path.glob("*.spv")) if text]
    assert len(list(tmp_path.glob("*.spv"))) == 2
    assert len(found) == 1
    assert found[0].startswith("bad, emitted by tests/test_vulkan_checks.py::test_a_rejected_module_is_named")
    assert "IMul" in found[0]


def test_what_the_layer_has_seen_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.vulkan_checks.SAMPLE", 0.0)
    modules = Modules(tmp_path)
    seen, unseen = fused_probe(Features(), "f32"), fused_probe(Features(), "f64")
    modules.keep(seen, "seen")
    modules.keep(unseen, "unseen")
    assert len(modules.left()) == 2
    modules.note(seen)
    assert [path.read_bytes() for path in modules.left()] == [unseen]
    monkeypatch.setattr("tests.vulkan_checks.SAMPLE", 1.0)
    assert len(modules.left()) == 2


def test_messages_are_read_once_even_if_the_file_began_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("VK_INSTANCE_LAYERS", "another")
    monkeypatch.setenv("VK_LAYER_SETTINGS_PATH", "")
    layer = Layer(tmp_path)
    assert os.environ["VK_INSTANCE_LAYERS"] == f"{LAYER}:another"
    assert layer.messages() == ""
    layer.log.write_text("first")
    assert layer.messages() == "first"
    assert layer.messages() == ""
    layer.log.write_bytes(b"\0\0\0new")
    layer.seen = 100
    assert layer.messages() == "new"


@pytest.mark.skipif(not installed(LAYER) or device_count()[0] == 0, reason="no validation layer, or no device")
def test_the_layer_writes_what_is_wrong_with_a_call(tmp_path, monkeypatch):
    monkeypatch.delenv("VK_INSTANCE_LAYERS", raising=False)
    monkeypatch.setenv("VK_LAYER_SETTINGS_PATH", "")
    layer = Layer(tmp_path)
    code = """
from loopgrad.runtime.devices import get_device
gpu = get_device("vulkan:0").gpu
print(gpu.made("vkCreateBuffer", "VkBuffer", gpu.api.struct("VkBufferCreateInfo", size=0, usage=32)))
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "VUID-VkBufferCreateInfo-size-00912" in layer.messages()


@pytest.mark.skipif(not installed(LAYER) or device_count()[0] == 0, reason="no validation layer, or no device")
def test_the_layer_validates_modules_as_spirv_val_does(tmp_path, monkeypatch):
    monkeypatch.delenv("VK_INSTANCE_LAYERS", raising=False)
    monkeypatch.setenv("VK_LAYER_SETTINGS_PATH", "")
    layer = Layer(tmp_path)
    code = """
import sys
from loopgrad.runtime.devices import get_device
get_device("vulkan:0").gpu.module(bytes.fromhex(sys.argv[1]))
"""
    good = fused_probe(Features(), "f32")
    subprocess.run([sys.executable, "-c", code, good.hex()], capture_output=True, timeout=60, check=True)
    assert layer.messages() == ""
    subprocess.run([sys.executable, "-c", code, ill_typed(good).hex()], capture_output=True, timeout=60, check=False)
    assert "IMul" in layer.messages()
