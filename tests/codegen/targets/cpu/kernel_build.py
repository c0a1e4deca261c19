"""Writing kernels by hand, briefly."""

from __future__ import annotations

from contextlib import contextmanager

from loopgrad.codegen.kernel.nodes import Block, BufferParam, ErrorSite, Kernel, KOp, KValue, Reduction, StackSlot
from loopgrad.graph.types import bool_, int64


class Build:
    """Parameters are added as they are used; `kernel` closes the body."""

    def __init__(self, *domain: int) -> None:
        self.domain = domain
        self.indices = tuple([KValue(int64) for _ in domain])
        self.ops: list[KOp] = []
        self.params: list[BufferParam] = []
        self.stacks: list[StackSlot] = []
        self.reductions: list[Reduction] = []
        self.errors: list[ErrorSite] = []
        self.order_key: Block | None = None

    def param(self, dtype, size, access="read"):
        self.params.append(BufferParam(dtype, size, access))
        return len(self.params) - 1

    def op(self, opcode, operands, dtypes, blocks=(), **attrs):
        made = KOp(opcode, tuple(operands), tuple(dtypes), attrs, tuple(blocks))
        self.ops.append(made)
        return made.results

    def one(self, opcode, operands, dtype=None, **attrs):
        return self.op(opcode, operands, (dtype or operands[0].dtype,), **attrs)[0]

    def const(self, value, dtype):
        return self.one("const", (), dtype, value=value)

    def load(self, param, index):
        return self.one("load", (index,), self.params[param].dtype, param=param)

    def store(self, param, index, value):
        self.op("store", (index, value), (), param=param)

    def accumulate(self, param, index, value, kind="add", exclusive=False, pred=None):
        pred = pred if pred is not None else self.const(True, bool_)
        self.op("accumulate", (index, value, pred), (), param=param, kind=kind, exclusive=exclusive)

    def linear(self):
        """The row-major index of the lane."""
        total = self.const(0, int64)
        for index, size in zip(self.indices, self.domain, strict=True):
            total = self.one("add", (self.one("mul", (total, self.const(size, int64))), index))
        return total

    def stack(self, dtype):
        self.stacks.append(StackSlot(dtype, None, f"s{len(self.stacks)}", None))
        return len(self.stacks) - 1

    def reduce(self, value, param, kind="add", rank=None):
        self.reductions.append(Reduction(kind, value.dtype, param, len(self.domain) if rank is None else rank))
        self.op("reduce", (value,), (), slot=len(self.reductions) - 1)

    @contextmanager
    def block(self, *arguments):
        """A Block under construction; set `yields` before leaving."""
        made = Block(tuple(arguments))
        outer, self.ops = self.ops, made.ops
        yield made
        self.ops = outer

    def loop(self, count, inits, body, reverse=False):
        """body(k, *carries) -> carries."""
        k, carries = KValue(count.dtype), [KValue(v.dtype) for v in inits]
        with self.block(k, *carries) as made:
            made.yields = tuple(body(k, *carries))
        return self.op("for", (count, *inits), [v.dtype for v in inits], (made,), reverse=reverse)

    def while_loop(self, inits, cond, body, **attrs):
        conditions, carries = ([KValue(v.dtype) for v in inits] for _ in range(2))
        with self.block(*conditions) as test:
            test.yields = (cond(*conditions),)
        with self.block(*carries) as made:
            made.yields = tuple(body(*carries))
        attrs = {"max_steps": None, **attrs}
        return self.op("while", inits, [v.dtype for v in inits], (test, made), **attrs)

    def branch(self, pred, then, other, dtypes):
        blocks = []
        for make in (then, other):
            with self.block() as made:
                made.yields = tuple(make())
            blocks.append(made)
        return self.op("if", (pred,), dtypes, blocks)

    def kernel(self, name="k"):
        return Kernel(
            name, self.domain, tuple(self.params), Block(self.indices, self.ops), tuple(self.stacks),
            tuple(self.reductions), tuple(self.errors), self.order_key,
        )  # fmt: skip
