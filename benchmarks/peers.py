"""What every workload needs of a system before it can be used, in one place: ours and the peers'."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import place
from benchmarks.contender import Arrays, Contender, Unavailable, asynchronous

_SETTINGS = contextlib.ExitStack()  # as long as the process


def loopgrad(**options: Any) -> ModuleType:
    """loopgrad on this process's device, with these options from now on."""
    import loopgrad as module

    try:
        _SETTINGS.enter_context(module.default_device(place.device()))
    except (RuntimeError, ValueError) as error:
        raise Unavailable(str(error)) from None
    _SETTINGS.enter_context(module.options(**options))
    return module


def forget_options() -> None:
    """What `loopgrad` has set."""
    _SETTINGS.close()


def own(
    launch: Callable[[], Any],
    results: Callable[[Any], Iterable[Any]],
    fetch: Callable[[Any], Arrays],
    notes: Callable[[], dict[str, Any]] = dict,
    moved: int | None = None,
) -> Contender:
    """A contender of ours: `results` are the tensors in what `launch` returns."""
    import loopgrad as module

    def start() -> Any:
        result = launch()
        module.eval(*results(result))
        return result

    if not place.on_gpu():
        return Contender(start, fetch, notes, moved=moved)
    from loopgrad.runtime.devices import get_device  # the device itself, whose stream has the events

    device: Any = get_device(place.device())
    seconds_of = _by_events(device.driver, start) if place.kind() == "cuda" else None
    return asynchronous(start, lambda _: device.finish(), fetch, notes, seconds_of=seconds_of, moved=moved)


def _by_events(driver: Any, start: Callable[[], Any]) -> Callable[[int], float]:
    """Events on our own stream, around calls in a row."""
    cuda, stream = driver.api.cuda, driver.api.stream

    def done(answer: tuple[Any, ...]) -> Any:
        if answer[0]:
            raise RuntimeError(f"CUDA: {answer[0]}")
        return answer[1] if len(answer) > 1 else None

    with driver.lock:
        first, last = done(cuda.cuEventCreate(0)), done(cuda.cuEventCreate(0))

    def record(event: Any) -> None:
        with driver.lock:
            done(cuda.cuEventRecord(event, stream))

    def seconds_of(calls: int) -> float:
        start()
        record(first)
        for _ in range(calls):
            start()
        driver.finish()  # whatever would have to be done again counts
        record(last)
        with driver.lock:
            done(cuda.cuEventSynchronize(last))
            return float(done(cuda.cuEventElapsedTime(first, last))) * 1e-3 / calls

    return seconds_of


def drjit() -> tuple[ModuleType, ModuleType]:
    """Dr.Jit and its differentiable types for the device."""
    if place.kind() == "cuda":
        if place.index():
            raise Unavailable("measured on the first CUDA device only")
        import drjit as module
        from drjit.cuda import ad

        return module, ad
    if place.on_gpu():
        raise Unavailable(f"Dr.Jit has no {place.kind()} backend")
    return _drjit_llvm()


def _drjit_llvm() -> tuple[ModuleType, ModuleType]:
    """Finds Debian's libLLVM where no path is set."""
    if "DRJIT_LIBLLVM_PATH" not in os.environ:
        found = sorted(glob.glob("/usr/lib/*/libLLVM.so.*") + glob.glob("/usr/lib/*/libLLVM-*.so"), reverse=True)
        if not found:
            raise Unavailable("Dr.Jit needs a libLLVM: apt-get install libllvm19, or set DRJIT_LIBLLVM_PATH")
        os.environ["DRJIT_LIBLLVM_PATH"] = found[0]
    import drjit as module
    from drjit.llvm import ad

    return module, ad


def drjit_contender(
    dr: ModuleType, launch: Callable[[], Any], fetch: Callable[[Any], Arrays], moved: int | None = None
) -> Contender:
    """`launch` ends in `dr.eval`, which starts the kernels."""
    return asynchronous(launch, lambda _: dr.sync_thread(), fetch, moved=moved)


def jax() -> tuple[ModuleType, ModuleType]:
    """JAX on the device with 64-bit types switched on (float32 arrays stay float32)."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several contenders share the memory
    import jax as module

    kind = place.kind()
    if kind == "vulkan":
        raise Unavailable("JAX has no vulkan backend")
    platform = {"hip": "rocm"}.get(kind, kind)
    module.config.update("jax_platforms", platform)
    module.config.update("jax_enable_x64", True)
    module.config.update("jax_default_matmul_precision", "highest")  # float32, as ours
    try:
        module.config.update("jax_default_device", module.devices()[place.index()])
    except RuntimeError as error:
        raise Unavailable(f"JAX: {str(error).splitlines()[0]}") from None
    return module, module.numpy


def jax_contender(
    module: ModuleType, launch: Callable[[], Any], fetch: Callable[[Any], Arrays], moved: int | None = None
) -> Contender:
    return asynchronous(launch, module.block_until_ready, fetch, moved=moved)


def torch() -> ModuleType:
    """PyTorch on the device; on a CPU on all cores."""
    import torch as module

    module.set_float32_matmul_precision("highest")
    kind = place.kind()
    if kind == "vulkan":
        raise Unavailable("PyTorch's vulkan backend has no gradients")
    if kind == "cpu":
        module.set_num_threads(os.cpu_count() or 1)
        return module
    if not module.cuda.is_available():
        raise Unavailable(f"PyTorch {module.__version__} sees no {kind} device")
    module.cuda.set_device(place.index())
    return module


def torch_tensor(module: ModuleType, array: np.ndarray) -> Any:
    """The array on PyTorch's side of the device."""
    tensor = module.from_numpy(array)
    return tensor.cuda() if place.on_gpu() else tensor


def torch_contender(
    module: ModuleType,
    launch: Callable[[], Any],
    fetch: Callable[[Any], Arrays],
    moved: int | None = None,
    notes: Callable[[], dict[str, Any]] = dict,
) -> Contender:
    """Timed by events on PyTorch's stream."""
    if not place.on_gpu():
        return Contender(launch, fetch, notes, moved=moved)

    def seconds_of(calls: int) -> float:
        launch()
        start, stop = (module.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            launch()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) * 1e-3 / calls

    return asynchronous(
        launch, lambda _: module.cuda.synchronize(), fetch, notes, seconds_of=seconds_of, moved=moved
    )  # fmt: skip


def numpy_of(x: Any) -> np.ndarray:
    """A PyTorch tensor's elements."""
    return x.detach().cpu().numpy()


def quadrants(**options: Any) -> ModuleType:
    """Quadrants on the device with its autodiff stacks switched on, sized by itself."""
    import quadrants as module

    backends = {"cpu": "cpu", "cuda": "cuda", "hip": "amdgpu", "vulkan": "vulkan"}
    arch = getattr(module, backends[place.kind()])
    module.init(arch=arch, ad_stack_experimental_enabled=True, **options)
    chosen = module.lang.impl.current_cfg().arch if hasattr(module, "lang") else arch
    if chosen != arch:
        raise Unavailable(f"Quadrants fell back to {chosen}: it can't use {place.kind()} here")
    return module
