"""PTX in pieces: each kernel is in one of them, with what it needs, and says what it says in the whole."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from loopgrad.codegen.options import Options
from loopgrad.codegen.program import LaunchStep, Program
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.nvptx import target
from loopgrad.graph.types import float32, float64
from tests.codegen.targets.cpu.kernel_build import Build
from tests.codegen.targets.gpu.gpu_harness import program_of

NUMBERS = re.compile(r"callseq \d+|\$L__BB\d+_")  # LLVM counts the calls of a process, and functions of a module


def kernel(k: int, dtype):
    """Exponentials, which kernels share a function of, unless it is the second."""
    b = Build(100 + k)
    (lane,) = b.indices
    x = b.load(b.param(dtype, 100 + k), lane)
    for _ in range(0 if k == 1 else 6):
        x = b.one("exp", (b.one("add", (x, b.const(k, dtype))),))
    b.store(b.param(dtype, 100 + k, "write"), lane, x)
    return b.kernel(f"kernel {k}")


def program() -> Program:
    """Several kernels one after the other."""
    parts = [program_of(kernel(k, dtype)) for k, dtype in enumerate((float32, float32, float64, float32))]
    slots, steps, kernels = [], [], []
    for number, part in enumerate(parts):
        (step,) = part.steps
        assert isinstance(step, LaunchStep)
        steps.append(replace(step, kernel=number, slots=tuple(len(slots) + slot for slot in step.slots)))
        slots += part.slots
        kernels += part.kernels
    return replace(parts[0], slots=tuple(slots), steps=tuple(steps), kernels=tuple(kernels), inputs=(), outputs=())


def entry(text: str, name: str) -> str:
    return NUMBERS.sub("", text[text.index(f".entry {name}(") :].split("\n}\n")[0])


@pytest.mark.parametrize("piece", [1, 1 << 14])
def test_pieces_say_what_the_whole_says(piece, monkeypatch):
    whole = compile_for(program(), Options(), target.nvptx_image())
    monkeypatch.setattr(target, "PIECE", piece)
    artifacts = [target.compile_program(program(), Options(), threads) for threads in (1, 3)]
    modules = artifacts[0].program.modules
    places = sorted({(m.offset, m.size) for m in modules})
    assert 1 < len(places) <= len(modules) == len(whole.program.modules)
    assert [offset for offset, _ in places] == [0, *(offset + size for offset, size in places[:-1])]
    for artifact in artifacts:
        assert artifact.program.modules == modules
        assert sum(places[-1]) == len(artifact.code)
        for module in modules:
            text = artifact.code[module.offset : module.offset + module.size].decode()
            assert entry(text, module.entry) == entry(whole.code.decode(), module.entry)
            for called in re.findall(r"call\.uni .*?(lg\w+)", entry(text, module.entry)):
                assert f".func  {called}" in text or f"{called}(" in text.split(".entry")[0]


def test_a_short_text_is_one_piece():
    assert len({(m.offset, m.size) for m in target.compile_program(program(), Options(), 4).program.modules}) == 1


def test_a_piece_that_llvm_refuses(monkeypatch):
    monkeypatch.setattr(target, "PIECE", 1)
    monkeypatch.setattr(target, "with_layout", lambda text, _: text.replace("ret void", "ret nothing"))
    with pytest.raises(RuntimeError, match="LLVM refuses a module"):
        target.compile_program(program(), Options(), 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_pieces_are_for_gpus_that_have_their_instructions(threads, monkeypatch):
    monkeypatch.setattr(target, "PIECE", 1)
    monkeypatch.setattr(target.warpgroup_units, "NAME", "double")  # stands for what one compute capability has
    artifact = target.compile_program(program(), Options(), threads, warpgroups=True)
    codes = {artifact.code[m.offset : m.offset + m.size].decode() for m in artifact.program.modules}
    kinds = {(re.search(r"\.target (\w+)", code)[1], ".f64" in code) for code in codes}
    assert kinds == {("sm_80", False), ("sm_90a", True)}
