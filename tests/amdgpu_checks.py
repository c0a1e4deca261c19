"""Every kernel that tests emit (emitted_kernels) as AMD code: emitted and linked for one of three GPUs in turn, for
each of them where every kernel is asked for (LOOPGRAD_TEST_SAMPLE=1).

What is checked of each: LLVM generates code (a process of its own does it, since LLVM ends the process
otherwise), the linker here takes the object, arguments and descriptor are those that launches rely on, no table
of constants is left; and the linked object equals that of ld.lld -shared in all that is loaded, where Debian's
lld-19 is installed.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.emitted_kernels import SAMPLE, Emitted

PROCESSORS = ("gfx90a", "gfx942", "gfx1100")
BATCH = 36  # kernels of a module
DESCRIPTOR = 64  # bytes


class AmdCompiler:
    """Implements emitted_kernels.Judge."""

    name = f"code objects for {', '.join(PROCESSORS)}"

    def judge(self, kernels: Sequence[Emitted], folder: Path) -> list[str]:
        kernels = [kernel for kernel in kernels if not kernel.nvidia_alone]  # there are none that code is made for
        shares = [kernels[k :: len(PROCESSORS)] if SAMPLE < 1 else kernels for k in range(len(PROCESSORS))]
        work = [
            (processor, share[first : first + BATCH], folder)
            for processor, share in zip(PROCESSORS, shares, strict=True)
            for first in range(0, len(share), BATCH)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [text for text in pool.map(lambda one: compiled(*one), work) if text]


def compiled(processor: str, kernels: Sequence[Emitted], folder: Path) -> str:
    """What went wrong, "" if nothing."""
    files = [str(kernel.given) for kernel in kernels]
    command = [sys.executable, "-m", "tests.amdgpu_checks", processor, str(folder), *files]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if run.returncode == 0:
        return ""
    names = "\n".join(f"k{number}: emitted by {kernel.test}" for number, kernel in enumerate(kernels))
    return f"{processor}: {run.stdout}{run.stderr[-4000:]}\n{names}"


def main(processor: str, folder: Path, files: Sequence[str]) -> None:
    from loopgrad.codegen.targets.amdgpu import elf
    from loopgrad.codegen.targets.amdgpu.code_object import check
    from loopgrad.codegen.targets.amdgpu.linker import link
    from loopgrad.codegen.targets.amdgpu.target import AmdgpuImage, relocatable

    image = AmdgpuImage(processor, listing=False)
    for file in files:
        image.add(*pickle.loads(Path(file).read_bytes()))
    data = relocatable(image.text(), processor)
    code = link(data)
    check(code, [f"k{number}" for number in range(len(files))])
    constants = elf.read(code).section(".rodata")
    assert constants is not None
    assert constants.size == DESCRIPTOR * len(files), f"{constants.size} bytes of read-only data: tables"
    lld = shutil.which("ld.lld-19")
    if lld is not None:
        compare(code, data, folder / f"{os.getpid()}.o", lld)


def compare(code: bytes, data: bytes, path: Path, lld: str) -> None:
    """That lld links the object to the same sections and segments."""
    from loopgrad.codegen.targets.amdgpu import elf

    path.write_bytes(data)
    linked = path.with_suffix(".so")
    subprocess.run([lld, "-shared", path, "-o", linked], check=True)
    ours, theirs = elf.read(code), elf.read(linked.read_bytes())
    for one, other in zip(loaded(ours), loaded(theirs), strict=True):
        assert one == other, f"section {one[0]} differs from {other[0]} of lld"
    assert ours.segments == theirs.segments
    assert ours.dynamic == theirs.dynamic
    assert (ours.ident, ours.flags) == (theirs.ident, theirs.flags)
    path.unlink()
    linked.unlink()


def loaded(file: object) -> list[tuple[object, ...]]:
    from loopgrad.codegen.targets.amdgpu import elf

    assert isinstance(file, elf.Elf)
    return [
        (s.name, s.type, s.flags & ~elf.MERGE, s.address, s.offset, s.size, s.alignment, s.content)
        for s in file.sections
        if s.flags & elf.ALLOC
    ]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
