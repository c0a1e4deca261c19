"""The update kernel with NVIDIA's device runtime, linked without a GPU, and what is said where that can't be."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from loopgrad.codegen.targets.nvptx.update import SET_CONDITION, update_ptx
from loopgrad.runtime.cuda import linking
from loopgrad.runtime.cuda.found import CudaMissing


def library() -> str:
    try:
        return linking.device_runtime()
    except CudaMissing as missing:
        pytest.skip(str(missing))


def linked(capability: tuple[int, int]) -> bytes:
    try:
        return linking.by_nvjitlink(update_ptx(conditional=True), library(), capability)
    except CudaMissing as missing:
        if "pip install" in str(missing):
            pytest.skip(str(missing))
        raise


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_the_kernel_is_linked(capability):
    cubin = linked(capability)
    assert cubin.startswith(b"\x7fELF")
    assert b".text.update\0" in cubin


def test_code_for_one_compute_capability_alone_is_linked():
    linked((9, 0))
    ptx = update_ptx(conditional=False)
    assert b".target sm_80" in ptx
    cubin = linking.by_nvjitlink(ptx.replace(b".target sm_80", linking.OWN_TARGET), None, (9, 0))
    assert cubin.startswith(b"\x7fELF")


def test_without_conditions_nothing_needs_linking():
    assert SET_CONDITION.encode() in update_ptx(conditional=True)
    assert b".extern" not in update_ptx(conditional=False)


def test_what_the_linker_refuses():
    linked((9, 0))
    with pytest.raises(CudaMissing, match="PTX"):
        linking.by_nvjitlink(update_ptx(conditional=True).replace(b"ret;", b"return;"), library(), (9, 0))


class Linker:
    """The driver's linker; `fails` is the call that does."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[tuple[object, ...]] = []
        self.CUjitInputType = SimpleNamespace(CU_JIT_INPUT_PTX="ptx", CU_JIT_INPUT_LIBRARY="library")
        self.code = b"cubin\0code"

    def __getattr__(self, name: str):
        def call(*arguments: object) -> tuple[object, ...]:
            self.calls.append((name, *arguments))
            status = 218 if name == self.fails else 0
            results: dict[str, tuple[object, ...]] = {
                "cuLinkCreate": ("state",),
                "cuLinkComplete": (address(self.code), len(self.code)),
                "cuGetErrorName": (b"CUDA_ERROR_INVALID_PTX",),
                "cuGetErrorString": (b"bad",),
            }
            return (status, *results.get(name, ()))

        return call


def address(code: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(code), ctypes.c_void_p).value or 0


def test_the_drivers_linker():
    cuda = Linker()
    assert linking.by_driver(cuda, b"ptx", "/lib.a") == cuda.code
    names = [call[0] for call in cuda.calls]
    assert names == ["cuLinkCreate", "cuLinkAddData", "cuLinkAddFile", "cuLinkComplete", "cuLinkDestroy"]
    assert cuda.calls[1][1:5] == ("state", "ptx", b"ptx\0", 4)
    assert cuda.calls[2][1:4] == ("state", "library", b"/lib.a")


def test_neither_linker_works(monkeypatch):
    def refuse(*_: object) -> bytes:
        raise CudaMissing("not found")

    monkeypatch.setattr(linking, "by_nvjitlink", refuse)
    assert linking.link(Linker(), b"ptx", "/lib.a", (9, 0)) == b"cubin\0code"
    cuda = Linker("cuLinkComplete")
    with pytest.raises(CudaMissing, match=r"not found.*CUDA_ERROR_INVALID_PTX"):
        linking.link(cuda, b"ptx", "/lib.a", (9, 0))
    assert "cuLinkDestroy" in [call[0] for call in cuda.calls]


def test_a_driver_without_branches_in_graphs():
    linking.check_driver(SimpleNamespace(cuDriverGetVersion=lambda: (0, 12080)))
    with pytest.raises(CudaMissing, match=r"CUDA 12\.4, and loops in graphs need 12\.8"):
        linking.check_driver(SimpleNamespace(cuDriverGetVersion=lambda: (0, 12040)))


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No package and no toolkit has the library."""
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(linking, "TOOLKIT", ())
    return tmp_path


def test_a_library_that_is_nowhere(nowhere):
    with pytest.raises(CudaMissing, match="pip install nvidia-cuda-runtime"):
        linking.device_runtime()


def test_a_library_of_an_older_package(nowhere):
    place = nowhere / "nvidia" / "cuda_runtime" / "lib" / linking.LIBRARY
    place.parent.mkdir(parents=True)
    place.write_bytes(b"")
    assert linking.device_runtime() == str(place)
