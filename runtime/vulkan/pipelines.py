"""Compute pipelines, and what the driver made of their code, kept on disk from process to process.

Each module has an entry of its own in the disk cache, named by the driver (its UUID changes when its code
format does) and the SPIR-V. Its content is a VkPipelineCache's data. A driver that keeps nothing
there (lavapipe has a cache of its own) isn't asked again.
"""

from __future__ import annotations

import hashlib
from types import NoneType
from typing import Any, Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.runtime.cache import DiskCache
from loopgrad.runtime.vulkan.api import VulkanError
from loopgrad.runtime.vulkan.gpu import Gpu

HEADER_BYTES: Final = 32  # of VkPipelineCacheHeaderVersionOne: data that holds no pipeline


class Pipelines:
    """`found`, `made`: pipelines whose code came from disk, and those that the driver compiled."""

    def __init__(self, gpu: Gpu, disk: DiskCache | None) -> None:
        self._gpu, self._disk = gpu, disk
        uuid = bytes(gpu.api.properties(gpu.physical).pipelineCacheUUID)
        self._driver = f"{gpu.version} {uuid.hex()}"
        self.found = self.made = 0

    def image(self, code: bytes) -> VulkanImage:
        return VulkanImage(self, self._gpu, code)

    def make(self, module: Any, code: bytes, entry: str) -> Any:
        """The pipeline of one of the module's entry points."""
        if self._disk is None:
            self.made += 1
            return self._gpu.pipeline(module, entry, self._gpu.ffi.NULL)
        parts = ("pipeline", self._driver, hashlib.blake2b(code, digest_size=20).hexdigest(), entry)
        known = self._disk.load(parts, NoneType)
        cache = self._open(b"" if known is None else known.code)
        try:
            pipeline = self._gpu.pipeline(module, entry, cache)
            self.found += known is not None
            self.made += known is None
            if known is None:
                self._keep(parts, self._data(cache))
        finally:
            self._gpu.lib.vkDestroyPipelineCache(self._gpu.device, cache, self._gpu.ffi.NULL)
        return pipeline

    def _keep(self, parts: tuple[str, ...], data: bytes) -> None:
        assert self._disk is not None
        if len(data) > HEADER_BYTES:
            self._disk.store(parts, Artifact(None, b"", data))
        else:
            self._disk = None

    def _open(self, data: bytes) -> Any:
        """A VkPipelineCache that begins with this data; the driver ignores what isn't its own."""
        api, ffi = self._gpu.api, self._gpu.ffi
        content = ffi.new("char[]", data) if data else ffi.NULL
        info = api.struct("VkPipelineCacheCreateInfo", initialDataSize=len(data), pInitialData=content)
        return self._gpu.made("vkCreatePipelineCache", "VkPipelineCache", info)

    def _data(self, cache: Any) -> bytes:
        gpu = self._gpu
        size = gpu.ffi.new("size_t*")
        gpu.api.check(gpu.lib.vkGetPipelineCacheData(gpu.device, cache, size, gpu.ffi.NULL), "vkGetPipelineCacheData")
        data = gpu.ffi.new("char[]", size[0])
        gpu.api.check(gpu.lib.vkGetPipelineCacheData(gpu.device, cache, size, data), "vkGetPipelineCacheData")
        return bytes(gpu.ffi.buffer(data, size[0]))


class VulkanPipeline:
    """A kernel of an image. `label` names it in messages."""

    def __init__(self, gpu: Gpu, handle: Any, group: int, label: str) -> None:
        self._gpu, self.handle, self.group, self.label = gpu, handle, group, label

    def __del__(self) -> None:
        self._gpu.timeline.discard(self._gpu.lib.vkDestroyPipeline, self.handle)


class VulkanImage:
    """A shader module."""

    def __init__(self, pipelines: Pipelines, gpu: Gpu, code: bytes) -> None:
        self._pipelines, self._gpu, self._code = pipelines, gpu, code
        self._module = gpu.module(code)

    def pipeline(self, name: str, entry: str, group: int, asked: int = 0) -> VulkanPipeline:
        try:
            made = self._pipelines.make(self._module, self._code, entry)
        except VulkanError as refused:
            raise VulkanError(
                f"{self._gpu.name}: expected the driver to compile kernel {name}, got a refusal ({refused}); drivers "
                "refuse long kernels whose lanes have many or large arrays: use smaller arrays or matrices there, or "
                "another device"
            ) from None
        return VulkanPipeline(self._gpu, made, group, name)

    def __del__(self) -> None:
        if hasattr(self, "_module"):
            self._gpu.timeline.discard(self._gpu.lib.vkDestroyShaderModule, self._module)
