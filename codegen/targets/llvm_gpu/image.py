"""All kernels of a Program in one LLVM module: functions k0, k1, ... and one piece of code for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.gpu.emit.kernel import emit_kernel
from loopgrad.codegen.targets.gpu.lanes.analysis import small
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, LaneMapping, many_sums
from loopgrad.codegen.targets.gpu.record import Module
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler
from loopgrad.codegen.targets.llvm_gpu.flavour import Flavour

FAST, SHARED, SORTED, SUMMED, STAGED = 1, 2, 4, 8, 16  # what a kernel is, in bits

SUMMED_INVOCATIONS: Final = 512  # of a multiprocessor, where loops have many sums beside them

Generate = Callable[[str], tuple[bytes, Mapping[str, str]]]


class LlvmImage:
    """Implements codegen.targets.gpu.compile.ImageBuilder. `generate` turns a module's text into code and texts of
    later stages; `group` is the workgroup size."""

    def __init__(
        self, flavour: Flavour, generate: Generate, group: int, assembler: type[LlvmAssembler] = LlvmAssembler
    ) -> None:
        self.flavour, self.generate, self.group, self.assembler = flavour, generate, group, assembler
        self._functions: list[str] = []
        self._kernels: list[tuple[str, int, int]] = []  # name, invocations of a workgroup, bytes that they share
        self._attributes: dict[tuple[int, int, int], int] = {}  # bits, invocations, resident workgroups -> number
        self._declarations: dict[str, None] = {}

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.group, sums_group=self.flavour.summed_group)

    def add(self, kernel: Kernel, fast: bool, plan: LaneMapping) -> None:
        group = plan.group or self.group
        b = self.assembler(self.flavour, f"k{len(self._functions)}", group, fast)
        emit_kernel(kernel, b, fast, plan)
        # lanes of unknown length may be long, and then do with the registers they need; Newton's, which are light, take
        # 1.11 times as long on an H200 where they have as many
        dealt = plan.tiles is not None and plan.tiles.sorted and (not plan.tiles.measured or small(kernel))
        summed = not dealt and (many_sums(kernel) or plan.program is not None)
        bits = FAST * fast | SHARED * (b.shared_bytes > 0) | SORTED * dealt | SUMMED * summed
        bits |= STAGED * bool(plan.resident)
        attributes = self._attributes.setdefault((bits, group, plan.resident), len(self._attributes))
        self._functions.append(f"; {kernel.name}\n" + b.finish(attributes))
        self._kernels.append((kernel.name, group, b.shared_bytes))
        self._declarations.update(b.declarations)

    def text(self) -> str:
        f = self.flavour
        added = {
            FAST: f.fast_attributes,
            SHARED: f.shared_attributes,
            SORTED: f.sorted_attributes,
            SUMMED: f.summed_attributes,
            STAGED: f.staged_attributes,
        }
        extra = {
            number: " ".join([f.attributes, *[text for bit, text in added.items() if bits & bit]]).format(
                group=group, groups=max(SUMMED_INVOCATIONS // group, 1), resident=resident
            )
            for (bits, group, resident), number in self._attributes.items()
        }
        tail = [
            f.declarations,
            *self._declarations,
            *[f"attributes #{number} = {{ {text} }}" for number, text in extra.items()],
            "!0 = !{}",
            '!1 = !{!"branch_weights", i32 2000, i32 1}',
            "",
        ]
        return "\n".join([f'target triple = "{f.triple}"', "", *self._functions, *tail])

    def finish(self) -> tuple[list[Module], bytes, Mapping[str, str]]:
        text = self.text()
        code, later = self.generate(text)
        kernels = enumerate(self._kernels)
        rows = [Module(name, 0, len(code), f"k{i}", group, shared) for i, (name, group, shared) in kernels]
        return rows, code, {"llvm": text, **later}
