"""The LLVM assembler without tables in memory: their addresses would need `s_getpc` and relocations."""

from __future__ import annotations

from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.llvm_gpu.assembler import LlvmAssembler


class AmdgpuAssembler(LlvmAssembler):
    """Implements codegen.targets.gpu.assembler.Assembler."""

    def lookup(self, type: str, values: tuple[int, ...], index: Val) -> Val:
        """A tree of selects by the bits of the index; values stay in the code."""
        level = [self.const(type, value) for value in values]
        bit = 0
        while len(level) > 1:
            mask = self.const(index.type, 1 << bit)
            odd = self.inst(
                "INotEqual", "bool", self.inst("BitwiseAnd", index.type, index, mask), self.const(index.type, 0)
            )
            pairs = zip(level[::2], [*level[1::2], *level[-1:]], strict=False)
            level = [x if x == y else self.inst("Select", type, odd, y, x) for x, y in pairs]
            bit += 1
        return level[0]
