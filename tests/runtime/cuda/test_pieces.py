"""Code in pieces without a GPU: assembled side by side where nvJitLink is, by the driver elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.llvm_gpu import image
from loopgrad.runtime.cuda import driver as cuda_driver
from loopgrad.runtime.cuda.found import CudaMissing
from loopgrad.runtime.devices import get_device
from tests.runtime.cuda.simulated_process import inside


def several_kernels(x, n, library=lg):
    """Whatever is fused, the means need all of what is before."""
    for k in range(n):
        x = library.cos(x - library.mean(x) * (k + 1))
    return x


@pytest.fixture
def pieces(monkeypatch):
    """Each kernel is a piece of its own; what was assembled, what was loaded, and the driver."""
    init = image.LlvmImage.__init__
    monkeypatch.setattr(image.LlvmImage, "__init__", lambda self, *a, **k: init(self, *a, **k, piece=1))
    monkeypatch.setattr(cuda_driver, "LONG", 0)
    monkeypatch.setattr(cuda_driver, "nvjitlink_version", lambda: (13, 0))
    calls: list[bytes] = []
    monkeypatch.setattr(cuda_driver, "by_nvjitlink", lambda code, *_: calls.append(code) or code)
    streams = get_device("cuda:0")._streams
    monkeypatch.setattr(streams, "_assembles", True)
    monkeypatch.setattr(streams, "_cache", None)
    loaded: list[bytes] = []
    load = streams.api.load
    monkeypatch.setattr(streams.api, "load", lambda code: (loaded.append(code), load(code))[1])
    with lg.default_device("cuda:0"):
        yield calls, loaded, streams


def check(n: int) -> None:
    """A program of so many steps, which is new."""
    x = np.linspace(0.0, 1.0, 1 << 15)
    found = np.asarray(lg.compile(lambda x: several_kernels(x, n))(lg.asarray(x)))
    np.testing.assert_allclose(found, several_kernels(x, n, np), rtol=1e-9)


@inside
def test_pieces_are_assembled_and_loaded(pieces):
    calls, loaded, streams = pieces
    check(2)
    assert len(set(loaded)) == len(loaded) > 1
    assert sorted(loaded) == sorted(calls)
    assert streams._assembles


@inside
def test_without_nvjitlink_the_driver_assembles(pieces, monkeypatch):
    calls, loaded, streams = pieces

    def missing():
        raise CudaMissing("not found")

    monkeypatch.setattr(cuda_driver, "nvjitlink_version", missing)
    check(3)
    assert len(loaded) > 1
    assert not calls
    assert not streams._assembles


@inside
def test_the_driver_assembles_what_is_short(pieces, monkeypatch):
    calls, loaded, streams = pieces
    monkeypatch.setattr(cuda_driver, "LONG", 1 << 40)
    check(5)
    assert len(loaded) > 1
    assert not calls
    assert streams._assembles


@inside
def test_what_the_driver_refuses_it_assembles_itself(pieces, monkeypatch):
    """nvJitLink may be one for other drivers."""
    _, loaded, streams = pieces
    monkeypatch.setattr(cuda_driver, "by_nvjitlink", lambda *_: b"not for this driver")
    check(4)
    assert loaded[0] == b"not for this driver"
    assert len(loaded) > 2
    assert not streams._assembles
