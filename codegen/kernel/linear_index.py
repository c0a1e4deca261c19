"""Which elements a kernel's lanes touch, where an index is a sum of multiples of the lane's indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue


@dataclass(frozen=True, slots=True)
class Linear:
    """sum of factors[d] * (index along dim d of the domain) + constant. Dims of one element have the factor 0."""

    factors: tuple[int, ...]
    constant: int


def linear(kernel: Kernel) -> dict[KValue, Linear]:
    """The values of the top block that are such sums, in arithmetic that doesn't wrap: indices of arrays don't."""
    rank = len(kernel.domain)
    forms: dict[KValue, Linear] = {}
    for d, argument in enumerate(kernel.body.arguments):
        forms[argument] = Linear(tuple([int(i == d and kernel.domain[d] > 1) for i in range(rank)]), 0)
    for op in kernel.body.ops:
        found = form_of(op, [forms.get(v) for v in op.operands], rank)
        if found is not None:
            forms[op.results[0]] = found
    return forms


def form_of(op: KOp, operands: Sequence[Linear | None], rank: int) -> Linear | None:
    """The sum that an operation makes of such sums, if it is one."""
    if op.opcode == "const" and op.results[0].dtype.is_integer:
        return Linear((0,) * rank, op.attrs["value"])
    if not operands or any(form is None for form in operands):
        return None
    x, *others = [form for form in operands if form is not None]
    for y in others:
        match op.opcode:
            case "add":
                return _sum(x, y, 1)
            case "sub":
                return _sum(x, y, -1)
            case "mul" if not any(y.factors):
                return _sum(Linear((0,) * rank, 0), x, y.constant)
            case "mul" if not any(x.factors):
                return _sum(Linear((0,) * rank, 0), y, x.constant)
    return None


def difference(x: Linear, y: Linear) -> Linear:
    return _sum(x, y, -1)


def _sum(x: Linear, y: Linear, times: int) -> Linear:
    """x + times * y."""
    factors = tuple([a + times * b for a, b in zip(x.factors, y.factors, strict=True)])
    return Linear(factors, x.constant + times * y.constant)


def places(index: Linear, domain: Sequence[int]) -> tuple[int, int]:
    """The smallest and the largest that it is."""
    spans = [f * (n - 1) for f, n in zip(index.factors, domain, strict=True)]
    return index.constant + sum(s for s in spans if s < 0), index.constant + sum(s for s in spans if s > 0)
