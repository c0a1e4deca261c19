"""A kernel with a running total, as one whose lanes walk along its rows.

    <outer, extent, inner>                   <outer, inner>
      scan term                       ->       for extent (nothing) do (k, total)
                                                 total + term; store; yield total + term

For targets on which lanes side by side are a vector, and that have no memory of a workgroup for terms.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue, RunningTotal
from loopgrad.codegen.kernel.passes import optimise
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.lower.emitter import KernelBuilder, Part, Position
from loopgrad.codegen.lower.reduction import Fold
from loopgrad.graph.types import int64


def walked(kernel: Kernel) -> Kernel:
    """The same kernel, if it has no running total."""
    return kernel if kernel.running is None else optimise(_Walk(kernel, kernel.running).made())


class _Walk(Rebuilder):
    def __init__(self, kernel: Kernel, running: RunningTotal) -> None:
        super().__init__(kernel)
        self.running, domain = running, kernel.domain
        outer, extent, _ = running.shape
        first = next(d for d in range(len(domain) + 1) if prod(domain[:d]) == outer)
        end = next(d for d in range(first, len(domain) + 1) if prod(domain[first:d]) == extent)
        self.along, self.domain = range(first, end), domain[:first] + domain[end:]
        self.lane = tuple([KValue(int64) for _ in self.domain])
        self.emitter = KernelBuilder(self.lane)

    def made(self) -> Kernel:
        e, running = self.emitter, self.running
        extent = running.shape[1]
        how = Fold(e, running.kind, running.dtype)
        start = how.start()
        k, *carried = e.open((int64, *[v.dtype for v in start]))
        at = e.sub(extent - 1, k) if running.reverse else k
        place = self._bound(at)
        totals = how.add(tuple(carried), self._term())
        e.effect("store", (place, how.result(totals)), (), {"param": running.param})
        dtypes = tuple([v.dtype for v in start])
        e.effect("for", (e.const(extent, int64), *start), dtypes, {"reverse": False}, (e.close(totals),))
        return replace(self.kernel, domain=self.domain, body=e.blocks[0].block, running=None)

    def _bound(self, at: Position) -> KValue:
        """The body's arguments at a position of the lane's row; the element's number."""
        e, domain = self.emitter, self.kernel.domain
        digits: dict[int, Position] = {}
        for d in reversed(self.along):
            if d == self.along[0]:
                digits[d] = at
            else:
                at, digits[d] = e.divmod(at, domain[d])
        others = iter(self.lane)
        points = [digits[d] if d in digits else next(others) for d in range(len(domain))]
        self.env.update(zip(self.kernel.body.arguments, [e.value(p) for p in points], strict=True))
        return e.value(e.linear(tuple([Part(n, p) for n, p in zip(domain, points, strict=True)])))

    def _term(self) -> KValue:
        """The body in the open block, but for its last word."""
        e, body = self.emitter, self.kernel.body
        self.out = e.blocks[-1].block.ops
        self.body(Block(body.arguments, [op for op in body.ops if op.opcode != "scan"]))
        (scan,) = [op for op in body.ops if op.opcode == "scan"]
        return self.env[scan.operands[0]]

    def copy(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        results = super().copy(op, operands)
        self.emitter.depth.update(dict.fromkeys(results, len(self.emitter.blocks) - 1))
        return results
