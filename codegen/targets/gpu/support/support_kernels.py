"""Small kernels around a program's own, written in the Kernel IR: fills, copies, trees, products.

Each runs one lane per element it makes, so shapes are constants of the code and the results are the same
whatever the device does in parallel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, Reduction
from loopgrad.codegen.math.compensated import added, merged, rounded
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.targets.gpu.lanes.plan import parts
from loopgrad.graph.identities import identity
from loopgrad.graph.types import DTYPES, DType, bool_, int64, sum_dtype

FAN_IN: Final = 64


@dataclass
class Body:
    """A block in the making."""

    ops: list[KOp] = field(default_factory=list)

    def one(self, opcode: str, dtype: DType, *operands: KValue, **attrs: Any) -> KValue:
        made = KOp(opcode, operands, (dtype,), attrs)
        self.ops.append(made)
        return made.results[0]

    def const(self, value: float | int | bool, dtype: DType = int64) -> KValue:
        return self.one("const", dtype, value=value)

    def integer(self, opcode: str, x: KValue, y: KValue | int) -> KValue:
        return self.one(opcode, int64, x, self.const(y) if isinstance(y, int) else y)

    def cast(self, x: KValue, dtype: DType) -> KValue:
        return x if x.dtype is dtype else self.one("cast", dtype, x)

    def store(self, param: int, index: KValue, value: KValue) -> None:
        self.ops.append(KOp("store", (index, value), (), {"param": param}))

    def loop(self, count: KValue, start: tuple[KValue, ...], step: Any) -> tuple[KValue, ...]:
        """start, then step(inner, k, *carried) `count` times."""
        k, carried, inner = KValue(int64), [KValue(v.dtype) for v in start], Body()
        results = step(inner, k, *carried)
        block, dtypes = Block((k, *carried), inner.ops, tuple(results)), tuple([v.dtype for v in start])
        loop = KOp("for", (count, *start), dtypes, {"reverse": False}, (block,))
        self.ops.append(loop)
        return loop.results

    def fold(self, count: KValue, start: KValue, step: Any) -> KValue:
        """As `loop`, with one carried value."""
        (result,) = self.loop(count, (start,), lambda *given: (step(*given),))
        return result

    # for codegen.math.compensated

    def add(self, x: KValue, y: KValue, /) -> KValue:
        return self.one("add", x.dtype, x, y)

    def sub(self, x: KValue, y: KValue, /) -> KValue:
        return self.one("sub", x.dtype, x, y)

    def lt(self, x: KValue, y: KValue, /) -> KValue:
        return self.one("lt", bool_, x, y)

    def either(self, m: KValue, n: KValue, /) -> KValue:
        return self.one("or", bool_, m, n)

    def select(self, m: KValue, x: KValue, y: KValue, /) -> KValue:
        return self.one("select", x.dtype, m, x, y)


def _kernel(name: str, lane: KValue, body: Body, params: tuple[BufferParam, ...], lanes: int) -> Kernel:
    return Kernel(name, (lanes,), params, Block((lane,), body.ops))


def fill_kernel(dtype: DType, value: float | int | bool, lanes: int = 1) -> Kernel:
    """param 0 [lane] = value; of one lane, or of all."""
    lane, body = KValue(int64), Body()
    body.store(0, lane, body.const(value, dtype))
    return _kernel("fill", lane, body, (BufferParam(dtype, lanes, "write"),), lanes)


def copy_kernel(itemsize: int) -> Kernel:
    """param 1 [lane] = param 0 [lane], elements of that many bytes."""
    dtype = DTYPES[f"int{8 * itemsize}"]
    lane, body = KValue(int64), Body()
    body.store(1, lane, body.one("load", dtype, lane, param=0))
    return _kernel("copy", lane, body, (BufferParam(dtype, 1, "read"), BufferParam(dtype, 1, "write")), 1)


def fold_kernel(reduction: Reduction, rows: int, length: int, targets: int, partial: bool) -> Kernel:
    """Every row of param 0 becomes one element; params 1 .. targets get equal parts of them. Its table lists a
    scratch block besides. `partial`: behind the elements of param 0 come their rests."""
    kind, dtype = reduction.kind, reduction.dtype
    row, column, body = KValue(int64), KValue(int64), Body()
    lane = column if rows == 1 else body.integer("add", body.integer("mul", row, length), column)
    body.ops.append(KOp("reduce", _elements(body, dtype, lane, rows * length, partial), (), {"slot": 0}))
    results = [BufferParam(dtype, rows // targets, "write")] * targets
    params = (BufferParam(dtype, rows * length * (1 + partial), "read"), *results)
    reductions = (Reduction(kind, dtype, 1, 1),)
    return Kernel(f"fold_{kind}", (rows, length), params, Block((row, column), body.ops), (), reductions)


def _elements(body: Body, dtype: DType, place: KValue, apart: int, partial: bool) -> tuple[KValue, ...]:
    """The element of param 0 there, and its rest where it has one."""
    places = [place, body.integer("add", place, apart)] if partial else [place]
    return tuple([body.one("load", dtype, p, param=0) for p in places])


def tree_widths(length: int) -> list[int]:
    """The lengths of a row after each pass."""
    widths: list[int] = []
    while length > 1 or not widths:
        length = -(-length // FAN_IN)
        widths.append(length)
    return widths


def tree_kernel(reduction: Reduction, rows: int, length: int, width: int, partial: bool) -> Kernel:
    """param 1 [row, j] = the elements row, j + i * width of param 0, combined in the order of i. Of sums in several
    parts the rests come behind the elements, in param 0 where it is `partial`, in param 1 where it isn't the end."""
    kind, dtype, compensated = reduction.kind, reduction.dtype, parts(reduction) == 2
    lane, body = KValue(int64), Body()
    row, column = body.integer("div", lane, width), body.integer("rem", lane, width)
    start = body.integer("add", body.integer("mul", row, length), column)
    left = body.integer("sub", body.const(length - 1), column)
    count = body.integer("div", left, width)
    first = _elements(body, dtype, start, rows * length, partial)
    if compensated and not partial:
        first = (*first, body.const(identity(kind, dtype), dtype))

    def step(inner: Body, k: KValue, *carried: KValue) -> tuple[KValue, ...]:
        offset = inner.integer("mul", inner.integer("add", k, 1), width)
        found = _elements(inner, dtype, inner.integer("add", start, offset), rows * length, partial)
        if not compensated:
            return (inner.one(kind, dtype, *carried, *found),)
        return merged(inner, *carried, *found) if partial else added(inner, *carried, *found)

    results = body.loop(count, first, step)
    if compensated and width == 1:
        results = (rounded(body, *results),)
    for part, result in enumerate(results):
        body.store(1, body.integer("add", lane, part * rows * width) if part else lane, result)
    params = (
        BufferParam(dtype, rows * length * (1 + partial), "read"),
        BufferParam(dtype, rows * width * len(results), "write"),
    )
    return _kernel(f"tree_{kind}", lane, body, params, rows * width)


