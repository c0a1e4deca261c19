"""ptxas, NVIDIA's assembler, sees what tests emit (emitted_kernels): for the oldest and the newest compute
capability that are supported, or for the one that has a kernel's instructions. Left out where the package
nvidia-cuda-nvcc isn't installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.emitted_kernels import Emitted

# of kernels for one architecture or later ones, for which they are assembled, and how hard they are optimised
ARCHITECTURES = {"sm_80": {"sm_80": 1, "sm_90": 3}, "sm_90a": {"sm_90a": 3}}


def assembler() -> Path | None:
    """ptxas of PyPI's nvidia-cuda-nvcc, or the one on PATH."""
    found = sorted(path for root in sys.path for path in Path(root).glob("nvidia/*/bin/ptxas"))
    on_path = shutil.which("ptxas")
    return found[-1] if found else Path(on_path) if on_path else None


class PtxAssembler:
    """Implements emitted_kernels.Judge."""

    name = "ptxas"

    def __init__(self, ptxas: Path) -> None:
        self.ptxas = ptxas

    def judge(self, kernels: Sequence[Emitted], folder: Path) -> list[str]:
        from loopgrad.codegen.targets.nvptx.target import needed  # late: only where there is an assembler

        said = []
        for oldest, architectures in ARCHITECTURES.items():
            some = [kernel for kernel in kernels if needed(kernel.function) == oldest]
            said += self._judged(some, oldest, architectures, folder) if some else []
        return said

    def _judged(
        self, kernels: Sequence[Emitted], oldest: str, architectures: Mapping[str, int], folder: Path
    ) -> list[str]:
        from loopgrad.codegen.targets.llvm_gpu.image import LlvmImage  # late, as above
        from loopgrad.codegen.targets.nvptx.flavour import NVPTX
        from loopgrad.codegen.targets.nvptx.target import GROUP, generate

        image = LlvmImage(NVPTX, generate, GROUP)
        for number, kernel in enumerate(kernels):
            texts = (kernel.function, *kernel.declarations)
            function, *declarations = [text.replace("@k0", f"@k{number}") for text in texts]
            image._functions.append(function)
            image._declarations.append(dict.fromkeys(declarations))
        path = folder / f"kernels.{oldest}.ptx"
        path.write_bytes(generate(image.text(), oldest)[0])
        runs = [
            subprocess.Popen(
                [self.ptxas, f"-arch={arch}", f"-O{level}", path, "-o", os.devnull], stderr=subprocess.PIPE, text=True
            )
            for arch, level in architectures.items()
        ]
        said = [(arch, run.communicate()[1], run.returncode) for arch, run in zip(architectures, runs, strict=True)]
        names = "\n".join(f"k{number}: emitted by {kernel.test}" for number, kernel in enumerate(kernels))
        return [f"{arch}: {text}\n{names}" for arch, text, status in said if status]
