"""Modules with matrices of subgroups, without any device: what Vulkan's memory model and the elements' types need."""

import struct

import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.program import ArraySlot, MatmulStep, Program
from loopgrad.codegen.targets.gpu.interface import MatrixShape
from loopgrad.codegen.targets.spirv.assembly import GLSL450, NON_PRIVATE, OP, VULKAN, WORKGROUP
from loopgrad.codegen.targets.spirv.features import CAPABILITIES, Features
from loopgrad.codegen.targets.spirv.target import compile_program
from loopgrad.graph.types import TensorType, bfloat16, float16

FEATURES = Features(
    neighbours=32,
    tile_group=256,
    workgroup_memory=48 << 10,
    matrices=(MatrixShape("f16", 16, 16, 16), MatrixShape("b16", 16, 16, 16)),
)


def product(dtype, features=FEATURES):
    """The instructions of a product's module: their names and words."""
    type = TensorType((1, 256, 256), dtype)
    slots = (ArraySlot(type, "input"), ArraySlot(type, "input"), ArraySlot(type, "output"))
    program = Program(slots, (0, 1), (2,), (), (MatmulStep(0, 1, 2, 1, 256, 256, 256),))
    artifact = compile_program(program, Options(), features)
    (module,) = artifact.program.modules
    code = artifact.code[module.offset : module.offset + module.size]
    words, names, at = struct.unpack(f"<{len(code) // 4}I", code), {number: name for name, number in OP.items()}, 5
    while at < len(words):
        count = words[at] >> 16
        yield names[words[at] & 0xFFFF], words[at + 1 : at + count]
        at += count


def numbers(*capabilities):
    return {CAPABILITIES[name][0] for name in capabilities}


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_what_invocations_share_is_said_to_be_shared(dtype):
    found = list(product(dtype))
    capabilities = {words[0] for name, words in found if name == "Capability"}
    assert capabilities >= numbers("CooperativeMatrixKHR", "VulkanMemoryModel", "VulkanMemoryModelDeviceScope")
    in_bfloat = numbers("BFloat16TypeKHR", "BFloat16CooperativeMatrixKHR")
    assert (capabilities >= in_bfloat) == (dtype is bfloat16)
    assert [words[1] for name, words in found if name == "MemoryModel"] == [VULKAN]
    pointers = {words[0] for name, words in found if name == "TypePointer" and words[1] == WORKGROUP}
    cells = {words[1] for name, words in found if name == "AccessChain" and words[0] in pointers}
    places = {"Load": 2, "CooperativeMatrixLoadKHR": 2, "Store": 0, "CooperativeMatrixStoreKHR": 0}
    shared = [(name, words[-1]) for name, words in found if name in places and words[places[name]] in cells]
    assert {name for name, _ in shared} == set(places)
    assert {last for _, last in shared} == {NON_PRIVATE}


def test_other_devices_have_other_modules():
    found = list(product(float16, Features(neighbours=32, tile_group=256)))
    assert [words[1] for name, words in found if name == "MemoryModel"] == [GLSL450]
    assert not any("CooperativeMatrix" in name for name, _ in found)
