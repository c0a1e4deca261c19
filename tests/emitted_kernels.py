"""Kernels that tests emit, for whatever GPU, kept so that other compilers see them at the end of the run.

`tests/run` asks for it by LOOPGRAD_TEST_JUDGED=1, since emitting and compiling everything again takes minutes.
Those are looked at that have an operation, or two in a row, which no earlier one of the process had, and kept if their
instructions are new in the same sense, and a sample of the others (LOOPGRAD_TEST_SAMPLE is its share; with 1 every
different kernel is kept). Long kernels, which assemblers take as long for as for all others, are kept for instructions
that no shorter one has, not for pairs; those that compilers take a minute for, which differ from others in size alone,
are left to runs that keep every kernel. At the end of the run each judge sees the kept ones; what it rejects fails the
run.
"""

from __future__ import annotations

import copyreg
import hashlib
import json
import os
import pickle
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import pytest

from tests.vulkan_checks import MODULES_VARIABLE

FOLDER_VARIABLE = "LOOPGRAD_TEST_KERNELS"  # where the workers of one run put kernels
JUDGED_VARIABLE = "LOOPGRAD_TEST_JUDGED"
SAMPLE = float(os.environ.get("LOOPGRAD_TEST_SAMPLE", 1 / 50))
LONG, LONGEST = 30_000, 300_000  # characters of LLVM IR
NUMBERS = re.compile(r"%[\w.]+|@[\w.]+|0x\w+|(?<=[ \[])-?\d+")


def outside_the_run() -> dict[str, str]:
    """The environment for tests that start pytest themselves: it isn't a worker that would judge, at its end, all
    that this run has emitted."""
    return {k: v for k, v in os.environ.items() if k not in (FOLDER_VARIABLE, JUDGED_VARIABLE, MODULES_VARIABLE)}


@dataclass(frozen=True)
class Emitted:
    """`function` is LLVM IR for NVIDIA. `given` is what an image was given, pickled; `test` emitted it. `nvidia_alone`:
    no other target can be given it."""

    function: str
    declarations: list[str]
    given: Path
    test: str
    nvidia_alone: bool = False


class Judge(Protocol):
    """`name` stands before its verdict."""

    name: str

    def judge(self, kernels: Sequence[Emitted], folder: Path) -> list[str]:
        """What it has against them; it may use the folder."""
        ...


def traits(function: str) -> set[str]:
    """Its instructions without names and numbers, alone and in pairs."""
    lines = [NUMBERS.sub("%", line.strip()) for line in function.splitlines()[2:] if not line.endswith(":")]
    kinds = [line.removeprefix("% = ").split(" ")[0] for line in lines]
    return {*lines, *[f"{x}\n{y}" for x, y in pairwise(kinds)]}


def gained(function: str, anyway: bool, covered: set[str]) -> bool:
    """Whether the kernel is one to keep beside those that cover so much; then it covers its part."""
    if len(function) > LONGEST and SAMPLE < 1:
        return False
    own = traits(function)
    new = own - covered
    if len(function) > LONG and SAMPLE < 1:
        new, anyway = {trait for trait in new if "\n" not in trait}, False
    if new or anyway:
        covered |= own
    return bool(new) or anyway


def needed(kernels: Sequence[tuple[Emitted, bool]]) -> list[Emitted]:
    """Those, each with whether it is one of the sample, less what larger ones, which came later, cover as well."""
    own = [traits(kernel.function) for kernel, _ in kernels]
    having = Counter(trait for each in own for trait in each)
    left = []
    for (kernel, anyway), each in zip(kernels, own, strict=True):
        if anyway or any(having[trait] == 1 for trait in each):
            left.append(kernel)
        else:
            having.subtract(each)
    return left


def sampled(digest: str) -> bool:
    return int(digest[:8], 16) < SAMPLE * 2**32


def features(kernel: Any, fast: bool, shape: Any) -> set[Any]:
    """The operations of a kernel with their types, alone and in pairs, and what its lanes' mapping has."""
    from loopgrad.codegen.kernel.nodes import walk  # late: the library

    operations = list(walk(kernel.body))
    typed = {(op.opcode, *[v.dtype.name for v in (*op.operands, *op.results)], fast) for op in operations}
    pairs = {(x.opcode, y.opcode) for x, y in pairwise(operations)}
    parts = {(field.name, bool(getattr(x, field.name))) for x in (kernel, shape) for field in fields(x)}
    sums = {(r.kind, r.dtype.name) for r in (*kernel.reductions, kernel.running) if r is not None}
    return typed | pairs | parts | sums


