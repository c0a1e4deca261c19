"""What every workload needs of a peer before it can be used, in one place."""

from __future__ import annotations

import glob
import os
from types import ModuleType
from typing import Any

from benchmarks.contender import Unavailable


def drjit() -> tuple[ModuleType, ModuleType]:
    """Dr.Jit and its differentiable LLVM types; finds Debian's libLLVM where no path is set."""
    if "DRJIT_LIBLLVM_PATH" not in os.environ:
        found = sorted(glob.glob("/usr/lib/*/libLLVM.so.*") + glob.glob("/usr/lib/*/libLLVM-*.so"), reverse=True)
        if not found:
            raise Unavailable("Dr.Jit needs a libLLVM: apt-get install libllvm19, or set DRJIT_LIBLLVM_PATH")
        os.environ["DRJIT_LIBLLVM_PATH"] = found[0]
    import drjit as module
    from drjit.llvm import ad

    return module, ad


def jax() -> tuple[ModuleType, ModuleType]:
    """JAX on the CPU with 64-bit types switched on (float32 arrays stay float32)."""
    import jax as module

    module.config.update("jax_platforms", "cpu")
    module.config.update("jax_enable_x64", True)
    return module, module.numpy


def torch() -> ModuleType:
    """PyTorch on all cores."""
    import torch as module

    module.set_num_threads(os.cpu_count() or 1)
    return module


def quadrants(**options: Any) -> ModuleType:
    """Quadrants on the CPU with its autodiff stacks switched on, sized by itself."""
    import quadrants as module

    module.init(arch=module.cpu, ad_stack_experimental_enabled=True, **options)
    return module
