"""What is known of a kernel's values before code is written for them.

`forms[v]` says how v depends on the lane: a tuple of coefficients over the lane dims' indices where v is
uniform + sum(coefficient * index) (all zero: uniform), or None where it varies otherwise. A load at an
index of known form is a scalar load, a plain vector load or a gather accordingly. Forms are exact modulo
2**64, as int64 arithmetic is. They are found by an optimistic fixpoint: loop carries start uniform.

A varying int64 that fits 32 bits (see codegen.kernel.ranges) is computed in 32-bit lanes (`narrow`).
"""

from __future__ import annotations

from math import prod

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.kernel.ranges import Ranges
from loopgrad.codegen.targets.cpu.vector.lanes import LaneLayout

Form = tuple[int, ...] | None


class Analysis:
    """Forms and ranges of a kernel under a layout."""

    def __init__(self, kernel: Kernel, layout: LaneLayout) -> None:
        self.kernel = kernel
        self.layout = layout
        self.forms: dict[KValue, Form] = {}
        self.ranges = Ranges(kernel)
        self.zero: Form = (0,) * (0 if layout.single else len(layout.lane))
        self.body(kernel.body)
        if kernel.order_key is not None:
            self.body(kernel.order_key)

    # -- questions

    def uniform(self, v: KValue) -> bool:
        return self.forms[v] == self.zero

    def narrow(self, v: KValue) -> bool:
        """Whether v's lanes are kept in 32 bits although its dtype has 64."""
        return v.dtype.kind == "i" and v.dtype.bits == 64 and not self.uniform(v) and self.ranges.fits_int32(v)

    def lane_stride(self, form: Form) -> int | None:
        """s where the form equals s * linear lane index + uniform; None where it doesn't."""
        if form is None:
            return None
        dims = self.layout.lane
        if not any(form):
            return 0
        strides = [max(prod(dims[i + 1 :]), 1) for i in range(len(dims))]
        step = next((c // s for c, s, d in zip(form, strides, dims, strict=True) if d > 1), 0)
        same = [c == step * s or d == 1 for c, s, d in zip(form, strides, dims, strict=True)]
        return step if all(same) else None

    # -- the walk

    def body(self, block: Block) -> None:
        outer, lane = len(self.layout.outer), len(self.layout.lane)
        for i, argument in enumerate(block.arguments):
            position = i - outer
            inside = 0 <= position < lane and not self.layout.single
            self.forms[argument] = tuple([int(j == position) for j in range(lane)]) if inside else self.zero
        self.block(block)

    def block(self, block: Block) -> None:
        for op in block.ops:
            if op.opcode == "for":
                self.for_loop(op)
            elif op.opcode == "while":
                self.while_loop(op)
            elif op.opcode == "if":
                self.branch(op)
            else:
                self.simple(op)

    def simple(self, op: KOp) -> None:
        if not op.results:
            return
        result = op.results[0]
        uniform = all(self.uniform(v) for v in op.operands)
        if op.opcode in ("pop", "array_load"):
            uniform = self.layout.single
        self.forms[result] = self.zero if uniform else None
        if result.dtype.is_integer and not uniform:
            self.forms[result] = self.result_form(op, result)

    def result_form(self, op: KOp, result: KValue) -> Form:
        forms = [self.forms[v] for v in op.operands]
        name = op.opcode
        if name in ("min", "max"):
            pick = self.settled(op)
            return None if pick is None else self.forms[pick]
        if not forms or None in forms or result.dtype.kind != "i" or result.dtype.bits < 32:
            return None
        if result.dtype.bits == 32 and not self.ranges.exact(op):
            return None
        a = forms[0] or ()
        if name in ("add", "sub") and len(forms) == 2:
            sign = 1 if name == "add" else -1
            return tuple([x + sign * y for x, y in zip(a, forms[1] or (), strict=True)])
        if name == "mul":
            for one, other in ((0, 1), (1, 0)):
                factor = self.ranges.constant(op.operands[one])
                if factor is not None:
                    return tuple([factor * c for c in forms[other] or ()])
            return None
        if name == "neg":
            return tuple([-c for c in a])
        if name in ("alias", "stop_gradient"):
            return a
        if name == "cast" and op.operands[0].dtype.is_integer and self.ranges.exact(op):
            return a
        return None

    def settled(self, op: KOp) -> KValue | None:
        """The operand that a min or max always gives (a clamp that can't bind)."""
        a, b = op.operands
        (al, ah), (bl, bh) = self.ranges.of(a), self.ranges.of(b)
        if op.opcode == "min":
            return a if ah <= bl else b if bh <= al else None
        return a if al >= bh else b if bl >= ah else None

    # -- control

    def join(self, a: Form, b: Form) -> Form:
        return a if a == b else None

    def carries(self, arguments: tuple[KValue, ...], inits: tuple[KValue, ...]) -> None:
        for argument, init in zip(arguments, inits, strict=True):
            self.forms[argument] = self.forms[init]

    def settle(self, body: Block, arguments: tuple[KValue, ...], varying: bool) -> bool:
        """Join the yields into the carries; whether anything changed."""
        changed = False
        for argument, value in zip(arguments, body.yields, strict=True):
            form = self.forms[argument]
            wanted = form if value is argument else None if varying else self.join(form, self.forms[value])
            if wanted != form:
                self.forms[argument] = wanted
                changed = True
        return changed

    def for_loop(self, op: KOp) -> None:
        (body,) = op.blocks
        count, inits = op.operands[0], op.operands[1:]
        k, arguments = body.arguments[0], body.arguments[1:]
        self.carries(arguments, inits)
        self.forms[k] = self.zero
        varying = not self.uniform(count)
        while True:
            self.block(body)
            if not self.settle(body, arguments, varying):
                break
        for r, argument in zip(op.results, arguments, strict=True):
            self.forms[r] = self.forms[argument]

    def while_loop(self, op: KOp) -> None:
        cond, body = op.blocks
        self.carries(body.arguments, op.operands)
        varying = False
        while True:
            for c, b in zip(cond.arguments, body.arguments, strict=True):
                self.forms[c] = self.forms[b]
            self.block(cond)
            varying = varying or not self.uniform(cond.yields[0])
            self.block(body)
            if not self.settle(body, body.arguments, varying):
                break
        for r, argument in zip(op.results, body.arguments, strict=True):
            self.forms[r] = self.forms[argument]

    def branch(self, op: KOp) -> None:
        then, other = op.blocks
        self.block(then)
        self.block(other)
        uniform = self.uniform(op.operands[0])
        for r, a, b in zip(op.results, then.yields, other.yields, strict=True):
            joined = self.join(self.forms[a], self.forms[b])
            self.forms[r] = joined if uniform or a is b else None
