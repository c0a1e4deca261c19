"""Kernels whose lanes read elements that lie side by side in rows, but not one row behind the other: in loops, as sums
over an axis that isn't the last do, or moved, repeated and joined.

    domain (N, C):  for k:  x[(n * K + k) * C + c]          domain (N, 3, C):  x[n * C + c]

In one line of lanes a vector reaches into the next row, and what it reads is gathered, in each trip. Where lanes are in
rows, a row's number is one for all, and what is read is a vector, though a row's last one may be mostly empty. So are
rows of a table whose numbers are read: those are one for all as well.

    domain (N, 4):  table[rows[n] * 4 + c]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.opcodes import OPCODES

TRIPS = 16  # that a loop counts for
GATHERED = 60  # cost of a vector's elements one by one, and of where they are (three times that of an exponential)

Factors = tuple[int | None, ...]
"""By how much an index grows along each dim of the domain; None where that is no number."""


def read_rows(kernel: Kernel, width: int, groups: int) -> tuple[int, int, int] | None:
    """From which dim on the domain is a row of lanes, and of how many lanes and vectors; None for all in one line, or
    where as many lanes as move together fit into the last dim."""
    ordered = kernel.reductions or kernel.running is not None or kernel.order_key is not None or kernel.stacks
    if ordered or len(kernel.domain) < 2 or width == 1 or 0 in kernel.domain or kernel.domain[-1] >= width * groups:
        return None
    reads = [(form, times) for form, times in _reads(kernel) if not _lies_in_order(form, kernel.domain)]
    work, best, found = _work(kernel.body), 0.0, None
    for cut in range(len(kernel.domain) - 1, 0, -1):
        row, lanes = prod(kernel.domain[cut:]), kernel.domain[cut:]
        narrow = min(width, 1 << (row - 1).bit_length())
        vectors = -(-row // narrow)
        near = [times for form, times in reads if form[-1] in (0, 1) and _lies_in_order(form[cut:], lanes)]
        saved = GATHERED * sum(near) - (vectors * width / row - 1) * work
        if saved > 0 and saved >= best:
            best, found = saved, (cut, narrow, _divisor(vectors, groups))
    return found


def reads_tables(kernel: Kernel) -> bool:
    """Whether rows are read whose numbers are only known when they are, so by no pattern of lanes."""
    return len(kernel.domain) > 1 and any(form[-1] == 1 and None in form for form, _ in _reads(kernel))


def _divisor(vectors: int, most: int) -> int:
    """The largest power of two that divides the vectors, at most so large."""
    return min(vectors & -vectors, most)


def _lies_in_order(form: Factors, extents: tuple[int, ...]) -> bool:
    """Whether an index grows by the same from each lane to the next."""
    wide = [(factor, n) for factor, n in zip(form, extents, strict=True) if n != 1]
    if any(factor is None for factor, _ in wide):
        return False
    return all(f == (g or 0) * n for (f, _), (g, n) in pairwise(wide))


def _work(block: Block) -> int:
    """A rough cost of what is computed of data per lane; positions are one number for all."""
    total = 0
    for op in block.ops:
        total += OPCODES[op.opcode].cost * any(r.dtype.is_float for r in op.results)
        total += sum([_work(inner) for inner in op.blocks]) * (TRIPS if op.opcode in ("for", "while") else 1)
    return total


def _reads(kernel: Kernel) -> Iterator[tuple[Factors, int]]:
    """How the indices of what is read and written grow, and how often each is done."""
    rank = len(kernel.domain)
    forms: dict[KValue, Factors] = {
        argument: tuple([int(i == d) for i in range(rank)]) for d, argument in enumerate(kernel.body.arguments)
    }
    constants: dict[KValue, int] = {}

    def within(block: Block, times: int) -> Iterator[tuple[Factors, int]]:
        for op in block.ops:
            form = _form(op, [forms[v] for v in op.operands], constants, rank)
            forms.update(dict.fromkeys(op.results, form))
            if op.opcode in ("load", "store"):
                yield forms[op.operands[0]], times
            for inner in op.blocks:
                counted = op.opcode == "for"
                for i, argument in enumerate(inner.arguments):
                    forms[argument] = ((0 if counted and i == 0 else None),) * rank
                yield from within(inner, times * (TRIPS if op.opcode in ("for", "while") else 1))

    yield from within(kernel.body, 1)


def _form(op: KOp, operands: list[Factors], constants: dict[KValue, int], rank: int) -> Factors:
    """How the result of an operation grows: it stays along dims along which no operand grows, what is read as well."""
    if op.opcode == "const" and op.results and op.results[0].dtype.is_integer:
        constants[op.results[0]] = op.attrs["value"]
    if op.blocks:
        return (None,) * rank
    along = list(zip(*operands, strict=True)) or [()] * rank
    if op.opcode in ("add", "sub"):
        sign = 1 if op.opcode == "add" else -1
        return tuple([None if None in pair else pair[0] + sign * pair[1] for pair in along])
    if op.opcode == "mul":
        for value, form in zip(op.operands, reversed(operands), strict=True):
            if value in constants:
                return tuple([None if f is None else constants[value] * f for f in form])
    return tuple([None if any(f != 0 for f in factors) else 0 for factors in along])