class Kernels:
    """Kernels in a folder that the workers of a run share, named by the content of their LLVM IR."""

    def __init__(self, folder: Path, judges: Sequence[Judge]) -> None:
        self.folder, self.judges = folder, judges
        self.met: set[Any] = set()
        self.seen: set[str] = set()
        self.known: set[str] = set()
        self.verdicts: dict[str, list[str]] = {}
        self.count = 0
        self.random = random.Random(0)

    def watch(self) -> None:
        """Look at whatever is emitted from now on."""
        from loopgrad.codegen.targets.gpu import compile  # late: only where there is a judge

        picklable()

        own = compile._Kernels.own

        def looked_at(kernels: Any, kernel: Any, *arguments: Any) -> int:
            if self.interesting(kernel, *arguments):
                self.look(kernel, *arguments)
            return own(kernels, kernel, *arguments)

        compile._Kernels.own = looked_at  # type: ignore[method-assign]

    def interesting(self, kernel: Any, fast: bool, shape: Any) -> bool:
        """Whether it has new features, is one of the sample, or is written for whole workgroups; but for those with
        matrices of subgroups, which nobody's LLVM has."""
        from loopgrad.codegen.targets.gpu.lanes.matrix_plan import MatrixProduct  # late, as above

        if isinstance(shape.product, MatrixProduct):
            return False
        new = features(kernel, fast, shape)
        if new <= self.met and shape.program is None and self.random.random() >= SAMPLE:
            return False
        self.met |= new
        return True

    def look(self, kernel: Any, fast: bool, shape: Any) -> None:
        from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler  # late, as above
        from loopgrad.codegen.targets.llvm_gpu.image import LlvmImage
        from loopgrad.codegen.targets.nvptx.assembler import NvptxAssembler
        from loopgrad.codegen.targets.nvptx.flavour import NVPTX
        from loopgrad.codegen.targets.nvptx.target import GROUP

        assembler = NvptxAssembler if for_nvidia_alone(shape) else LlvmAssembler
        image = LlvmImage(NVPTX, lambda _: (b"", {}), GROUP, assembler)
        image.add(kernel, fast, shape)
        self.keep(image._functions[0], list(image._declarations[-1]), (kernel, fast, shape))

    def keep(self, function: str, declarations: list[str], given: tuple[Any, ...]) -> None:
        digest = hashlib.blake2b(function.encode(), digest_size=16).hexdigest()
        if digest in self.known:
            return
        self.known.add(digest)
        if not gained(function, sampled(digest), self.seen):
            return
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        self.put(f"{digest}.pickle", pickle.dumps(given))
        self.put(f"{digest}.json", json.dumps([function, declarations, test, for_nvidia_alone(given[-1])]).encode())

    def put(self, name: str, content: bytes) -> None:
        part = self.folder / f"{name}.{os.getpid()}"
        part.write_bytes(content)
        part.rename(self.folder / name)

    def chosen(self) -> list[Emitted]:
        """What the workers kept, less what the kernels of others cover."""
        covered: set[str] = set()
        kept = []
        files = sorted(self.folder.glob("*.json"), key=lambda file: file.stat().st_size)
        for file in files:
            function, declarations, test, units = json.loads(file.read_text())
            anyway = sampled(file.name)
            if gained(function, anyway, covered):
                kept.append((Emitted(function, declarations, file.with_suffix(".pickle"), test, units), anyway))
        return needed(kept)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        chosen = self.chosen()
        self.count = len(chosen)
        if chosen:
            with ThreadPoolExecutor(len(self.judges)) as pool:
                found = pool.map(lambda judge: judge.judge(chosen, self.folder), self.judges)
                self.verdicts = dict(zip([judge.name for judge in self.judges], found, strict=True))
        if any(self.verdicts.values()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for name, rejected in self.verdicts.items():
            terminalreporter.write_line(f"{name}: {self.count} kernels, {'rejected' if rejected else 'accepted'}")
            for text in rejected:
                terminalreporter.write_line(text, red=True)


def for_nvidia_alone(shape: Any) -> bool:
    """Whether it needs matrix units, or workgroups that wait for others."""
    return bool(shape.matrix_units or (shape.running is not None and shape.running.chained))


def picklable() -> None:
    """Let kernels be pickled."""
    from loopgrad.graph.types import DType, dtype_named  # late, as above

    copyreg.pickle(MappingProxyType, lambda view: (_frozen, (dict(view),)))  # type: ignore[arg-type]
    copyreg.pickle(DType, lambda dtype: (dtype_named, (dtype.name,)))  # there is one of each


def _frozen(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)


def start(config: pytest.Config, judges: Sequence[Judge]) -> None:
    if not judges:
        return
    if FOLDER_VARIABLE not in os.environ:
        folder = os.environ[FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="loopgrad-kernels-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop(FOLDER_VARIABLE, None))
    kernels = Kernels(Path(os.environ[FOLDER_VARIABLE]), judges)
    kernels.watch()
    config.pluginmanager.register(kernels)
