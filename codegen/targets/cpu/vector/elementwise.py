"""Elementwise operations: codegen.scalar on vectors of lanes, in the widths that the lanes' integers are kept in."""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import KOp, KValue
from loopgrad.codegen.scalar.conversions import convert, reinterpret
from loopgrad.codegen.scalar.elementwise import compare, compute, power, predicate
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter
from loopgrad.codegen.targets.cpu.vector.math_calls import KernelOps
from loopgrad.codegen.targets.cpu.vector.vectors import Vector, llvm_type


def emit_elementwise(e: VectorEmitter, op: KOp) -> Vector:
    ranges, dtype = e.analysis.ranges, op.operands[0].dtype
    x = compute(KernelOps(e), op.opcode, dtype, operands_of(e, op), lambda i: ranges.of(op.operands[i]))
    return settle(e, op.results[0], x) if dtype.is_integer else x


def operands_of(e: VectorEmitter, op: KOp) -> list[Vector]:
    """The operands in one width: 32 bits where all int64 operands and the result are narrow."""
    dtype, result = op.operands[0].dtype, op.results[0]
    if dtype.kind == "i" and dtype.bits == 64:
        small = all(e.analysis.ranges.fits_int32(v) for v in op.operands)
        if result.dtype.kind == "i":
            small = small and e.analysis.narrow(result)
        if small and not all(e.analysis.uniform(v) for v in op.operands):
            return [e.b.resize(e.get(v), "i32") for v in op.operands]
    return [e.wide(v) for v in op.operands]


def settle(e: VectorEmitter, result: KValue, x: Vector) -> Vector:
    """An integer in the width its consumers expect."""
    return e.b.resize(x, "i32" if e.analysis.narrow(result) else llvm_type(result.dtype), result.dtype.kind == "i")


def emit_whole_power(e: VectorEmitter, op: KOp) -> Vector:
    return power(KernelOps(e), e.get(op.operands[0]), op.attrs["exponent"], op.results[0].dtype)


def emit_compare(e: VectorEmitter, op: KOp) -> Vector:
    x, y = operands_of(e, op)
    return compare(KernelOps(e), op.opcode, op.operands[0].dtype, x, y)


def emit_predicate(e: VectorEmitter, op: KOp) -> Vector:
    return predicate(KernelOps(e), op.opcode, op.operands[0].dtype, e.get(op.operands[0]))


def emit_select(e: VectorEmitter, op: KOp) -> Vector:
    pred, *arms = op.operands
    result = op.results[0]
    x, y = (settle(e, result, e.get(v)) if result.dtype.kind == "i" else e.get(v) for v in arms)
    return KernelOps(e).select(e.get(pred), x, y)


def emit_cast(e: VectorEmitter, op: KOp) -> Vector:
    (source,), result = op.operands, op.results[0]
    if source.dtype.kind == "i" and result.dtype.kind == "i":
        return settle(e, result, e.get(source))
    x = convert(KernelOps(e), e.wide(source), source.dtype, result.dtype)
    return settle(e, result, x) if result.dtype.kind == "i" else x


def emit_bitcast(e: VectorEmitter, op: KOp) -> Vector:
    (source,), result = op.operands, op.results[0]
    x = reinterpret(KernelOps(e), e.wide(source), source.dtype, result.dtype)
    return settle(e, result, x) if result.dtype.kind == "i" else x


def emit_const(e: VectorEmitter, op: KOp) -> Vector:
    return KernelOps(e).element(op.results[0].dtype, op.attrs["value"])


def emit_alias(e: VectorEmitter, op: KOp) -> Vector:
    x, result = e.get(op.operands[0]), op.results[0]
    return settle(e, result, x) if result.dtype.kind == "i" else x
