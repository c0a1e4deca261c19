"""What is known of a kernel's values before code is written for them.

`forms[v]` says how v depends on the lane: a tuple of coefficients over the lane dims' indices where v is
uniform + sum(coefficient * index) (all zero: uniform), or None where it varies otherwise. A load at an
index of known form is a scalar load, a plain vector load or a gather accordingly. Forms are exact modulo
2**64, as int64 arithmetic is. They are found by an optimistic fixpoint: loop carries start uniform.

`ranges[v]` bounds integers; a varying int64 that fits 32 bits is computed in 32-bit lanes (`narrow`).
"""

from __future__ import annotations

from math import prod

from loopgrad.codegen.kernel.nodes import Block, Kernel, KOp, KValue
from loopgrad.codegen.targets.cpu.lanes import LaneLayout
from loopgrad.graph.ranges import limits

Form = tuple[int, ...] | None
Range = tuple[int, int]
INT32: Range = (-(1 << 31), (1 << 31) - 1)
ARITHMETIC = frozenset({"add", "sub", "mul", "min", "max", "neg", "abs", "select", "floordiv", "mod", "rem", "div"})


class Analysis:
    """Forms and ranges of a kernel under a layout."""

    def __init__(self, kernel: Kernel, layout: LaneLayout) -> None:
        self.kernel = kernel
        self.layout = layout
        self.forms: dict[KValue, Form] = {}
        self.ranges: dict[KValue, Range] = {}
        self.constants: dict[KValue, int] = {}
        self.zero: Form = (0,) * (0 if layout.single else len(layout.lane))
        self.body(kernel.body)
        if kernel.order_key is not None:
            self.body(kernel.order_key)

    # -- questions

    def uniform(self, v: KValue) -> bool:
        return self.forms[v] == self.zero

    def fits_int32(self, v: KValue) -> bool:
        low, high = self.ranges[v]
        return INT32[0] <= low and high <= INT32[1]

    def narrow(self, v: KValue) -> bool:
        """Whether v's lanes are kept in 32 bits although its dtype has 64."""
        return v.dtype.kind == "i" and v.dtype.bits == 64 and not self.uniform(v) and self.fits_int32(v)

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
        for i, (argument, size) in enumerate(zip(block.arguments, self.kernel.domain, strict=True)):
            position = i - outer
            inside = 0 <= position < lane and not self.layout.single
            self.forms[argument] = tuple([int(j == position) for j in range(lane)]) if inside else self.zero
            self.ranges[argument] = (0, max(size - 1, 0))
        self.block(block)

    def block(self, block: Block) -> None:
        for op in block.ops:
            for r in op.results:
                if not r.dtype.is_float:
                    self.ranges[r] = limits(r.dtype)
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
        if op.opcode == "pop":
            uniform = self.layout.single
        self.forms[result] = self.zero if uniform else None
        if result.dtype.is_float:
            return
        if result.dtype.is_integer:
            self.ranges[result] = self.result_range(op, result)
            if not uniform and op.opcode in ARITHMETIC | {"cast", "alias", "stop_gradient"}:
                self.forms[result] = self.result_form(op, result)

    def result_form(self, op: KOp, result: KValue) -> Form:
        forms = [self.forms[v] for v in op.operands]
        name = op.opcode
        if name in ("min", "max"):
            pick = self.settled(op)
            return None if pick is None else self.forms[pick]
        if None in forms or result.dtype.kind != "i" or result.dtype.bits < 32:
            return None
        if result.dtype.bits == 32 and not self.exact(op, result):
            return None
        a = forms[0] or ()
        if name in ("add", "sub") and len(forms) == 2:
            sign = 1 if name == "add" else -1
            return tuple([x + sign * y for x, y in zip(a, forms[1] or (), strict=True)])
        if name == "mul":
            for one, other in ((0, 1), (1, 0)):
                factor = self.constants.get(op.operands[one])
                if factor is not None:
                    return tuple([factor * c for c in forms[other] or ()])
            return None
        if name == "neg":
            return tuple([-c for c in a])
        if name in ("alias", "stop_gradient"):
            return a
        if name == "cast" and op.operands[0].dtype.is_integer and self.exact(op, result):
            return a
        return None

    def exact(self, op: KOp, result: KValue) -> bool:
        """Whether the operation can't wrap, so that linearity survives a change of width."""
        low, high = self.mathematical_range(op)
        full = limits(result.dtype)
        return full[0] <= low and high <= full[1]

    def settled(self, op: KOp) -> KValue | None:
        """The operand that a min or max always gives (a clamp that can't bind)."""
        a, b = op.operands
        (al, ah), (bl, bh) = self.ranges[a], self.ranges[b]
        if op.opcode == "min":
            return a if ah <= bl else b if bh <= al else None
        return a if al >= bh else b if bl >= ah else None

    def result_range(self, op: KOp, result: KValue) -> Range:
        if op.opcode == "const":
            value = int(op.attrs["value"])
            self.constants[result] = value
            return value, value
        full = limits(result.dtype)
        low, high = self.mathematical_range(op)
        return (low, high) if full[0] <= low and high <= full[1] else full

    def mathematical_range(self, op: KOp) -> Range:
        """Bounds of the result before wrapping."""
        everything = (-(1 << 70), 1 << 70)
        operands = [v for v in op.operands if not v.dtype.is_float]
        if len(operands) != len(op.operands) or not operands:
            return everything
        ranges = [self.ranges.get(v, limits(v.dtype)) for v in operands]
        (al, ah), (bl, bh) = ranges[0], ranges[-1]
        match op.opcode:
            case "add":
                return al + bl, ah + bh
            case "sub":
                return al - bh, ah - bl
            case "mul":
                corners = [al * bl, al * bh, ah * bl, ah * bh]
                return min(corners), max(corners)
            case "min":
                return min(al, bl), min(ah, bh)
            case "max":
                return max(al, bl), max(ah, bh)
            case "neg":
                return -ah, -al
            case "cast" | "alias" | "stop_gradient":
                return al, ah
            case "select":
                (ml, mh) = ranges[1]
                return min(ml, bl), max(mh, bh)
            case "floordiv" | "div" if bl > 0:
                corners = [al // bl, al // bh, -(-al // bl), -(-al // bh), ah // bl, ah // bh]
                return min(corners), max(corners)
            case "mod" if bl > 0:
                return 0, bh - 1
            case "rem" if bl > 0:
                return (0 if al >= 0 else 1 - bh), bh - 1
            case "and" if al >= 0 or bl >= 0:
                return 0, min([high for low, high in ((al, ah), (bl, bh)) if low >= 0])
            case _:
                return everything

    # -- control

    def join(self, a: Form, b: Form) -> Form:
        return a if a == b else None

    def carries(self, arguments: tuple[KValue, ...], inits: tuple[KValue, ...]) -> None:
        for argument, init in zip(arguments, inits, strict=True):
            self.forms[argument] = self.forms[init]
            if not argument.dtype.is_float:
                self.ranges[argument] = limits(argument.dtype)

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
        self.ranges[k] = (0, max(self.ranges[count][1] - 1, 0))
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
                if not c.dtype.is_float:
                    self.ranges[c] = limits(c.dtype)
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
            if not r.dtype.is_float:
                (al, ah), (bl, bh) = (self.ranges.get(v, limits(v.dtype)) for v in (a, b))
                self.ranges[r] = min(al, bl), max(ah, bh)
