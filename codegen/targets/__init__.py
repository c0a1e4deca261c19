"""Targets: each turns a Program into an Artifact (machine code and what its runtime must know).

`TARGETS` names, per kind of device, the module whose `compile_program(program, options)` does it; the
module is imported by whoever compiles, since a device that isn't used shouldn't cost its import.
"""

from __future__ import annotations

from typing import Final

TARGETS: Final[dict[str, str]] = {"cpu": "loopgrad.codegen.targets.cpu.target"}
