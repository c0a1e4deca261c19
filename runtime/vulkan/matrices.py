"""Which matrices a device's subgroups multiply: VK_KHR_cooperative_matrix, with VK_KHR_shader_bfloat16's elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from loopgrad.codegen.targets.gpu.interface import MatrixShape
from loopgrad.codegen.targets.spirv.features import UNIT
from loopgrad.runtime.vulkan.api import Api

EXTENSION: Final = "VK_KHR_cooperative_matrix"
BFLOAT_EXTENSION: Final = "VK_KHR_shader_bfloat16"
BFLOAT_FEATURES: Final = 1000141000  # VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR
FLOAT16, FLOAT32, BFLOAT16 = 0, 1, 1000141000  # VkComponentTypeKHR
ELEMENTS: Final = {FLOAT16: "f16", BFLOAT16: "b16"}
SUBGROUP: Final = 3  # VkScopeKHR
QUERY: Final = b"vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
SIGNATURE: Final = "VkResult(*)(VkPhysicalDevice, uint32_t*, VkCooperativeMatrixPropertiesKHR*)"


class MatrixSupport(NamedTuple):
    """The largest matrices of each type, what must be enabled for them: extensions, and structs of features; `units`:
    the types of which there are matrices as matrix units have them."""

    shapes: tuple[MatrixShape, ...] = ()
    extensions: tuple[str, ...] = ()
    features: tuple[Any, ...] = ()
    units: tuple[str, ...] = ()


NONE: Final = MatrixSupport()


def matrix_support(api: Api, physical: Any, twelve: Any) -> MatrixSupport:
    """`twelve`: the device's features of Vulkan 1.2; matrices need its memory model."""
    known = api.extensions(physical)
    if EXTENSION not in known or not (twelve.vulkanMemoryModel and twelve.vulkanMemoryModelDeviceScope):
        return NONE
    features = api.struct("VkPhysicalDeviceCooperativeMatrixFeaturesKHR")
    # the package is older than this struct; one with as many flags stands for it
    bfloat = api.struct("VkPhysicalDeviceMultiviewFeatures") if BFLOAT_EXTENSION in known else None
    if bfloat is not None:
        bfloat.sType, features.pNext = BFLOAT_FEATURES, bfloat
    api.lib.vkGetPhysicalDeviceFeatures2(physical, api.struct("VkPhysicalDeviceFeatures2", pNext=features))
    if not features.cooperativeMatrix:
        return NONE
    in_bfloat = bfloat is not None and bool(bfloat.multiview and bfloat.multiviewTessellationShader)
    every = [s for s in _shapes(api, physical) if s.type == "f16" or in_bfloat]
    shapes, units = largest(every), tuple([s.type for s in every if s[1:] == (UNIT, UNIT, UNIT)])
    if not shapes:
        return NONE
    features.cooperativeMatrixRobustBufferAccess, features.pNext = 0, api.ffi.NULL
    if not in_bfloat:
        return MatrixSupport(shapes, (EXTENSION,), (features,), units)
    return MatrixSupport(shapes, (EXTENSION, BFLOAT_EXTENSION), (features, bfloat), units)


def largest(shapes: Sequence[MatrixShape]) -> tuple[MatrixShape, ...]:
    """Of each type; sides are powers of two."""
    found: dict[str, MatrixShape] = {}
    for shape in sorted(shapes, key=lambda s: (s.rows * s.columns * s.depth, s)):
        if all(side & (side - 1) == 0 and side >= 8 for side in shape[1:]):
            found[shape.type] = shape
    return tuple(found.values())


def _shapes(api: Api, physical: Any) -> Iterator[MatrixShape]:
    """Those whose sums are float32, had by a subgroup."""
    ffi, count = api.ffi, api.ffi.new("uint32_t*")
    address = api.lib.vkGetInstanceProcAddr(api.instance, QUERY)
    if address == ffi.NULL:  # an old loader
        return
    query = ffi.cast(SIGNATURE, address)
    api.check(query(physical, count, ffi.NULL), QUERY.decode())
    kind = api.struct("VkCooperativeMatrixPropertiesKHR").sType
    found = ffi.new("VkCooperativeMatrixPropertiesKHR[]", [{"sType": kind}] * count[0])
    api.check(query(physical, count, found), QUERY.decode())
    for p in [found[i] for i in range(count[0])]:
        same = p.AType == p.BType and p.AType in ELEMENTS and p.CType == p.ResultType == FLOAT32
        if same and p.scope == SUBGROUP and not p.saturatingAccumulation:
            yield MatrixShape(ELEMENTS[p.AType], p.MSize, p.NSize, p.KSize)
