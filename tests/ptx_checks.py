"""ptxas, NVIDIA's assembler, sees what tests emit (emitted_kernels): for the oldest and the newest compute
capability that are supported. Left out where the package nvidia-cuda-nvcc isn't installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.emitted_kernels import Emitted

ARCHITECTURES = {"sm_80": 1, "sm_90": 3}  # and how hard they are optimised


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
        from loopgrad.codegen.targets.llvm_gpu.image import LlvmImage  # late: only where there is an assembler
        from loopgrad.codegen.targets.nvptx.flavour import NVPTX
        from loopgrad.codegen.targets.nvptx.target import GROUP, generate

        image = LlvmImage(NVPTX, generate, GROUP)
        for number, kernel in enumerate(kernels):
            image._functions.append(kernel.function.replace("@k0", f"@k{number}"))
            image._declarations.append(dict.fromkeys(kernel.declarations))
        path = folder / "kernels.ptx"
        path.write_bytes(generate(image.text())[0])
        runs = [
            subprocess.Popen(
                [self.ptxas, f"-arch={arch}", f"-O{level}", path, "-o", os.devnull], stderr=subprocess.PIPE, text=True
            )
            for arch, level in ARCHITECTURES.items()
        ]
        said = [(arch, run.communicate()[1], run.returncode) for arch, run in zip(ARCHITECTURES, runs, strict=True)]
        names = "\n".join(f"k{number}: emitted by {kernel.test}" for number, kernel in enumerate(kernels))
        return [f"{arch}: {text}\n{names}" for arch, text, status in said if status]
