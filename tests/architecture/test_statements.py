"""What ARCHITECTURE.md says of folders and of imports at run time, each sentence a test."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import loopgrad as lg
from tests.architecture.sources import FOLDERS, ROOT, SOURCES, imported, name, parsed, strings

TARGETS = {"cuda", "hip", "vulkan", "nvptx", "amdgpu", "spirv"}
# What may name a target outside of the target's own folders, and why.
NAMING = {
    "runtime/devices.py": "the table of devices",
    "codegen/objects/formats.py": "the table of formats of objects",
    "runtime/dlpack.py": "streams and addresses mean other things in CUDA's protocol than in ROCm's",
    "runtime/processes.py": "names of packages",
    "lazy/numpy/not_offered.py": "names of other libraries' methods",
}

PROGRAM = """
import sys, numpy as np, loopgrad as lg
def loss(x):
    step = lambda k, v: lg.sin(v) + lg.sum(v)  # mixes lanes: loops over whole tensors are the device's
    return lg.sum(lg.fori_loop(0, 3, step, x))
with lg.default_device({device!r}):
    x = lg.asarray(np.linspace(0.0, 1.0, 5, dtype=np.float32))
    np.asarray(lg.grad(loss)(x))
print(*[m for m in sys.modules if m.startswith("loopgrad.codegen.")])
"""
# Parts of codegen that a program found on disk is run with: what it is made of, and what host and code agree on.
RUN_TIME = {
    "artifact", "codec", "options", "arena", "lifetimes", "product_shapes", "program", "steps", "kernel",
    "kernel.nodes", "targets",
}  # fmt: skip
AGREED = {
    "features", "interface", "record", "entry", "entry.call_context", "pool", "pool.pool_interface", "products",
    "products.products_interface", "sorts",
    "sorts.sorts_interface", "fourier", "fourier.fourier_interface", "support", "support.update_list",
}  # fmt: skip


def codegen_modules(device, cache):
    """The modules of codegen that a process imports for a gradient on the device."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(device=device)],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env={**os.environ, "LOOPGRAD_CACHE_DIR": str(cache)},
    )
    return {module.removeprefix("loopgrad.codegen.") for module in run.stdout.split()}


def needed_to_run(module):
    """Whether a part of codegen is no compiler."""
    target, _, part = module.removeprefix("targets.").partition(".")
    return module in RUN_TIME or (module.startswith("targets.") and (not part or part in AGREED) and bool(target))


def usable(device):
    return any(status.name == device and status.available for status in lg.devices())


@pytest.mark.parametrize("name", ["cpu", "vulkan:0"])
def test_a_warm_cache_needs_no_emitter(name, tmp_path):
    if not usable(name):
        pytest.skip(f"no {name}")
    first, second = codegen_modules(name, tmp_path), codegen_modules(name, tmp_path)
    assert "schedule.block" in first
    assert [module for module in second if not needed_to_run(module)] == []


def test_a_device_imports_no_emitter():
    """Of every kind, also those that this machine hasn't got."""
    modules = ", ".join(f"loopgrad.runtime.{kind}.device" for kind in ("cpu", "cuda", "hip", "vulkan"))
    code = f"import sys, {modules}; print(*[m for m in sys.modules if m.startswith('loopgrad.codegen.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    found = [module.removeprefix("loopgrad.codegen.") for module in run.stdout.split()]
    assert "artifact" in found
    assert [module for module in found if not needed_to_run(module)] == []


def test_a_first_compilation_for_the_cpu_imports_no_gpu(tmp_path):
    found = codegen_modules("cpu", tmp_path)
    assert "targets.cpu.vector.emit" in found
    others = {f"targets{name}" for name in ("", ".archive", ".llvm_modules", ".llvm_rows", ".llvm_threads")}
    assert [m for m in found if m.startswith("targets.") and not m.startswith("targets.cpu") and m not in others] == []


def test_targets_are_named_in_tables_only():
    """By an import, or by a string that is the target's or a device's name."""
    naming = set()
    for path in SOURCES:
        if not TARGETS & set(path.relative_to(ROOT).parts[:-1]):
            tree = parsed(path)[1]
            modules = {part for module, _ in imported(tree) for part in module.split(".")}
            words = {text.partition(":")[0] for text in strings(tree)}
            if TARGETS & (modules | words):
                naming.add(name(path))
    assert naming == set(NAMING)


def test_the_graph_knows_no_upper_folder_and_no_device():
    upper = set(FOLDERS) - {"graph"}
    kinds = TARGETS | {"cpu", "interpreter"}
    found = [
        (name(path), text)
        for path in SOURCES
        if path.is_relative_to(ROOT / "graph")
        for text in strings(parsed(path)[1])
        if text in upper | kinds
    ]
    assert found == []


def test_the_runtime_rewrites_no_graph():
    """It asks graph.lift for the graph with numbers as inputs, and graph.build for a copy; nothing else makes nodes."""
    makers = ("build", "ops", "rebuild", "passes", "batching", "regions", "region_ops")
    found = {
        (module.removeprefix("loopgrad.graph."), alias.name)
        for path in SOURCES
        if path.is_relative_to(ROOT / "runtime")
        for module, statement in imported(parsed(path)[1])
        if module.startswith(tuple(f"loopgrad.graph.{maker}" for maker in makers))
        for alias in statement.names
    }
    assert found <= {("build", "unbound")}


def test_code_generation_calls_no_driver_and_reads_no_environment():
    """But ROCm's linker and LLVM, which are compilers' libraries."""
    drivers = {"ctypes", "vulkan", "cuda", "hip", "os"}
    found = {
        name(path)
        for path in SOURCES
        if path.is_relative_to(ROOT / "codegen")
        and any(module.split(".")[0] in drivers for module, _ in imported(parsed(path)[1]))
    }
    assert found == {"codegen/targets/amdgpu/comgr.py", "codegen/targets/llvm_threads.py"}


def test_autodiff_computes_with_nodes_only():
    rules = [path for path in SOURCES if path.is_relative_to(ROOT / "autodiff")]
    found = [name(path) for path in rules if "numpy" in dict(imported(parsed(path)[1]))]
    assert found == []
