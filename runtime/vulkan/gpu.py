"""One logical device: its queue, features, memory types and pipelines.

`unified` devices share memory with the host, so that buffers are written and read in place; on others data
goes through a staging buffer. `lock` guards everything.

Circle: `runtime/vulkan/timeline.py` is the part of a device that orders its work, and asks it for its lock.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any, Final

from loopgrad.codegen.targets.gpu.interface import PUSH_BYTES, MatrixShape
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.runtime.vulkan.api import (
    QUEUE_COMPUTE,
    QUEUE_GRAPHICS,
    TYPE_CPU,
    TYPE_INTEGRATED,
    Api,
    VulkanMissing,
    feature_chain,
    lacking,
)
from loopgrad.runtime.vulkan.matrices import matrix_support
from loopgrad.runtime.vulkan.timeline import Timeline

STAGE_COMPUTE: Final = 0x20
SHUFFLE: Final = 0x10  # among what subgroups can do
RESIDENT: Final = {TYPE_CPU: 1 << 10, TYPE_INTEGRATED: 1 << 15}
LARGEST_TILE_GROUP: Final = 256
LARGEST_COLUMNS_GROUP: Final = 1024
NVIDIA: Final = 0x10DE
OWN_BYTES_OF_NVIDIA: Final = 12 << 10  # driver 580 takes 15,600 bytes of arrays on an H200 and refuses 16,000 (-13)
RESIDENT_DISCRETE: Final = 1 << 17  # fills 132 multiprocessors, and short stacks stay in the second-level cache
WANTED_12: Final = ("storageBuffer8BitAccess", "shaderBufferInt64Atomics", "shaderFloat16", "shaderInt8")
WANTED_10: Final = ("shaderFloat64", "shaderInt64", "shaderInt16")


class Gpu:
    """Handles of one device. `features` lacks what only a probe can tell."""

    def __init__(self, api: Api, physical: Any) -> None:
        self.api = api
        self.lib, self.ffi = api.lib, api.ffi
        self.physical = physical
        self.lock = threading.RLock()
        properties = api.properties(physical)
        self.kind: int = properties.deviceType
        self.name = api.device_name(physical)
        self.unified = self.kind in (TYPE_INTEGRATED, TYPE_CPU)
        self._properties = properties
        self.max_groups: int = properties.limits.maxComputeWorkGroupCount[0]
        self.version = f"{self.name} {properties.vendorID:x}:{properties.deviceID:x} {properties.driverVersion}"
        self._alive: list[Any] = []
        self.family = self._compute_family()
        self.device, self.features = self._make_device()
        queue = self.ffi.new("VkQueue*")
        self.lib.vkGetDeviceQueue(self.device, self.family, 0, queue)
        self.timeline = Timeline(self, queue[0])
        self.memory = self.ffi.new("VkPhysicalDeviceMemoryProperties*")
        self.lib.vkGetPhysicalDeviceMemoryProperties(physical, self.memory)
        self.layout = self._pipeline_layout()

    def made(self, function: str, type: str, info: Any) -> Any:
        out = self.ffi.new(f"{type}*")
        self.api.check(getattr(self.lib, function)(self.device, info, self.ffi.NULL, out), function)
        return out[0]

    def _compute_family(self) -> int:
        """One without graphics where there is one: on an H200 the device is idle for 5 us less between submissions."""
        count = self.ffi.new("uint32_t*")
        self.lib.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, count, self.ffi.NULL)
        families = self.ffi.new("VkQueueFamilyProperties[]", count[0])
        self.lib.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, count, families)
        flags = [families[i].queueFlags for i in range(count[0])]
        computing = [i for i, has in enumerate(flags) if has & QUEUE_COMPUTE]
        if not computing:
            raise VulkanMissing(f"{self.name} has no compute queue")
        return next((i for i in computing if not flags[i] & QUEUE_GRAPHICS), computing[0])

    # features

    def _make_device(self) -> tuple[Any, Features]:
        has, has_eleven, has_twelve = self.api.features(self.physical)
        missing = lacking(has, has_twelve)
        if missing:
            raise VulkanMissing(f"{self.name} lacks {missing}")
        want, want_eleven, want_twelve = feature_chain(self.api)
        for name in WANTED_10:
            setattr(want.features, name, getattr(has.features, name))
        want_eleven.storageBuffer16BitAccess = has_eleven.storageBuffer16BitAccess
        for name in WANTED_12:
            setattr(want_twelve, name, getattr(has_twelve, name))
        want_twelve.bufferDeviceAddress = want_twelve.timelineSemaphore = 1
        matrices = matrix_support(self.api, self.physical, has_twelve)
        want_twelve.vulkanMemoryModel = want_twelve.vulkanMemoryModelDeviceScope = bool(matrices.shapes)
        for earlier, later in pairwise((want_twelve, *matrices.features)):
            earlier.pNext = later
        names = [self.ffi.new("char[]", name.encode()) for name in matrices.extensions]
        extensions = self.ffi.new("char*[]", names)
        priority = self.ffi.new("float[]", [1.0])
        queue = self.api.struct(
            "VkDeviceQueueCreateInfo", queueFamilyIndex=self.family, queueCount=1, pQueuePriorities=priority
        )
        info = self.api.struct(
            "VkDeviceCreateInfo",
            pNext=want,
            queueCreateInfoCount=1,
            pQueueCreateInfos=queue,
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=extensions,
        )
        out = self.ffi.new("VkDevice*")
        self.api.check(self.lib.vkCreateDevice(self.physical, info, self.ffi.NULL, out), "vkCreateDevice")
        self.unit_types = matrices.units
        self._alive.append((want, want_eleven, want_twelve, matrices, priority, queue))
        return out[0], self._features(want, want_eleven, want_twelve, matrices.shapes)

    def _features(self, base: Any, eleven: Any, twelve: Any, matrices: tuple[MatrixShape, ...]) -> Features:
        subgroups = self.api.struct("VkPhysicalDeviceVulkan11Properties")
        controls = self.api.struct("VkPhysicalDeviceVulkan12Properties", pNext=subgroups)
        top = self.api.struct("VkPhysicalDeviceProperties2", pNext=controls)
        self.lib.vkGetPhysicalDeviceProperties2(self.physical, top)

        def widths(prefix: str) -> tuple[int, ...]:
            return tuple([w for w in (16, 32, 64) if getattr(controls, f"{prefix}Float{w}")])

        return Features(
            device=self.name,
            float64=bool(base.features.shaderFloat64),
            int16=bool(base.features.shaderInt16),
            float16=bool(twelve.shaderFloat16),
            int8=bool(twelve.shaderInt8),
            storage8=bool(twelve.storageBuffer8BitAccess),
            storage16=bool(eleven.storageBuffer16BitAccess),
            int64_atomics=bool(twelve.shaderBufferInt64Atomics),
            denormals=widths("shaderDenormPreserve"),
            specials=widths("shaderSignedZeroInfNanPreserve"),
            nearest=tuple([w for w in widths("shaderRoundingModeRTE") if w < 64 or not self.is_nvidia]),
            resident=RESIDENT.get(self.kind, RESIDENT_DISCRETE),
            tile_group=min(LARGEST_TILE_GROUP, self._largest_group()),
            columns_group=self._columns_group(),
            workgroup_memory=self._properties.limits.maxComputeSharedMemorySize,
            known_bits=not self.is_nvidia,
            rounded_halves=not self.is_nvidia,
            neighbours=_neighbours(subgroups),
            matrices=matrices,
            own_bytes=OWN_BYTES_OF_NVIDIA if self.is_nvidia else 0,
        )

    @property
    def is_nvidia(self) -> bool:
        """Its driver gets some kernels wrong (docs/devices.md), refuses some that ask for float64 to be rounded to the
        nearest, as it does anyway, and those with large arrays of invocations."""
        return bool(self._properties.vendorID == NVIDIA)

    def _largest_group(self) -> int:
        """Invocations of a workgroup, a power of two."""
        limits = self._properties.limits
        most = min(limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0])
        return 1 << (int(most).bit_length() - 1)

    def _columns_group(self) -> int:
        """A processor has no registers for so many."""
        return LARGEST_COLUMNS_GROUP if self.kind != TYPE_CPU and self._largest_group() >= LARGEST_COLUMNS_GROUP else 0

    # pipelines

    def _pipeline_layout(self) -> Any:
        push = self.ffi.new("VkPushConstantRange*", {"stageFlags": STAGE_COMPUTE, "offset": 0, "size": PUSH_BYTES})
        info = self.api.struct("VkPipelineLayoutCreateInfo", pushConstantRangeCount=1, pPushConstantRanges=push)
        return self.made("vkCreatePipelineLayout", "VkPipelineLayout", info)

    def module(self, code: bytes) -> Any:
        """A shader module of SPIR-V code."""
        words = self.ffi.new("uint32_t[]", len(code) // 4)
        self.ffi.memmove(words, code, len(code))
        info = self.api.struct("VkShaderModuleCreateInfo", codeSize=len(code), pCode=words)
        return self.made("vkCreateShaderModule", "VkShaderModule", info)

    def pipeline(self, module: Any, entry: str, cache: Any) -> Any:
        """A compute pipeline of one of the module's entry points; `cache` is a VkPipelineCache or NULL."""
        name = self.ffi.new("char[]", entry.encode())
        create = self.api.struct("VkComputePipelineCreateInfo", layout=self.layout)
        stage = self.api.struct("VkPipelineShaderStageCreateInfo", stage=STAGE_COMPUTE, module=module, pName=name)
        create.stage = stage[0]
        out = self.ffi.new("VkPipeline*")
        null = self.ffi.NULL
        result = self.lib.vkCreateComputePipelines(self.device, cache, 1, create, null, out)
        self.api.check(result, "vkCreateComputePipelines")
        return out[0]


def _neighbours(properties: Any) -> int:
    """Invocations of a subgroup, where those of compute shaders exchange registers; otherwise 1."""
    if properties.subgroupSupportedOperations & SHUFFLE and properties.subgroupSupportedStages & STAGE_COMPUTE:
        return int(properties.subgroupSize)
    return 1
