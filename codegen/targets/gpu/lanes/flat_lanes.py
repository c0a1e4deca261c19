"""A kernel whose lanes touch their own elements alone, over one dim.

    64 x 1,001 lanes, %k = add(mul(%i, 1001), %j), x[%k]        ->        64,064 lanes, x[%lane]

Where lanes of a row aren't told from others, nobody divides to find a lane's row, and lanes side by side may be of two.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from loopgrad.codegen.kernel.linear_index import linear
from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.passes import dce
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.targets.gpu.lanes.row_layouts import own_element
from loopgrad.graph.types import int64


def flat(kernel: Kernel) -> Kernel:
    """See the module's text; the kernel itself, where its lanes' indices are of more use."""
    if len(kernel.domain) < 2 or kernel.order_key is not None:
        return kernel
    made = dce.run(_Flat(kernel).run())
    arguments = made.body.arguments
    if any(v in arguments[1:] for op in walk(made.body) for v in op.operands):
        return kernel
    return replace(made, domain=(prod(kernel.domain),), body=replace(made.body, arguments=arguments[:1]))


class _Flat(Rebuilder):
    """The kernel with one argument more, the first one: the number of the lane, in place of the sums that it is."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        own = own_element(kernel.domain)
        self.lane = KValue(int64)
        self.own = {value for value, form in linear(kernel).items() if form == own}

    def block(self, block: Block) -> Block:
        made = super().block(block)
        return replace(made, arguments=(self.lane, *made.arguments)) if block is self.kernel.body else made

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        results = self.copy(op, operands)
        return tuple([self.lane if v in self.own else w for v, w in zip(op.results, results, strict=True)])
