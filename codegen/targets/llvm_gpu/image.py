"""All kernels of a Program as functions k0, k1, ... of one LLVM module, and one piece of code for them; of several
where the target has them compiled side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.gpu.emit.kernel import emit_kernel
from loopgrad.codegen.targets.gpu.lanes.analysis import SMALL, doubles, small, weight
from loopgrad.codegen.targets.gpu.lanes.plan import Geometry, LaneMapping, many_sums
from loopgrad.codegen.targets.gpu.record import Module
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler
from loopgrad.codegen.targets.llvm_gpu.flavour import Flavour
from loopgrad.codegen.targets.llvm_gpu.registers import recipe_registers

FAST, SHARED, SORTED, SUMMED, STAGED, RECIPE = 1, 2, 4, 8, 16, 32  # what a kernel is, in bits

SUMMED_INVOCATIONS: Final = 512  # of a multiprocessor, where loops have many sums beside them

PIECE: Final = 1 << 16  # characters of a module that is compiled beside others

Generate = Callable[[str], tuple[bytes, Mapping[str, str]]]


class LlvmImage:
    """Implements codegen.targets.gpu.compile.ImageBuilder. `generate` turns a module's text into code and texts of
    later stages; `group` is the workgroup size. With a `piece`, modules have at least so many characters of kernels."""

    def __init__(
        self,
        flavour: Flavour,
        generate: Generate,
        group: int,
        assembler: type[LlvmAssembler] = LlvmAssembler,
        piece: int | None = None,
        warpgroups: bool = False,
    ) -> None:
        self.flavour, self.generate, self.group, self.assembler = flavour, generate, group, assembler
        self.piece, self.warpgroups = piece, warpgroups
        self._functions: list[str] = []
        self._kernels: list[tuple[str, int, int, bool]] = []  # name, group, bytes that it shares, whether it asks
        self._attributes: dict[tuple[int, int, int, int], int] = {}  # bits and what they take -> number
        self._declarations: list[dict[str, None]] = []  # what each kernel needs

    @property
    def geometry(self) -> Geometry:
        f = self.flavour
        asked = f.warpgroup_memory if self.warpgroups else f.asked_memory
        return Geometry(
            self.group,
            columns_group=f.columns_group,
            asked_memory=asked,
            sums_group=f.summed_group,
            unit_types=f.unit_types,
            matrices=f.matrices,
            warpgroups=self.warpgroups,
            exchanges=f.exchanges,
            waits=f.waits,
            group_vectors=f.group_vectors,
        )

    def add(self, kernel: Kernel, fast: bool, plan: LaneMapping) -> None:
        group = plan.group or self.group
        b = self.assembler(self.flavour, f"k{len(self._functions)}", group, fast)
        b.asks = plan.asks
        emit_kernel(kernel, b, fast, plan)
        # lanes of unknown length may be long, and then do with the registers they need; Newton's, which are light, take
        # 1.11 times as long on an H200 where they have as many
        dealt = plan.tiles is not None and plan.tiles.sorted and (not plan.tiles.measured or small(kernel))
        summed = not (dealt or plan.resident) and (many_sums(kernel) or plan.program is not None)
        bits = FAST * fast | SHARED * (b.shared_bytes > 0) | SORTED * dealt | SUMMED * summed
        # several heavy lanes of doubles at once take more, and one workgroup alone then waits for memory: prices of
        # options with derivatives take 1.3 times as long on an H200 with 158 registers as with fewer than 128
        lanes = plan.tiles.unrolled if plan.tiles is not None and not (dealt or plan.resident) else 1
        bits |= SUMMED * (lanes > 1 and doubles(kernel) and weight(kernel) > SMALL)
        bits |= STAGED * bool(plan.resident)
        registers = 0 if fast or bits else recipe_registers(kernel, plan)
        bits |= RECIPE * bool(registers)
        attributes = self._attributes.setdefault((bits, group, plan.resident, registers), len(self._attributes))
        self._functions.append(f"; {kernel.name}\n" + b.finish(attributes))
        self._kernels.append((kernel.name, group, b.shared_bytes, plan.asks))
        self._declarations.append(b.declarations)

    def text(self, numbers: Iterable[int] | None = None) -> str:
        """The module of these kernels, or of all."""
        f = self.flavour
        numbers = range(len(self._functions)) if numbers is None else numbers
        declared = dict.fromkeys(line for number in numbers for line in self._declarations[number])
        added = {
            FAST: f.fast_attributes,
            SHARED: f.shared_attributes,
            SORTED: f.sorted_attributes,
            SUMMED: f.summed_attributes,
            STAGED: f.staged_attributes,
            RECIPE: f.recipe_attributes,
        }
        extra = {
            number: " ".join([f.attributes, *[text for bit, text in added.items() if bits & bit]]).format(
                group=group, groups=max(SUMMED_INVOCATIONS // group, 1), resident=resident, registers=registers
            )
            for (bits, group, resident, registers), number in self._attributes.items()
        }
        tail = [
            f.declarations,
            *declared,
            *[f"attributes #{number} = {{ {text} }}" for number, text in extra.items()],
            "!0 = !{}",
            '!1 = !{!"branch_weights", i32 2000, i32 1}',
            "",
        ]
        functions = [self._functions[number] for number in numbers]
        return "\n".join([f'target triple = "{f.triple}"', "", *functions, *tail])

    def finish(self) -> tuple[list[Module], bytes, Mapping[str, str]]:
        pieces = self._pieces()
        texts = [self.text(numbers) for numbers in pieces]
        codes, later = self.generated(texts)
        rows, offset = [], 0
        for numbers, code in zip(pieces, codes, strict=True):
            for number in numbers:
                name, group, shared, asks = self._kernels[number]
                asked = shared if asks else 0
                rows.append(Module(name, offset, len(code), f"k{number}", group, shared, asked))
            offset += len(code)
        return rows, b"".join(codes), {"llvm": "\n".join(texts), **later}

    def generated(self, texts: Sequence[str]) -> tuple[list[bytes], Mapping[str, str]]:
        """The code of each module, and the texts of later stages."""
        codes, later = zip(*map(self.generate, texts), strict=True)
        return list(codes), {stage: "\n".join(text[stage] for text in later) for stage in later[0]}

    def _pieces(self) -> list[list[int]]:
        """The numbers of each module's kernels, by the kernels' texts alone: one module at least."""
        pieces: list[list[int]] = [[]]
        size = 0
        for number, function in enumerate(self._functions):
            if self.piece is not None and size >= self.piece:
                pieces.append([])
                size = 0
            pieces[-1].append(number)
            size += len(function) + sum(map(len, self._declarations[number]))
        return pieces
