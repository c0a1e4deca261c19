"""The kernels of matrix products: a lane for each element, and what goes on with it.

Workgroups that make tiles (see lanes.product_tiles) take of such a kernel only its parameters, which are the factors
and the product, then the epilogue's own; and, where it has one, the epilogue as its body, which loads the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.gpu.lanes.product_results import OUT
from loopgrad.codegen.targets.gpu.lanes.row_stages import WithParams
from loopgrad.codegen.targets.gpu.support.support_kernels import Body
from loopgrad.graph.types import int64


def epilogue_kernel(step: MatmulStep, plain: Kernel, epilogue: Kernel) -> Kernel:
    """The epilogue with the parameters of the `plain` product before its own."""
    assert step.epilogue is not None
    own = [i for i, slot in enumerate(step.epilogue.slots) if slot != step.out]
    places = {i: OUT + 1 + at for at, i in enumerate(own)}
    params = (*plain.params, *[epilogue.params[i] for i in own])
    moved = WithParams(epilogue, params, [places.get(i, OUT) for i in range(len(epilogue.params))]).run()
    return replace(moved, name=f"matmul_{epilogue.name.partition('_')[2]}")


def finished_kernel(step: MatmulStep, plain: Kernel, epilogue: Kernel) -> Kernel:
    """One lane per element of the product, which adds up its terms and goes on."""
    kernel = epilogue_kernel(step, plain, epilogue)
    arguments = tuple([KValue(int64) for _ in kernel.domain])
    body = Body()
    lane = _number(body, arguments, kernel.domain)
    whole = _Summed(plain, dict(zip(plain.body.arguments, (lane,), strict=True)))
    whole.body(plain.body)
    *terms, store = whole.out
    goes_on = _Summed(kernel, dict(zip(kernel.body.arguments, arguments, strict=True)), store.operands[1])
    goes_on.body(kernel.body)
    ops = [*body.ops, *terms, *([store] if step.stored else []), *goes_on.out]
    return replace(kernel, body=Block(arguments, ops))


def _number(body: Body, arguments: Sequence[KValue], domain: Sequence[int]) -> KValue:
    """The lane's, of its indices."""
    lane = body.const(0)
    for argument, extent in zip(arguments, domain, strict=True):
        lane = body.integer("add", body.integer("mul", lane, extent), argument)
    return lane


class _Summed(Rebuilder):
    """Copies a body whose arguments are `bound`, and which doesn't load the product but takes its `total`."""

    def __init__(self, kernel: Kernel, bound: dict[KValue, KValue], total: KValue | None = None) -> None:
        super().__init__(kernel)
        self.env.update(bound)
        self.total = total

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if self.total is not None and op.opcode == "load" and op.attrs["param"] == OUT:
            return (self.total,)
        return self.copy(op, operands)
