"""What a Vulkan device can do, as far as code depends on it.

The runtime asks the driver and probes what drivers don't say; emission reads this and nothing else, so a
program is emitted the same way for equal features. What a program needs and the device hasn't is one error
that names the feature.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from loopgrad.codegen.targets.gpu.interface import MatrixShape
from loopgrad.graph.errors import LoopgradError

ENTRY_NAME: Final = "main"  # of every module

# capability -> (its number in SPIR-V, the field of Features that allows it, what needs it)
CAPABILITIES: Final[dict[str, tuple[int, str, str]]] = {
    "Shader": (1, "", ""),
    "PhysicalStorageBufferAddresses": (5347, "", ""),
    "Int64": (11, "int64", "addresses and 64-bit integers"),
    "Float64": (10, "float64", "float64"),
    "Float16": (9, "float16", "float16"),
    "Int16": (22, "int16", "int16, uint16 and bfloat16"),
    "Int8": (39, "int8", "bool, int8 and uint8 arrays"),
    "StorageBuffer8BitAccess": (4448, "storage8", "bool, int8 and uint8 arrays"),
    "StorageBuffer16BitAccess": (4433, "storage16", "16-bit arrays"),
    "Int64Atomics": (12, "int64_atomics", "accumulation into 64-bit integers"),
    "GroupNonUniform": (61, "", ""),
    "GroupNonUniformShuffle": (65, "", ""),
    "CooperativeMatrixKHR": (6022, "matrices", "products of matrices by a subgroup"),
    "VulkanMemoryModel": (5345, "matrices", "products of matrices by a subgroup"),
    "VulkanMemoryModelDeviceScope": (5346, "matrices", "products of matrices by a subgroup"),
    "BFloat16TypeKHR": (5116, "matrices", "products of bfloat16 matrices by a subgroup"),
    "BFloat16CooperativeMatrixKHR": (5118, "matrices", "products of bfloat16 matrices by a subgroup"),
    "DenormPreserve": (4464, "", ""),
    "SignedZeroInfNanPreserve": (4466, "", ""),
    "RoundingModeRTE": (4467, "", ""),
}
VULKAN_NAME: Final = {
    "int64": "shaderInt64",
    "float64": "shaderFloat64",
    "float16": "shaderFloat16",
    "int16": "shaderInt16",
    "int8": "shaderInt8",
    "storage8": "storageBuffer8BitAccess",
    "storage16": "storageBuffer16BitAccess",
    "int64_atomics": "shaderBufferInt64Atomics",
    "matrices": "cooperativeMatrix",
}


UNIT: Final = 16  # rows, columns and terms of the products of matrix units
UNIT_LANES: Final = 32  # invocations that have some together


class FragmentOrder(NamedTuple):
    """Of the matrices of matrix units, by factors of a type: which component of an invocation's part is each of the
    numbers that `gpu.assembler.MatrixUnits` says it has."""

    type: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """`fused`: fma rounds once. `endless_loops`: loops run until their own end, however long.
    `widening`: a 32-bit integer that was widened compares rightly with a constant (Mesa 22.3 gets it wrong).
    `known_bits`: the driver's compiler is right about which bits of an integer can be set (NVIDIA's driver 580.159
    isn't, on an H200); elsewhere masks, shifts, quotients, differences, products and selections end with an
    exclusive or with a zero that it can't know.
    `rounded_halves`: a float16 that is computed and widened again is what was rounded (with NVIDIA's driver on an H100
    a product that was infinite was added as if it were not); elsewhere such a zero is in between.
    `exponential`: Exp2 of 32-bit numbers between -1/2 and 1/2 is right to two units in the last place, of others to 21
    bits. `logarithm`: Log2 of these is right to 20 bits after the point between 1/2 and 2, and to 20 bits elsewhere,
    and both give infinities, zeros and NaN where these are right.
    `denormals`, `specials`, `nearest`: bit widths for which subnormal numbers, NaN with the sign of zero,
    and rounding to nearest even can be asked for. `resident`: lanes of a kernel with stacks that run at a
    time; `group`: invocations of a workgroup, `tile_group` of one that shares a tile, `columns_group` of
    one that holds long columns (0: there are none so large), and the bytes of
    `workgroup_memory` that it may have; `neighbours`: those of a subgroup, where they exchange registers and lie side
    by side in a workgroup; 1 elsewhere; `matrices`: that these multiply; `fragments`: of those that are matrix units;
    `own_bytes` of arrays that an invocation may have (0: any number)."""

    device: str = "a Vulkan device"
    int64: bool = True
    float64: bool = True
    float16: bool = True
    int16: bool = True
    int8: bool = True
    storage8: bool = True
    storage16: bool = True
    int64_atomics: bool = True
    fused: bool = True
    endless_loops: bool = True
    widening: bool = True
    known_bits: bool = True
    rounded_halves: bool = True
    exponential: bool = False
    logarithm: bool = False
    denormals: tuple[int, ...] = ()
    specials: tuple[int, ...] = ()
    nearest: tuple[int, ...] = ()
    resident: int = 1 << 17
    group: int = 64
    tile_group: int = 128
    columns_group: int = 0
    workgroup_memory: int = 16 << 10
    neighbours: int = 1
    matrices: tuple[MatrixShape, ...] = ()
    fragments: tuple[FragmentOrder, ...] = ()
    own_bytes: int = 0

    def key(self) -> str:
        """A text that two devices for which the same code is emitted share."""
        return ",".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))

    @property
    def attention(self) -> dict[str, tuple[str, ...]]:
        """Routines that are made by matrix units, and for which dtypes. A float32 is a sum of three bfloat16, which
        takes registers: blocks of keys are faster for its derivatives (1.7 ms, 1.9 so, 4x8 heads of 1,024 x 64 on an
        H200)."""
        types = {order.type for order in self.fragments}
        dtypes = {"float16": "f16", "bfloat16": "b16", "float32": "b16"}
        found = tuple([name for name, type in dtypes.items() if type in types])
        return {"attention": found, "attention_gradient": found[:2]} if found else {}

    def order_of(self, type: str) -> FragmentOrder:
        return next(order for order in self.fragments if order.type == type)

    def float_modes(self, capabilities: Container[str]) -> list[tuple[str, int]]:
        """What to ask for so that floats behave as IEEE says, in every width that is used and offers it."""
        offered = {
            "DenormPreserve": self.denormals,
            "SignedZeroInfNanPreserve": self.specials,
            "RoundingModeRTE": self.nearest,
        }
        used = {16: "Float16", 64: "Float64"}
        return [
            (mode, width)
            for mode, widths in offered.items()
            for width in widths
            if width == 32 or used.get(width) in capabilities
        ]

    def require(self, capability: str, kernel: str) -> None:
        """LoopgradError where the device lacks what the capability stands for."""
        _, field, use = CAPABILITIES[capability]
        if field and not getattr(self, field):
            raise LoopgradError(
                f"kernel {kernel}: expected a device with the Vulkan feature {VULKAN_NAME[field]} ({use} need it), got "
                f"{self.device} without it; use another dtype or another device"
            )
