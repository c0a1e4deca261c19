"""The codec: what is written comes back, with the same bits; damaged data is refused, and the error says where."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from loopgrad.codegen import codec
from loopgrad.codegen.codec import CodecError, decode, encode
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.pipeline import build_program
from loopgrad.codegen.program import (
    ArraySlot,
    CopyStep,
    ForStep,
    Initial,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    ProgramStack,
    PushStep,
    ReserveStep,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.cpu import record as cpu
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.cpu.module import emit_kernels
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, LaneMapping
from loopgrad.codegen.targets.gpu.record import Module, ProgramRecord
from loopgrad.graph.nodes import Location
from loopgrad.graph.types import DType, TensorType, bfloat16, bool_, float32, int32
from tests.graph import random_graphs

HERE = Location("model.py", 3, "f")
Steps = tuple[Step, ...]


class NoCode:
    """An image for which kernels are numbered and no code is made."""

    geometry = Geometry()

    def __init__(self) -> None:
        self.modules: list[Module] = []

    def add(self, kernel: Kernel, fast: bool, plan: LaneMapping) -> None:
        self.modules.append(Module(kernel.name, 8 * len(self.modules), 8, f"k{len(self.modules)}", plan.group or 64))

    def finish(self) -> tuple[list[Module], bytes, Mapping[str, str]]:
        return self.modules, b"", {}


def gpu_record(program: Program) -> ProgramRecord:
    return compile_for(program, Options(), NoCode()).program


def cpu_record(program: Program) -> cpu.CpuProgramRecord:
    return cpu.record(program, emit_kernels(program.kernels, host_machine(), Options())[1])


def written(kind: Any, value: Any) -> Any:
    return json.loads(json.dumps(encode(kind, value)))


def same(x: Any, y: Any) -> bool:
    """Equal down to classes and the bits of floats."""
    if type(x) is not type(y):
        return False
    if isinstance(x, float):
        return struct.pack("d", x) == struct.pack("d", y)
    if is_dataclass(x):
        return all(same(getattr(x, f.name), getattr(y, f.name)) for f in fields(x))
    if isinstance(x, tuple):
        return len(x) == len(y) and all(map(same, x, y))
    if isinstance(x, dict):
        return same(tuple(x.items()), tuple(y.items()))
    return bool(x == y)


def every_step() -> Steps:
    by = 3
    launch = LaunchStep(0, (0, 1), ((1, Initial(None, float("-inf"), by)), (0, Initial(4)), (2, Initial(None, True))))
    loop = ForStep(5, 3, (launch, ReserveStep(0, 5), PushStep(0, 1, by)), ((1, 2),), True, HERE)
    body = (PopStep(0, 1), MatmulStep(0, 0, 2, 1, 10, 10, 10, by=by), SwitchStep(4, ((), (CopyStep(0, 2, by),))))
    attrs = (("axis", -1), ("axes", (0, (1, None))), ("name", "x"), ("flag", True), ("scale", -0.0))
    return (loop, WhileStep((), 4, body, (), 100, None), RoutineStep("sort", (0,), (1,), attrs))


def random_programs() -> list[Program]:
    return [build_program(random_graphs.random_program(seed)[0], Options()) for seed in range(40)]


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    return random_programs()


def test_programs_of_a_gpu_come_back(programs: list[Program]) -> None:
    for program in programs:
        record = gpu_record(program)
        assert same(decode(ProgramRecord, written(ProgramRecord, record)), record)


def test_programs_of_the_cpu_come_back(programs: list[Program]) -> None:
    for program in programs:
        record = cpu_record(program)
        assert same(decode(cpu.CpuProgramRecord, written(cpu.CpuProgramRecord, record)), record)


def test_the_programs_have_loops_branches_and_stacks(programs: list[Program]) -> None:
    assert {LaunchStep, ForStep, WhileStep, SwitchStep} <= {type(s) for p in programs for s in all_steps(p.steps)}
    assert any(kernel.stacks for program in programs for kernel in program.kernels)
    assert any(program.constants for program in programs)


def test_every_step_comes_back() -> None:
    assert {type(step) for step in all_steps(every_step())} == set(Step.__args__)
    assert same(decode(Steps, written(Steps, every_step())), every_step())


def test_the_text_is_strict_json() -> None:
    json.dumps(encode(Steps, every_step()), allow_nan=False)


@pytest.mark.parametrize("bits", [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000000, 0x8000000000000000, 1])
def test_floats_keep_their_bits(bits: int) -> None:
    value = np.array(bits, np.uint64).view(np.float64).item()
    assert same(decode(Initial, written(Initial, Initial(None, value))), Initial(None, value))


@pytest.mark.parametrize(
    ("kind", "value"),
    [(DType, bfloat16), (TensorType, TensorType((0, 3), bool_)), (Location | None, HERE), (Location | None, None),
     (dict[int, int], {3: 1, 2: 5}), (frozenset[int], frozenset([4, 1])), (tuple[()], ()),
     (tuple[int, tuple[str, ...]], (1, ("a", "b"))), (ArraySlot, ArraySlot(TensorType((2,), int32), "constant", 64)),
     (ProgramStack, ProgramStack(TensorType((), float32), "v", None, 2))],
    ids=str,
)  # fmt: skip
def test_values_come_back(kind: Any, value: Any) -> None:
    assert same(decode(kind, written(kind, value)), value)


def damaged(change: Any) -> Any:
    data = written(Steps, every_step())
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[0].update(count="5"), r"^\[0\]\.count: expected int, got '5'"),
        (lambda d: d[0].update(count=True), r"^\[0\]\.count: expected int, got True"),
        (lambda d: d[0].pop("count"), r"^\[0\]: expected the 6 fields of ForStep in their order, got"),
        (lambda d: d[0].update(more=1), r"^\[0\]: expected the 6 fields of ForStep in their order, got"),
        (lambda d: d[0].update(count=d[0].pop("count")), "the 6 fields of ForStep in their order, got"),
        (lambda d: d[0].update(loc=["model.py", "3", "f"]), r"^\[0\]\.loc\[1\]: expected int, got '3'"),
        (lambda d: d[0].update(loc=["model.py", 3]), r"^\[0\]\.loc: expected list of 3, got"),
        (lambda d: d[0]["body"][0]["slots"].append(None), r"^\[0\]\.body\[0\]\.slots\[2\]: expected int, got None"),
        (lambda d: d[0]["body"][0]["initials"][0][1].update(value="7ff"), "expected float, got '7ff'"),
        (lambda d: d[0]["body"][0]["initials"][0][1].update(value=float("nan")), "expected float, got nan"),
        (lambda d: d[1].update({"class": "NoStep"}), r"^\[1\]: expected LaunchStep or .* or SwitchStep, got"),
        (lambda d: d[1].update(max_steps=[]), r"^\[1\]\.max_steps: expected int or NoneType, got"),
        (lambda d: d.__setitem__(1, 7), r"^\[1\]: expected LaunchStep or"),
    ],
)  # fmt: skip
def test_damaged_data_is_refused(change: Any, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        decode(Steps, damaged(change))


def test_a_missing_field_is_named() -> None:
    data = written(Initial, Initial(None, 1.0))
    data["other"] = data.pop("value")
    with pytest.raises(CodecError, match="expected the field value of Initial"):
        decode(Initial, data)
    with pytest.raises(CodecError, match=r"^the whole: expected the 4 fields of Initial, got None"):
        decode(Initial, None)


def test_every_cut_of_a_program_is_refused(programs: list[Program]) -> None:
    """Anything that lacks a part, at any depth."""

    def cuts(data: Any) -> Any:
        for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
            part, data[key] = data[key], {"cut": 0}
            yield
            data[key] = part
            yield from cuts(part)

    data = written(ProgramRecord, gpu_record(programs[0]))
    for _ in cuts(data):
        with pytest.raises(CodecError):
            decode(ProgramRecord, data)


class Pair(NamedTuple):
    first: int
    second: str


@dataclass(frozen=True)
class Wrong:
    value: Any


@dataclass(frozen=True)
class Narrow:
    pairs: tuple[Pair, ...] = ()


def test_what_a_field_does_not_allow_is_not_written() -> None:
    with pytest.raises(CodecError, match=r"pairs\[0\]\[0\]: expected int, got np.int64\(1\)"):
        encode(Narrow, Narrow((Pair(np.int64(1), "a"),)))
    with pytest.raises(CodecError, match="expected Initial, got 1"):
        encode(Initial, 1)
    with pytest.raises(CodecError, match="None, a finite number, a text or a tuple"):
        encode(RoutineStep, RoutineStep("sort", (), (), (("axis", [1]),)))


@pytest.mark.parametrize("kind", [Wrong, tuple[complex, ...], int | bool | tuple[int, ...] | Pair, float | str])
def test_types_that_data_cannot_tell_apart_are_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        encode(kind, Wrong(1))


def test_threads_that_need_a_class_first_at_the_same_time():
    meeting, made = threading.Barrier(2, timeout=60), codec._codec(int)

    def members():
        meeting.wait()
        return [made]

    codecs, _ = codec._row(tuple, str, members)
    with ThreadPoolExecutor(2) as pool:
        found = [future.result() for future in [pool.submit(codecs) for _ in range(2)]]
    assert found == [[made], [made]]
    assert codecs() == [made]
