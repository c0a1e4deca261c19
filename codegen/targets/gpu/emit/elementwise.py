"""Elementwise operations: codegen.scalar on values of one lane, with what is known of their ranges."""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.kernel.nodes import KOp
from loopgrad.codegen.scalar.conversions import convert, reinterpret
from loopgrad.codegen.scalar.elementwise import compare, compute, power, predicate
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.graph.types import DType


def emit_elementwise(e: Emitter, op: KOp) -> Val:
    operands = [e.get(v) for v in op.operands]
    return compute(ScalarOps(e), op.opcode, op.operands[0].dtype, operands, lambda i: e.ranges.of(op.operands[i]))


def operate(e: Emitter, name: str, dtype: DType, operands: Sequence[Val]) -> Val:
    """Any elementwise primitive whose result has the operands' dtype."""
    return compute(ScalarOps(e), name, dtype, operands)


def emit_whole_power(e: Emitter, op: KOp) -> Val:
    return power(ScalarOps(e), e.get(op.operands[0]), op.attrs["exponent"], op.results[0].dtype)


def emit_compare(e: Emitter, op: KOp) -> Val:
    x, y = (e.get(v) for v in op.operands)
    return compare(ScalarOps(e), op.opcode, op.operands[0].dtype, x, y)


def emit_predicate(e: Emitter, op: KOp) -> Val:
    return predicate(ScalarOps(e), op.opcode, op.operands[0].dtype, e.get(op.operands[0]))


def emit_select(e: Emitter, op: KOp) -> Val:
    pred, x, y = (e.get(v) for v in op.operands)
    return e.select(pred, x, y)


def emit_cast(e: Emitter, op: KOp) -> Val:
    source = op.operands[0]
    return convert(ScalarOps(e), e.get(source), source.dtype, op.results[0].dtype)


def emit_bitcast(e: Emitter, op: KOp) -> Val:
    source = op.operands[0]
    return reinterpret(ScalarOps(e), e.get(source), source.dtype, op.results[0].dtype)


def emit_const(e: Emitter, op: KOp) -> Val:
    return ScalarOps(e).element(op.results[0].dtype, op.attrs["value"])
