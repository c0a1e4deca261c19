"""spirv-val for modules that no device sees."""

from __future__ import annotations

import shutil
import subprocess

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.targets.gpu.record import ProgramRecord


def validate(artifact: Artifact[ProgramRecord]) -> None:
    """Every module passes spirv-val, where that is installed."""
    validator = shutil.which("spirv-val")
    if validator is None:
        return
    for module in artifact.program.modules:
        code = artifact.code[module.offset : module.offset + module.size]
        run = subprocess.run([validator, "--target-env", "vulkan1.2", "-"], input=code, capture_output=True)
        assert run.returncode == 0, f"{module.name}: {run.stderr.decode()}{run.stdout.decode()}"
