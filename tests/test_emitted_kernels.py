"""What sees the kernels of a run keeps enough of them, and names the test whose kernel is rejected."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from loopgrad.codegen.kernel.nodes import Kernel, Reduction
from loopgrad.codegen.targets.gpu.lanes.plan import UNTILED
from loopgrad.codegen.targets.gpu.support.support_kernels import copy_kernel, fill_kernel, tree_kernel
from loopgrad.graph.types import DType, float32, float64
from tests import emitted_kernels
from tests.amdgpu_checks import PROCESSORS, AmdCompiler
from tests.emitted_kernels import Emitted, Kernels


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    monkeypatch.setattr(emitted_kernels, "SAMPLE", 0.0)
    emitted_kernels.picklable()
    return Kernels(tmp_path, [AmdCompiler()])


def look(kernels: Kernels, *given: Kernel) -> list[Emitted]:
    for kernel in given:
        kernels.look(kernel, False, UNTILED)
    return list(kernels.chosen())


def tree(kind: str, dtype: DType, rows: int, length: int, width: int) -> Kernel:
    return tree_kernel(Reduction(kind, dtype, 0, 1), rows, length, width, partial=False)


def test_a_kernel_with_nothing_new_is_left_out(kernels: Kernels) -> None:
    chosen = look(kernels, tree("add", float64, 3, 500, 11), tree("add", float64, 5, 700, 13))
    assert len(chosen) == 1
    assert len(look(kernels, tree("max", float32, 3, 500, 8))) == 2
    assert "test_a_kernel_with_nothing_new_is_left_out" in chosen[0].test


def test_a_long_kernel_is_kept_for_instructions_that_are_new_and_not_for_pairs(kernels: Kernels) -> None:
    padding = "; " + "x" * emitted_kernels.LONG
    covered = emitted_kernels.traits("define\nentry:\n  %x = add i64 %a, 1\n  %y = mul i64 %x, %x\n  ret void\n}\n")
    swapped = "define\nentry:\n  %x = mul i64 %a, %a\n  %y = add i64 %x, 2\n  ret void\n"
    assert not emitted_kernels.gained(f"{swapped}}}\n{padding}", False, set(covered) | {"}", padding})
    assert emitted_kernels.gained(swapped, False, set(covered))
    another = swapped.replace("mul", "xor")
    assert emitted_kernels.gained(f"{another}}}\n{padding}", False, set(covered) | {"}", padding})
    padding += "x" * emitted_kernels.LONGEST
    assert not emitted_kernels.gained(f"{another}}}\n{padding}", True, set())


def test_good_kernels_are_accepted_for_every_gpu(kernels: Kernels, tmp_path: Path) -> None:
    chosen = look(kernels, fill_kernel(float64, 2.5), copy_kernel(2), tree("mul", float32, 2, 90, 2))
    assert len(chosen) == 3
    assert AmdCompiler().judge(chosen, tmp_path) == []


def test_a_bad_kernel_is_rejected_by_name(kernels: Kernels, tmp_path: Path) -> None:
    (good,) = look(kernels, fill_kernel(float64, 2.5))
    kernel, *rest = pickle.loads(good.given.read_bytes())
    kernel.body.ops[-1].attrs = {"param": 7}
    good.given.write_bytes(pickle.dumps((kernel, *rest)))
    verdicts = AmdCompiler().judge([good], tmp_path)
    assert [text.partition(":")[0] for text in verdicts] == [PROCESSORS[0]]
    for text in verdicts:
        assert "IndexError" in text
        assert "k0: emitted by tests/test_emitted_kernels.py::test_a_bad_kernel_is_rejected_by_name" in text


def test_what_larger_kernels_cover_as_well_is_left_out(tmp_path):
    def kernel(*lines):
        text = "\n".join(["define void @k0() {", "entry:", *lines, "}"])
        return emitted_kernels.Emitted(text, [], tmp_path, "")

    add, multiply, both = kernel("%a = add i32 1, 2"), kernel("%a = mul i32 1, 2"), kernel("add", "%b = add i32 1, 2")
    found = emitted_kernels.needed([(add, False), (multiply, False), (both, False)])
    assert found == [multiply, both]
    assert emitted_kernels.needed([(add, True), (multiply, False), (both, False)]) == [add, multiply, both]
