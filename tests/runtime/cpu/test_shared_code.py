"""Programs of shapes that nobody has seen take the machine code of others, and have the bits of their own."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.options import Options
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.nodes import Graph
from loopgrad.graph.types import TensorType, float64
from loopgrad.runtime.cache import DiskCache
from loopgrad.runtime.cpu import shared_code
from loopgrad.runtime.cpu.device import COMPILED, SHARED, CpuDevice, without_code
from loopgrad.runtime.cpu.other_extents import OtherExtents
from loopgrad.runtime.cpu.shared_code import SharedCode
from loopgrad.runtime.devices import get_device
from loopgrad.runtime.session import SESSION

Function = Callable[[Any], Any]


def cube_roots(a: Any) -> Any:
    return lg.while_loop(lambda v: abs(v * v * v - a) > 1e-12 * a, lambda v: v - (v - a / (v * v)) / 3.0, a * 0.5 + 1.0)


def ragged(x: Any) -> Any:
    return lg.fori_loop(0, lg.arange(x.shape[0]) % 7, lambda _k, v: lg.sin(v) + 0.1, x)


def adaptive(x: Any) -> Any:
    """A loop that nobody can bound, around whole tensors."""
    state = lg.while_loop(lambda s: s[0] < 3.0, lambda s: (s[0] + 0.4 + lg.mean(s[1] ** 2), s[1] * 0.9), (x[0], x))
    return lg.sum(state[1] * x)


FUNCTIONS: dict[str, Function] = {
    "lanes until converged": lambda x: lg.sum(cube_roots(x)),
    "lanes with trips": lambda x: lg.sum(ragged(x)),
    "a loop over whole tensors": adaptive,
    "steps of an equation": lambda x: lg.sum(lg.fori_loop(0, 20, lambda _k, v: v + 0.01 * (lg.cos(v) - v), x)),
    "logsumexp": lambda x: lg.max(x) + lg.log(lg.sum(lg.exp(x - lg.max(x)))),
    "variance": lambda x: lg.var(x * x),
    "rows": lambda x: lg.sum(lg.max(x[:, None] * lg.asarray([1.0, -2.0, 3.0], dtype=x.dtype), axis=1)),
    "gather": lambda x: lg.sum(lg.take(x, lg.arange(x.shape[0])[::-1] // 2) * x),
    "scatter": lambda x: lg.sum(lg.zeros_like(x).at[lg.arange(x.shape[0]) // 3].add(x) ** 2),
    "running totals": lambda x: lg.sum(lg.cumsum(x) * x),
    "products": lambda x: lg.sum(lg.matmul(x[:, None] * x[None, :12], lg.outer(x[:12], x[:30]))[0] * x[:30]),
    "scan": lambda x: lg.scan(lambda c, v: (c * 0.5 + v, c), x[0], x)[0],
}


class Watched:
    """A device whose machine code is made by a sharing cache of its own, or always anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        device = get_device("cpu")
        assert isinstance(device, CpuDevice)
        self.device, self.patch = device, monkeypatch
        self.shared, self.alone = SharedCode(device._shared._compile), SharedCode(device._shared._compile)
        self.extents = OtherExtents(self.shared, without_code)
        monkeypatch.setattr(device, "cache", None)

    def run(self, function: Function, array: np.ndarray, share: bool) -> tuple[list[bytes], int]:
        """Bits of the results, and for how many programs code was made."""
        self.alone._classes.clear()
        shared = self.shared if share else self.alone
        self.patch.setattr(self.device, "_shared", shared)
        self.patch.setattr(self.device, "_extents", self.extents if share else OtherExtents(shared, without_code))
        SESSION.clear()
        compiled = self.device.compiled
        with lg.options(direct=False):
            results = function(lg.asarray(array))
            lg.eval(results)
        return [np.asarray(r).tobytes() for r in results], self.device.compiled - compiled


