"""Hand-written CUDA C++, compiled by NVRTC when a benchmark asks for it, timed by events on its own stream.

What a person would write for one workload: the limit a general system is compared with, not a part of the
library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import place
from benchmarks.contender import Arrays, Contender, Unavailable, asynchronous


class Cuda:
    """A CUDA device with one stream; memory lives as long as the process."""

    def __init__(self) -> None:
        if place.kind() != "cuda":
            raise Unavailable("hand-written for CUDA")
        from cuda.bindings import driver
        from cuda.core import Device

        self.driver = driver
        try:
            self.device = Device(place.index())
            self.device.set_current()
        except Exception as error:
            raise Unavailable(f"CUDA: {str(error).splitlines()[0]}") from None
        self.stream = self.device.create_stream()
        self.multiprocessors = int(self.device.properties.multiprocessor_count)

    def kernels(self, source: str, *names: str, fast_math: bool = False) -> list[Any]:
        from cuda.core import Program, ProgramOptions

        major, minor = self.device.compute_capability
        options = ProgramOptions(arch=f"sm_{major}{minor}", std="c++17", use_fast_math=fast_math)
        image = Program(source, "c++", options).compile("cubin")
        return [image.get_kernel(name) for name in names]

    def call(self, name: str, *arguments: Any) -> Any:
        """A function of the driver; RuntimeError where it fails."""
        code, *results = getattr(self.driver, name)(*arguments)
        if int(code):
            raise RuntimeError(f"{name}: {code}")
        return results[0] if results else None

    def empty(self, size: int) -> int:
        """The address of that many bytes."""
        return int(self.call("cuMemAlloc", size))

    def put(self, array: np.ndarray) -> int:
        dense = np.ascontiguousarray(array)
        address = self.empty(dense.nbytes)
        self.call("cuMemcpyHtoD", address, dense.ctypes.data, dense.nbytes)
        return address

    def get(self, address: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        array = np.empty(shape, dtype)
        self.stream.sync()
        self.call("cuMemcpyDtoH", array.ctypes.data, address, array.nbytes)
        return array

    def launch(self, kernel: Any, blocks: int, threads: int, *arguments: Any) -> None:
        from cuda.core import LaunchConfig, launch

        launch(self.stream, LaunchConfig(grid=blocks, block=threads), kernel, *arguments)

    def launcher(self, kernel: Any, blocks: int, threads: int, *arguments: Any) -> Callable[[], None]:
        """The same launch again and again."""
        from cuda.core import LaunchConfig, launch

        config = LaunchConfig(grid=blocks, block=threads)
        return lambda: launch(self.stream, config, kernel, *arguments)

    def zero(self, address: int, size: int) -> None:
        self.call("cuMemsetD8Async", address, 0, size, self.stream.handle)

    def contender(
        self,
        launch: Callable[[], Any],
        fetch: Callable[[Any], Arrays],
        notes: Callable[[], dict[str, Any]] = dict,
        moved: int | None = None,
    ) -> Contender:
        start, stop = (self.call("cuEventCreate", 0) for _ in range(2))

        def seconds_of(calls: int) -> float:
            launch()
            self.call("cuEventRecord", start, self.stream.handle)
            for _ in range(calls):
                launch()
            self.call("cuEventRecord", stop, self.stream.handle)
            self.call("cuEventSynchronize", stop)
            milliseconds = self.call("cuEventElapsedTime", start, stop)
            return float(milliseconds) * 1e-3 / calls

        wait = lambda _: self.stream.sync()
        return asynchronous(launch, wait, fetch, notes, seconds_of=seconds_of, moved=moved)


def loops(
    source: str, kernel: str, inputs: Sequence[str], lanes: str, depth: int,
    *, blocks_per_multiprocessor: int, fast_math: bool = False, threads: int = 256,
) -> Callable[[Arrays], Contender]:  # fmt: skip
    """A kernel `(inputs..., gradient, total, stack, lanes)` with a stack of `depth` floats for each resident
    lane, interleaved; gradient has the shape of `lanes`."""

    def build(arrays: Arrays) -> Contender:
        cuda = Cuda()
        (function,) = cuda.kernels(source, kernel, fast_math=fast_math)
        size = arrays[lanes].size
        blocks = cuda.multiprocessors * blocks_per_multiprocessor
        blocks = min(blocks, math.ceil(size / threads))
        gradient, total = cuda.empty(4 * size), cuda.empty(8)
        stack_bytes = 4 * depth * blocks * threads
        stack = cuda.empty(stack_bytes)
        given = [cuda.put(arrays[name]) for name in inputs]
        start = cuda.launcher(function, blocks, threads, *given, gradient, total, stack, np.int64(size))

        def launch() -> None:
            cuda.zero(total, 8)
            start()

        def fetch(_: Any) -> Arrays:
            value = cuda.get(total, (), np.float64)
            return {"value": value, "gradient": cuda.get(gradient, (size,), np.float32)}

        return cuda.contender(launch, fetch, lambda: {"stack bytes": f"{stack_bytes:,}"})

    return build


# Adds what each thread of the block holds to *total; the same for all kernels.
BLOCK_SUM = r"""
__device__ void add_block(double value, double *total) {
    __shared__ double partial[32];
    for (int step = 16; step; step >>= 1) value += __shfl_down_sync(0xffffffffu, value, step);
    int warp = threadIdx.x >> 5, place = threadIdx.x & 31;
    if (place == 0) partial[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = place < (int)(blockDim.x >> 5) ? partial[place] : 0.0;
        for (int step = 16; step; step >>= 1) value += __shfl_down_sync(0xffffffffu, value, step);
        if (place == 0) atomicAdd(total, value);
    }
}
"""
