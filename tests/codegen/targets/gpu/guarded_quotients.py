"""What a reverse trip of Newton's iteration does with its cotangent."""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Block, KValue
from loopgrad.graph.types import bool_, float32
from tests.codegen.targets.cpu.kernel_build import Build


def guarded_quotients() -> Block:
    """(c, x, y) -> x/y * c/y and -c/y, each 0 where c is 0 and it is no number, and x/y."""
    b, arguments = Build(1), tuple([KValue(float32) for _ in range(3)])
    c, x, y = arguments
    zero = b.const(0.0, float32)
    negative = b.one("neg", (c,))
    idle = b.one("eq", (negative, zero), bool_)

    def guarded(v: KValue) -> KValue:
        spoiled = b.one("and", (idle, b.one("is_nan", (v,), bool_)))
        return b.one("select", (spoiled, zero, v), float32)

    slope = b.one("div", (negative, y))
    ratio = b.one("div", (x, y))
    product = b.one("neg", (b.one("mul", (slope, ratio)),))
    return Block(arguments, b.ops, (guarded(product), guarded(slope), ratio))
