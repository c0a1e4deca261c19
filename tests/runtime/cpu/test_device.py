"""Real graphs on the cpu device: disk cache between devices, text stages, plans, threads, forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loopgrad.codegen.options import Options
from loopgrad.graph import ops
from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import TensorType, float32, int64
from loopgrad.runtime.cache import CacheWarning, DiskCache
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.executable import CpuExecutable
from loopgrad.runtime.cpu.native_pool import THREADS_VARIABLE, quota_cores, wanted_threads

N = 10_000
VECTOR = TensorType((N,), float32)


def sine_sum() -> Graph:
    return trace(lambda x: emit("reduce_sum", (ops.sin(x),), {"axes": (0,)}), [VECTOR])[0]


def lanes_with_trips() -> Graph:
    """A lane loop: v -> sin(v) + 0.25 as often as each lane says."""

    def function(x: Value, count: Value) -> tuple[Value, ...]:
        def body(k: Value, v: Value) -> tuple[Value, ...]:
            return (ops.add(ops.sin(v), ops.full(0.25, v.type)),)

        region, _ = trace(body, [count.type, x.type])
        attrs = {
            "carries": 1, "lanes": 1, "shared": (), "reverse": False, "name": None, "memory_budget": None,
        }  # fmt: skip
        return emit("for", (count, x), attrs, (region,))

    return trace(function, [VECTOR, TensorType((N,), int64)])[0]


def run(device: CpuDevice, graph: Graph, *arrays: np.ndarray) -> list[np.ndarray]:
    executable = device.compile(graph, Options())
    return [b.array for b in executable.run([device.put(a) for a in arrays])]


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=N).astype(np.float32)


def test_a_second_device_compiles_nothing(tmp_path: Path, x: np.ndarray) -> None:
    first, second = CpuDevice(DiskCache(tmp_path)), CpuDevice(DiskCache(tmp_path))
    results = [run(device, sine_sum(), x)[0] for device in (first, second)]
    assert results[0].tobytes() == results[1].tobytes()
    np.testing.assert_allclose(results[0], np.sin(x, dtype=np.float64).sum(), rtol=1e-5)
    assert (first.compiled, second.compiled) == (1, 0)
    assert "compiled" in first.compile(lanes_with_trips(), Options()).explain()[0]
    assert "cache on disk" in second.compile(lanes_with_trips(), Options()).explain()[0]


def test_options_are_part_of_the_key(tmp_path: Path) -> None:
    device = CpuDevice(DiskCache(tmp_path))
    device.compile(sine_sum(), Options())
    device.compile(sine_sum(), Options(fast_math=True))
    assert device.compiled == 2


def test_a_damaged_entry_is_compiled_again(tmp_path: Path, x: np.ndarray) -> None:
    run(CpuDevice(DiskCache(tmp_path)), sine_sum(), x)
    for path in tmp_path.glob("*.program"):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    device = CpuDevice(DiskCache(tmp_path))
    with pytest.warns(CacheWarning, match="damaged"):
        run(device, sine_sum(), x)
    assert device.compiled == 1


@pytest.mark.parametrize("stage", ["graph", "kernel", "llvm", "asm"])
def test_text_of_every_stage(cpu_device: CpuDevice, stage: str) -> None:
    text = cpu_device.compile(sine_sum(), Options()).text(stage)
    expected = {"graph": "reduce_sum", "kernel": "sin", "llvm": "define i32 @entry", "asm": "entry"}
    assert expected[stage] in text


def test_an_unknown_stage_is_refused(cpu_device: CpuDevice) -> None:
    with pytest.raises(ValueError, match="expected one of the stages graph, kernel, llvm, asm, got 'ptx'"):
        cpu_device.compile(sine_sum(), Options()).text("ptx")


def test_lanes_agree_with_the_interpreter_for_any_number_of_threads(cpu_device: CpuDevice, x: np.ndarray) -> None:
    counts = np.random.default_rng(1).integers(-2, 40, N)
    graph = lanes_with_trips()
    executable = cpu_device.compile(graph, Options())
    assert isinstance(executable, CpuExecutable)
    pool = cpu_device.pool()
    before = pool.threads
    results = []
    try:
        for threads in (1, 2, 5):
            pool.set_threads(threads)
            (y,) = executable.run([cpu_device.put(x), cpu_device.put(counts)])
            results.append(y.array.copy())
    finally:
        pool.set_threads(before)
    np.testing.assert_allclose(results[0], interpret(graph, [x, counts])[0], rtol=1e-4)
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()


def test_a_plan_lists_kernels_and_buffers(cpu_device: CpuDevice) -> None:
    plan = cpu_device.compile(sine_sum(), Options()).plan()
    assert plan.kernels
    assert [b.type for b in plan.buffers if b.kind == "input"] == [f"float32[{N}]"]
    assert "kernels" in str(plan)
    assert "float32[]" in str(plan)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_the_number_of_threads_must_be_positive(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(THREADS_VARIABLE, text)
    with pytest.raises(ValueError, match="LOOPGRAD_NUM_THREADS: expected a positive integer"):
        wanted_threads()


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS_VARIABLE, "3")
    assert wanted_threads() == 3
    monkeypatch.delenv(THREADS_VARIABLE)
    assert wanted_threads() >= 1


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("200000 100000", 2), ("150000 100000", 2), ("5000 100000", 1), ("", None)],
)
def test_a_container_limits_the_number_of_threads(tmp_path: Path, text: str, cores: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(text)
    assert quota_cores(file) == cores
    assert quota_cores(tmp_path / "missing") is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_computes() -> None:
    script = """
import os, sys, warnings
import numpy as np
import loopgrad as lg
warnings.simplefilter("ignore")
with lg.default_device("cpu"):
    x = lg.asarray(np.arange(300_000.0))
    f = lg.compile(lambda x: lg.sum(lg.sin(x)))
    want = float(f(x))
    child = os.fork()
    good = float(f(x)) == want and float(lg.sum(lg.cos(x))) == float(lg.sum(lg.cos(x)))
    if child == 0:
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
sys.exit(0 if good and status == 0 else 1)
"""
    environment = {**os.environ, THREADS_VARIABLE: "4"}
    done = subprocess.run([sys.executable, "-c", script], timeout=120, check=False, env=environment)
    assert done.returncode == 0
