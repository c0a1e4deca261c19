"""What a driver made of a module is kept on disk, per driver and module; a driver that keeps nothing is asked once."""

from types import SimpleNamespace

import pytest

from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.probe import fused_probe, widening_probe
from loopgrad.runtime.cache import DiskCache
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.vulkan.api import VulkanError, api, device_count
from loopgrad.runtime.vulkan.pipelines import HEADER_BYTES, Pipelines

pytestmark = pytest.mark.skipif(device_count()[0] == 0, reason=device_count()[1] or "there is a device")


class Driver:
    """A device whose caches hold `content` after a pipeline was made; it remembers what caches began with."""

    def __init__(self, content: bytes, version: str = "1") -> None:
        self.api, self.ffi, self.device, self.physical, self.version = self, api().ffi, None, None, version
        self.content, self.began, self.lib, self.timeline = content, [], self, self

    struct = staticmethod(lambda name, **fields: api().struct(name, **fields))
    check = staticmethod(lambda *_: None)
    properties = staticmethod(lambda _: SimpleNamespace(pipelineCacheUUID=[7] * 16))
    module = staticmethod(lambda code: code)
    pipeline = staticmethod(lambda _module, entry, _cache: entry)
    discard = staticmethod(lambda *_: None)
    vkDestroyPipeline = vkDestroyPipelineCache = vkDestroyShaderModule = staticmethod(lambda *_: None)

    def made(self, function, type, info):
        data = info.pInitialData
        self.began.append(bytes(self.ffi.buffer(self.ffi.cast("char*", data), info.initialDataSize)) if data else b"")

    def vkGetPipelineCacheData(self, device, cache, size, data):
        if data == self.ffi.NULL:
            size[0] = len(self.content)
        else:
            self.ffi.memmove(data, self.content, size[0])
        return 0


def one(driver, folder, code=b"abcd"):
    pipelines = Pipelines(driver, DiskCache(folder))
    pipelines.image(code).pipeline("a kernel", "main", 64)
    return pipelines


def test_what_one_process_keeps_the_next_one_finds(tmp_path):
    content = bytes(range(100))
    first, second, other = Driver(content), Driver(content), Driver(content, version="2")
    assert (one(first, tmp_path).made, first.began) == (1, [b""])
    assert (one(second, tmp_path).found, second.began) == (1, [content])
    assert one(second, tmp_path, b"other code").made == 1
    assert (one(other, tmp_path).made, other.began) == (1, [b""])


def test_a_refused_kernel_is_named_and_what_to_do_said(tmp_path):
    driver = Driver(b"")
    driver.name = "a card"

    def refuse(module, entry, cache):
        raise VulkanError("vkCreateComputePipelines: the Vulkan driver answered -13")

    driver.pipeline = refuse
    with pytest.raises(VulkanError, match=r"a card: expected .* kernel a kernel, got .*-13.*smaller arrays .*device"):
        one(driver, tmp_path)


def test_a_driver_that_keeps_nothing_is_asked_once(tmp_path):
    driver = Driver(bytes(HEADER_BYTES))
    pipelines = Pipelines(driver, DiskCache(tmp_path))
    for _ in range(3):
        pipelines.image(b"abcd").pipeline("a kernel", "main", 64)
    assert (pipelines.made, pipelines.found, driver.began) == (3, 0, [b""])
    assert not list(tmp_path.glob("*.program"))


def test_the_driver_takes_pipelines_back(tmp_path):
    gpu = get_device("vulkan:0").gpu
    codes = [fused_probe(gpu.features, "f32"), widening_probe(Features(endless_loops=gpu.features.endless_loops))]
    kept = []
    for _ in range(2):
        pipelines = Pipelines(gpu, DiskCache(tmp_path))
        for code in codes:
            assert pipelines.image(code).pipeline("a probe", "main", 64).handle
        assert pipelines.found + pipelines.made == len(codes)
        kept.append(len(list(tmp_path.glob("*.program"))))
    assert kept[0] == kept[1]
    assert pipelines.found == kept[0]