def combine_kernel(kind: str, dtype: DType, size: int, copies: int) -> Kernel:
    """param 1 [j] = param 1 [j] kind copy 0 [j] kind copy 1 [j] ..., copies of param 0 in order."""
    lane, body = KValue(int64), Body()
    first = body.one("load", dtype, lane, param=1)

    def step(inner: Body, k: KValue, carried: KValue) -> KValue:
        index = inner.integer("add", inner.integer("mul", k, size), lane)
        return inner.one(kind, dtype, carried, inner.one("load", dtype, index, param=0))

    body.store(1, lane, body.fold(body.const(copies), first, step))
    params = (BufferParam(dtype, size * copies, "read"), BufferParam(dtype, size, "write"))
    return _kernel(f"combine_{kind}", lane, body, params, size)


def matmul_kernel(step: MatmulStep, factors: DType, result: DType) -> Kernel:
    """One lane per element of the product, its terms added in order, then rounded."""
    lane, body, dtype = KValue(int64), Body(), sum_dtype(factors)
    column = body.integer("rem", lane, step.n)
    rest = body.integer("div", lane, step.n)
    row, batch = body.integer("rem", rest, step.m), body.integer("div", rest, step.m)
    left_row, left_step = (1, step.m) if step.transpose_left else (step.k, 1)
    right_column, right_step = (step.k, 1) if step.transpose_right else (1, step.n)
    left = body.integer("add", body.integer("mul", batch, step.m * step.k), body.integer("mul", row, left_row))
    right = body.integer("mul", batch, step.k * step.n)
    right = body.integer("add", right, body.integer("mul", column, right_column))

    def term(inner: Body, k: KValue, carried: KValue) -> KValue:
        x = inner.one("load", factors, inner.integer("add", left, inner.integer("mul", k, left_step)), param=0)
        y = inner.one("load", factors, inner.integer("add", right, inner.integer("mul", k, right_step)), param=1)
        x, y = inner.cast(x, dtype), inner.cast(y, dtype)
        if dtype is bool_:
            return inner.one("or", dtype, carried, inner.one("and", dtype, x, y))
        return inner.one("add", dtype, carried, inner.one("mul", dtype, x, y))

    zero = body.const(False if dtype is bool_ else 0, dtype)
    body.store(2, lane, body.cast(body.fold(body.const(step.k), zero, term), result))
    sizes = (step.batch * step.m * step.k, step.batch * step.k * step.n)
    lanes = step.batch * step.m * step.n
    params = (*[BufferParam(factors, size, "read") for size in sizes], BufferParam(result, lanes, "write"))
    return _kernel("matmul", lane, body, params, lanes)