@pytest.mark.in_turns
@pytest.mark.parametrize("start", range(3))
def test_bits_are_those_of_code_of_their_own(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device, rng, shared = Watched(monkeypatch), np.random.default_rng(3), []
    for number, (name, function) in [*enumerate(FUNCTIONS.items())][start::3]:
        dtype = ("float64", "float32")[number % 2]
        for count in (1_203, 1_203 + int(rng.integers(1, 40)), int(rng.integers(1_300, 4_000))):
            x = rng.uniform(0.1, 1.0, count).astype(dtype)
            found, made = device.run(lg.value_and_grad(function), x, share=True)
            if count != 1_203:  # the first is its own
                assert found == device.run(lg.value_and_grad(function), x, share=False)[0], (name, count)
            if not made:
                shared.append(name)
    assert len({*shared}) >= 2, shared  # of four


def test_the_third_length_of_a_kind_makes_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    device, x = Watched(monkeypatch), np.linspace(0.1, 1.0, 120_000)
    for name in ("lanes until converged", "logsumexp", "gather"):
        function = lg.value_and_grad(FUNCTIONS[name])
        made = [device.run(function, x[:n], share=True)[1] for n in (100_003, 100_019, 100_035, 104_011, 99_987)]
        assert made == [1, 1, 0, 0, 0], name


def test_matrix_products_of_new_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Watched(monkeypatch)

    def function(x: Any) -> Any:
        square = x.reshape(isqrt(x.shape[0]), -1)
        return lg.sum(lg.tanh(square @ square.T))

    made = []
    for n in (151, 153, 157, 171):
        x = np.random.default_rng(n).normal(size=n * n)
        found, compiled = device.run(lg.value_and_grad(function), x, share=True)
        made.append(compiled)
    assert made[2:] == [0, 0]
    assert found == device.run(lg.value_and_grad(function), x, share=False)[0]


@pytest.mark.parametrize(
    ("function", "lengths"),
    [
        (lg.grad(lambda x: lg.mean(lg.sin(x) ** 2)), (601, 613, 637, 661)),
        (lg.median, (601, 613, 637, 661)),
        (lambda x: lg.percentile(x, 30), (605, 615, 625, 655)),
        (lambda x: lg.abs(lg.fft.rfft(x)), (1_001, 1_013, 1_037, 1_061)),
        (lambda x: x.reshape(-1, 60).T + 1, (60_780, 61_020, 61_140, 61_260)),
    ],
    ids=["mean", "median", "percentile", "spectrum", "transposition"],
)
def test_other_lengths_are_filled_in(function: Function, lengths: tuple[int, ...], monkeypatch: Any) -> None:
    device, scheduled, x = Watched(monkeypatch), [], np.random.default_rng(5).normal(size=max(lengths))
    note = device.extents.scheduled
    monkeypatch.setattr(device.extents, "scheduled", lambda *given: (scheduled.append(length), note(*given)))
    for length in lengths:
        found, _ = device.run(lambda x: (function(x),), x[:length].astype(np.float32), share=True)
    assert scheduled == [*lengths[:2]]
    assert found == device.run(lambda x: (function(x),), x[:length].astype(np.float32), share=False)[0]


def test_explain_says_that_code_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    Watched(monkeypatch)
    function = lg.compile(lg.grad(lambda x: lg.sum(cube_roots(x))))
    for n in (81, 82, 83):  # none fills vectors of any width, which would be other code
        function(lg.ones(n))
    text = str(function.explain())
    assert COMPILED in text
    assert SHARED in text


def test_another_process_makes_no_code_for_other_lengths(tmp_path: Path) -> None:
    def graph(count: int) -> Graph:
        return trace(lambda v: (ops.reduce_sum(ops.sin(v), (0,)),), [TensorType((count,), float64)])[0]

    first, second = CpuDevice(DiskCache(tmp_path)), CpuDevice(DiskCache(tmp_path))
    for count in (203, 205, 207):
        first.compile(graph(count), Options())
    executable = second.compile(graph(211), Options())
    assert (first.compiled, second.compiled) == (2, 0)
    assert SHARED in executable.explain()
    x = np.random.default_rng(0).normal(size=211)
    own = CpuDevice(DiskCache(tmp_path / "own")).compile(graph(211), Options())
    assert executable.run([second.put(x)])[0].array.tobytes() == own.run([second.put(x)])[0].array.tobytes()


def test_what_is_remembered_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_code, "MOST_BYTES", 10_000)
    shared = SharedCode(lambda text: text.encode() * 40)
    texts = ["define void @f() {\n" + f"  %a{i} = add i64 %x, 1\n" * 30 + "}\n" for i in range(20)]
    assert all(shared.code(text).made for text in texts)
    assert 0 < shared._bytes <= 40_000
    assert not shared.code(texts[-1]).made
    assert shared.code(texts[0]).made
