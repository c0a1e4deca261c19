"""Program -> Artifact: one SPIR-V module per kernel and support kernel, one after the other in `code`."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.kernel.text import print_kernel
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.program import Program
from loopgrad.codegen.targets.spirv.features import Features
from loopgrad.codegen.targets.spirv.kernel import emit_kernel
from loopgrad.codegen.targets.spirv.layout import interface, sharing
from loopgrad.codegen.targets.spirv.listing import listing
from loopgrad.codegen.targets.spirv.metadata import describe

FULL: Final = Features()


class _Modules:
    """Each different module once."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.codes: list[bytes] = []
        self.names: list[str] = []
        self._known: dict[str, int] = {}

    def append(self, name: str, code: bytes) -> int:
        self.codes.append(code)
        self.names.append(name)
        return len(self.codes) - 1

    def support(self, kernel: Kernel) -> int:
        text = print_kernel(kernel)
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self.append(kernel.name, emit_kernel(kernel, self.features))
        return known

    def table(self) -> list[dict[str, Any]]:
        rows, offset = [], 0
        for name, code in zip(self.names, self.codes, strict=True):
            rows.append({"name": name, "offset": offset, "size": len(code)})
            offset += len(code)
        return rows


def compile_program(program: Program, options: Any, features: Features = FULL) -> Artifact:
    """Everything a Vulkan device with these features needs to run `program`."""
    modules = _Modules(features)
    interfaces = []
    for kernel in program.kernels:
        verify_kernel(kernel)
        shared = sharing(kernel)
        code = emit_kernel(kernel, features, options.fast_math, shared.copied, ordered=shared.copies > 0)
        interfaces.append(interface(kernel, modules.append(kernel.name, code), shared, modules.support))
    metadata, constants = describe(program, interfaces, modules.support)
    metadata["modules"] = modules.table()
    texts = {
        "kernel": "\n\n".join(map(print_kernel, program.kernels)),
        "spirv": "\n\n".join(
            f"; {name}\n{listing(code)}" for name, code in zip(modules.names, modules.codes, strict=True)
        ),
    }
    return Artifact(metadata, constants, b"".join(modules.codes), texts)
