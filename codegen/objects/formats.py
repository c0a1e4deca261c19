"""The kinds of objects by the name of their target: what makes the code, what describes it.

A target is `cpu`, `spirv`, a compute capability such as sm_90, or an AMD processor such as gfx1100.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.objects.cpu import describe_cpu
from loopgrad.codegen.objects.gpu import Details, describe_gpu
from loopgrad.codegen.objects.objects import Objects
from loopgrad.codegen.options import LANE_BYTES, Options, OwnProducts
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.amdgpu.architectures import WAVEFRONT, lane_bytes
from loopgrad.codegen.targets.amdgpu.notes import described
from loopgrad.codegen.targets.amdgpu.target import AmdgpuImage
from loopgrad.codegen.targets.gpu.compile import ImageBuilder
from loopgrad.codegen.targets.nvptx.target import PTX_VERSION, nvptx_image
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.target import SpirvImage

# right on drivers that round a fused product twice or compare widened integers wrongly, too
PORTABLE: Final = Features(fused=False, widening=False)


@dataclass(frozen=True, slots=True)
class ObjectFormat:
    """`suffix` of the files with code; `lane_bytes` of that target for the arrays of a lane;
    `own_products`: which its kernels do."""

    suffix: str
    compile: Callable[[Program, Options, str], Objects]
    lane_bytes: Callable[[str], int] = lambda _: LANE_BYTES
    own_products: OwnProducts = OwnProducts.NONE


def _gpu(
    suffix: str,
    passing: str,
    image: Callable[[str], ImageBuilder],
    details: Details = lambda _: {},
    lane_bytes: Callable[[str], int] = lambda _: LANE_BYTES,
) -> ObjectFormat:
    """`passing`: how the six launch words reach a kernel."""

    def compile(program: Program, options: Options, target: str) -> Objects:
        return describe_gpu(program, options, image(target), target, passing, details)

    return ObjectFormat(suffix, compile, lane_bytes, OwnProducts.ALL)


FORMATS: Final[dict[str, ObjectFormat]] = {
    "cpu": ObjectFormat("o", describe_cpu),
    "spirv": _gpu("spv", "push constants", lambda _: SpirvImage(PORTABLE)),
    **dict.fromkeys(PTX_VERSION, _gpu("ptx", "arguments", nvptx_image)),
    **dict.fromkeys(
        WAVEFRONT, _gpu("hsaco", "arguments", lambda name: AmdgpuImage(name, listing=False), described, lane_bytes)
    ),
}


def compile_objects(program: Program, options: Options, target: str) -> Objects:
    """The program for that target; KeyError where FORMATS doesn't have it."""
    return FORMATS[target].compile(program, options, target)
