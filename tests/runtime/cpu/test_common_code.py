"""Functions that many programs have are compiled once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.targets.cpu import llvm
from loopgrad.runtime.cpu.common_code import CommonCode
from loopgrad.runtime.cpu.device import CpuDevice
from loopgrad.runtime.cpu.shared_code import SharedCode
from loopgrad.runtime.devices import get_device


def _ends(limit: float, x: lg.Tensor) -> lg.Tensor:
    return lg.sum(lg.while_loop(lambda c: c < limit, lambda c: c * c + 0.3, x))


def test_a_second_program_only_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    device, made, real = get_device("cpu"), list[str](), llvm.compile_module

    def compile_module(text: str, *rest: object, **named: object) -> bytes:
        made.append(text)
        return real(text, *rest, **named)  # type: ignore[arg-type]

    assert isinstance(device, CpuDevice)
    monkeypatch.setattr(llvm, "compile_module", compile_module)
    monkeypatch.setattr(device, "cache", None)
    monkeypatch.setattr(device, "_common", CommonCode(device._support_code, device.environment))
    monkeypatch.setattr(device, "_shared", SharedCode(device._machine_code))
    x, counts = lg.asarray(np.linspace(0.1, 1.0, 13)), []
    for factor in (1.0, 2.0):
        made.clear()
        slope = lg.compile(lg.grad(partial(_ends, factor)))(x)
        np.testing.assert_array_less(0.0, np.asarray(slope))
        counts.append(("define i32 @drv.report" in "".join(made), len(made)))
    assert counts[0][0]
    assert counts[1] == (False, 1)
