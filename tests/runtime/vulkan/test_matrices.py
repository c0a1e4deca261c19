"""What a driver says of its matrices: which are taken, and what is asked for; a stand-in for the driver."""

from types import SimpleNamespace

import pytest

from loopgrad.codegen.targets.gpu.interface import MatrixShape
from loopgrad.runtime.vulkan import matrices
from loopgrad.runtime.vulkan.matrices import BFLOAT_EXTENSION, EXTENSION, NONE, largest, matrix_support

SHAPES = [MatrixShape("f16", 16, 16, 16), MatrixShape("f16", 16, 8, 8), MatrixShape("b16", 16, 16, 16)]
MODEL = SimpleNamespace(vulkanMemoryModel=1, vulkanMemoryModelDeviceScope=1)


class StandIn:
    """An Api whose device has these extensions and says yes to all that it is asked."""

    def __init__(self, extensions):
        self.known, self.ffi = set(extensions), SimpleNamespace(NULL=None)
        self.lib = SimpleNamespace(vkGetPhysicalDeviceFeatures2=self.answer)

    def extensions(self, physical):
        return self.known

    def struct(self, name, **fields):
        flags = dict.fromkeys(("cooperativeMatrix", "multiview", "multiviewTessellationShader"), 0)
        return SimpleNamespace(sType=name, **{"pNext": None, **flags, **fields})

    def answer(self, physical, chain):
        while chain is not None:
            chain.cooperativeMatrix = chain.multiview = chain.multiviewTessellationShader = 1
            chain = chain.pNext


@pytest.fixture
def supported(monkeypatch):
    monkeypatch.setattr(matrices, "_shapes", lambda *_: iter(SHAPES))
    return lambda extensions, twelve=MODEL: matrix_support(StandIn(extensions), None, twelve)


def test_the_largest_of_each_type_is_taken():
    assert largest([*SHAPES, MatrixShape("f16", 16, 24, 32), MatrixShape("b16", 4, 4, 4)]) == (SHAPES[0], SHAPES[2])


def test_bfloat16_has_an_extension_of_its_own(supported):
    assert supported((EXTENSION, BFLOAT_EXTENSION))[:2] == ((SHAPES[0], SHAPES[2]), (EXTENSION, BFLOAT_EXTENSION))
    assert supported((EXTENSION,))[:2] == ((SHAPES[0],), (EXTENSION,))


def test_without_extension_or_memory_model_there_are_none(supported):
    assert supported((BFLOAT_EXTENSION,)) is NONE
    assert supported((EXTENSION,), SimpleNamespace(vulkanMemoryModel=0, vulkanMemoryModelDeviceScope=0)) is NONE
