"""The straight part of a kernel that also loops, where neither has anything to do with the other.

    y[i] = x[i] / n;  s[i] = sum over k of p[k, i]      y[i] = x[i] / n     and     s[i] = sum over k of p[k, i]

Values of as many lanes come into one kernel whether they belong together or not (of a square matrix the sums of rows
and those of columns, for example). What is straight may then be a stage over rows, if it is by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.targets.gpu.lanes.analysis import straight


class KernelPart(NamedTuple):
    """A kernel that has all parameters still, and those of them that it touches."""

    kernel: Kernel
    params: list[int]


def straight_part(kernel: Kernel) -> tuple[KernelPart, KernelPart] | None:
    """What is straight, and the rest; None where that is one of them alone, or they share more than indices."""
    special = kernel.stages or kernel.stacks or kernel.errors or kernel.arrays or kernel.reductions
    if straight(kernel) or special or kernel.running is not None or kernel.order_key is not None:
        return None
    makers = {result: op for op in kernel.body.ops for result in op.results}
    plain, rest = set[KOp](), set[KOp]()
    for op in kernel.body.ops:
        if any(OPCODES[inner.opcode].needed for inner in [op, *_inside(op)]):
            needed = _needs(op, makers)
            (rest if any(made.blocks for made in needed) else plain).update(needed)
    both = _params(plain) & _params(rest)
    if not plain or not rest or not all(map(_is_index, plain & rest)):
        return None
    if any(kernel.params[param].access != "read" for param in both):
        return None
    first, second = (_only(kernel, ops) for ops in (plain, rest))
    return first, second


def _inside(op: KOp) -> Iterable[KOp]:
    return (inner for block in op.blocks for inner in walk(block))


def _needs(op: KOp, makers: dict[KValue, KOp]) -> set[KOp]:
    """The operation, and those of the top block without which it can't be."""
    found, pending = set[KOp](), [op]
    while pending:
        now = pending.pop()
        if now in found:
            continue
        found.add(now)
        used = [v for inner in (now, *_inside(now)) for v in inner.operands]
        used += [v for inner in (now, *_inside(now)) for block in inner.blocks for v in block.yields]
        pending += [makers[v] for v in used if v in makers]
    return found


def _is_index(op: KOp) -> bool:
    whole = all(result.dtype.is_integer for result in op.results)
    return op.opcode == "const" or (whole and op.opcode != "load" and not op.blocks)


def _params(ops: Iterable[KOp]) -> set[int]:
    return {inner.attrs["param"] for op in ops for inner in (op, *_inside(op)) if "param" in inner.attrs}


def _only(kernel: Kernel, ops: set[KOp]) -> KernelPart:
    body = Block(kernel.body.arguments, [op for op in kernel.body.ops if op in ops])
    return KernelPart(replace(kernel, body=body), sorted(_params(ops)))
