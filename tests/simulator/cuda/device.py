"""`cuda:0` without a GPU: the package cuda-bindings on a libcuda.so.1 of our own (libcuda.c), whose images are
machine code of this computer. Everything of the runtime is what a GPU gets.

`install` is for a process of its own: from then on CUDA is there.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.codegen.targets.llvm_gpu.image import LlvmImage
from loopgrad.runtime.cuda import device, libraries
from loopgrad.runtime.cuda.device import CudaDevice
from loopgrad.runtime.cuda.driver import CudaDriver
from loopgrad.runtime.devices import NUMBERED
from tests.simulator.code import GROUP, UPDATE_GROUP, HostAssembler, flavour, generate, update_code
from tests.simulator.cuda.dense import FakeBlas, FakeSolver
from tests.simulator.cuda.libraries import FakeFourier, Stream

LIBRARY = "libcuda.so.1"
COUNTS = ("launches", "graph_launches", "instantiations", "uploads", "downloads", "waits", "modules", "orders")


class SimulatedCudaDevice(CudaDevice):
    """The same device with another code generator."""

    def target(self) -> tuple[str, ...]:
        return ("simulated cuda",)

    def emit(self, program: Program, options: Options) -> Artifact[ProgramRecord]:
        return compile_for(program, options, LlvmImage(flavour(), image, GROUP, HostAssembler))


def image(text: str) -> tuple[bytes, Mapping[str, str]]:
    return digits(generate(text)[0]), {"ptx": ""}


def digits(code: bytes) -> bytes:
    """An object as what this libcuda loads."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "code.o"), Path(folder, "code.so")
        source.write_bytes(code)
        subprocess.run(["cc", "-shared", "-nostartfiles", "-o", target, source], check=True)
        return target.read_bytes().hex().encode()


@cache
def library() -> ctypes.CDLL:
    """Our libcuda; loaded first, so that whoever wants libcuda.so.1 gets it."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, LIBRARY)
        source = Path(__file__).with_name("libcuda.c")
        options = ["-shared", "-fPIC", "-O1", f"-Wl,-soname,{LIBRARY}"]
        subprocess.run(["cc", *options, "-o", target, source, "-ldl"], check=True)
        loaded = ctypes.CDLL(str(target), mode=ctypes.RTLD_GLOBAL)
    loaded.sim_set.argtypes = [ctypes.c_char_p, ctypes.c_longlong]
    loaded.sim_count.restype = ctypes.c_longlong
    return loaded


@cache
def blas() -> ctypes.CDLL:
    """Our cuBLAS."""
    library()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "libcublas.so")
        source = Path(__file__).with_name("libcublas.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", target, source], check=True)
        loaded = ctypes.CDLL(str(target))
    for function in (loaded.cublas_products, loaded.cublas_calls, loaded.cublas_compute_type):
        function.restype = ctypes.c_longlong
    return loaded


@cache
def stream() -> Stream:
    return Stream(library())


@cache
def fourier() -> FakeFourier:
    """Our cuFFT."""
    return FakeFourier(stream(), libraries.NVIDIA)


@cache
def solver() -> FakeSolver:
    """Our cuSOLVER."""
    return FakeSolver(stream(), libraries.NVIDIA)


@cache
def dense_blas() -> FakeBlas:
    """Our cuBLAS, with what solves equations."""
    return FakeBlas(blas(), stream(), libraries.NVIDIA)


def load(name: str) -> Any:
    """The libraries that there are."""
    return {"cublas": dense_blas, "cufft": fourier, "cusolver": solver}[name]()


def set_state(what: str, value: int) -> None:
    library().sim_set(what.encode(), value)


def counts() -> dict[str, int]:
    return {name: int(library().sim_count(i)) for i, name in enumerate(COUNTS)}


class SimulatedCudaDriver(CudaDriver):
    """What links the update kernel isn't there; its code comes ready."""

    host_decides = ""

    def _code(self) -> tuple[bytes, str, int]:
        return digits(update_code(conditional=True)), "k0", UPDATE_GROUP


def install() -> None:
    """Let `cuda:0` be simulated in this process."""
    library()
    libraries.load = load
    device.CudaDriver = SimulatedCudaDriver  # type: ignore[misc]
    NUMBERED["cuda"] = (NUMBERED["cuda"][0], SimulatedCudaDevice)
