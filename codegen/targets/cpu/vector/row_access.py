"""Kernels that read or change whole rows of a table at positions that data gives: `table[index]` and its gradient.

    domain (N, 8):  table[8 * position[i] + j]

Laid over lanes as one line of N * 8, such an address varies freely, and each lane needs an access of its own. With
vectors along j it is a vector at a scalar address.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Kernel, KValue
from loopgrad.graph.types import integer

SHORTEST = 4  # columns that are worth a vector
SAVED = {"load": 15, "accumulate": 60}  # roughly, of the cost of a vector's accesses lane by lane


def row_accesses(kernel: Kernel) -> int:
    """What accesses to whole rows along the last dim save as vectors, in units of cost; 0 where there are none."""
    domain, body = kernel.domain, kernel.body
    plain = len(domain) >= 2 and kernel.order_key is None and not any(op.blocks for op in body.ops)
    whole = all(r.rank == len(domain) for r in kernel.reductions)
    if not plain or not whole or domain[-1] < SHORTEST:
        return 0
    last = body.arguments[len(domain) - 1]
    # how often each value counts the last index, None where that varies; and whether data is in it
    forms: dict[KValue, tuple[int | None, bool]] = {a: (int(a is last), False) for a in body.arguments}
    constants: dict[KValue, int] = {}
    saved = 0
    for op in body.ops:
        if op.opcode in SAVED and forms[op.operands[0]] == (1, True):
            saved += SAVED[op.opcode]
        if not op.results:
            continue
        result = op.results[0]
        if op.opcode == "const" and result.dtype.is_integer:
            constants[result] = integer(op.attrs["value"])
        counts = [forms[v][0] for v in op.operands]
        data = op.opcode == "load" or any(forms[v][1] for v in op.operands)
        forms[result] = (_count(op.opcode, op.operands, counts, constants), data)
    return saved


def _count(
    opcode: str, operands: tuple[KValue, ...], counts: list[int | None], constants: dict[KValue, int]
) -> int | None:
    if all(count == 0 for count in counts):
        return 0
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    if opcode == "add":
        return sum(known)
    if opcode == "mul":
        for one, other in ((0, 1), (1, 0)):
            if operands[one] in constants:
                return constants[operands[one]] * known[other]
    return known[0] if opcode == "cast" and operands[0].dtype.is_integer else None
