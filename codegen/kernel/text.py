"""The text form of a Kernel: one operation a line, blocks indented.

kernel k0 <1000> (p0: float32[1000] read, p1: float32[1] write)
  stack s0: float32 depth p3 "ragged"
  reduction r0: add float32 -> p1 over 1
  body (%0: int64)
    %1 = load %0 {param=0} : float32
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES


class _KernelPrinter:
    def __init__(self) -> None:
        self.names: dict[KValue, str] = {}
        self.lines: list[str] = []

    def name(self, value: KValue) -> str:
        return self.names.setdefault(value, f"%{len(self.names)}")

    def block(self, label: str, block: Block, depth: int) -> None:
        arguments = ", ".join(f"{self.name(v)}: {v.dtype.name}" for v in block.arguments)
        self.lines.append(f"{'  ' * depth}{label} ({arguments})")
        for op in block.ops:
            self.operation(op, depth + 1)
        if block.yields:
            self.lines.append(f"{'  ' * (depth + 1)}yield {', '.join(map(self.name, block.yields))}")

    def operation(self, op: KOp, depth: int) -> None:
        operands = " ".join(map(self.name, op.operands))
        results = ", ".join(map(self.name, op.results))
        types = ", ".join(r.dtype.name for r in op.results)
        left = f"{results} = " if results else ""
        right = f" : {types}" if types else ""
        self.lines.append(f"{'  ' * depth}{left}{op.opcode}{' ' * bool(operands)}{operands}{_attrs(op.attrs)}{right}")
        for label, block in zip(OPCODES[op.opcode].blocks if op.blocks else (), op.blocks, strict=True):
            self.block(label, block, depth + 1)


def _attrs(attrs: Mapping[str, Any]) -> str:
    if not attrs:
        return ""
    return " {" + ", ".join(f"{k}={v!r}" for k, v in sorted(attrs.items())) + "}"


def print_kernel(kernel: Kernel) -> str:
    """The kernel as text; equal kernels give equal text."""
    printer = _KernelPrinter()
    domain = " x ".join(map(str, kernel.domain)) or "one lane"
    params = ", ".join(f"p{i}: {p.dtype.name}[{p.size}] {p.access}" for i, p in enumerate(kernel.params))
    printer.lines.append(f"kernel {kernel.name} <{domain}> ({params})")
    for i, s in enumerate(kernel.stacks):
        depth = "measured" if s.depth_param is None else f"p{s.depth_param}"
        times = f" x {s.elements}" if s.elements > 1 else ""
        printer.lines.append(f'  stack s{i}: {s.dtype.name} depth {depth}{times} "{s.name}"')
    for i, a in enumerate(kernel.arrays):
        printer.lines.append(f"  array a{i}: {a.dtype.name}[{a.size}]")
    for i, r in enumerate(kernel.reductions):
        how = "" if r.shards is None else f" by shards of {r.shards.extent} to {r.shards.roots}"
        how += ", rounded" if r.shards is not None and r.shards.rounded else ""
        printer.lines.append(f"  reduction r{i}: {r.kind} {r.dtype.name} -> p{r.param} over {r.rank}{how}")
    if kernel.running is not None:
        t = kernel.running
        shape, way = "x".join(map(str, t.shape)), " from the end" if t.reverse else ""
        printer.lines.append(f"  running {t.kind} {t.dtype.name} -> p{t.param} along {shape}{way}")
        if t.function is not None:
            types = ", ".join([dtype.name for dtype in t.leaves])
            printer.lines.append(f"    of {types}; {t.taken} taken of {t.function.outputs} of {t.function.rows}")
    for i, e in enumerate(kernel.errors):
        printer.lines.append(f"  error e{i}: {e.kind} {e.message!r}")
    if not kernel.stages:
        printer.block("body", kernel.body, 1)
    if kernel.order_key is not None:
        printer.block("order", kernel.order_key, 1)
    stages = [f"  stage {line}" if not i else f"  {line}" for k in kernel.stages for i, line in enumerate(_lines(k))]
    return "\n".join([*printer.lines, *stages])


def _lines(kernel: Kernel) -> list[str]:
    return print_kernel(kernel).splitlines()
