"""Every elementwise primitive of every dtype, by opcodes that targets have rows for and by recipes.

A bool is a bit: sums and maxima are `or`, products and minima `and`. A half is computed in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from loopgrad.codegen.math.power import whole_power
from loopgrad.codegen.scalar import integers
from loopgrad.codegen.scalar.integers import Known
from loopgrad.codegen.scalar.ops import Ops, V
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import DType

Recipe = Callable[..., Any]  # of the Ops and the operands


def compute(m: Ops[V], name: str, dtype: DType, operands: Sequence[V], known: Known | None = None) -> V:
    """A primitive whose result has the operands' dtype."""
    made: V
    if dtype.kind == "b":
        made = BOOLS[name](m, *operands)
    elif not dtype.is_float:
        made = integers.RECIPES[name](m, dtype, known or (lambda _i: limits(dtype)), *operands)
    elif dtype.bits == 16:
        wide = [m.widened(x, dtype) for x in operands]
        made = m.rounded(_of_half(m, name, dtype, wide), dtype, exact=name in PRIMITIVES and PRIMITIVES[name].unrounded)
    else:
        made = _float(m, name, operands)
    return made


def _of_half(m: Ops[V], name: str, dtype: DType, wide: Sequence[V]) -> V:
    """What is rounded to a half afterwards need have no more than a few bits more."""
    rough = m.for_half(name, dtype, wide)
    return _float(m, name, wide) if rough is None else rough


def _float(m: Ops[V], name: str, operands: Sequence[V]) -> V:
    own = FLOATS.get(name)
    made: V = m.recipe(name, operands) if own is None else own(m, *operands)
    return made


def compare(m: Ops[V], name: str, dtype: DType, x: V, y: V) -> V:
    """x < y and its like."""
    if dtype.kind == "b":
        made: V = BOOL_ORDER[name](m, x, y)
        return made
    if dtype.is_float:
        return m.test(FLOAT_ORDER[name], m.widened(x, dtype), m.widened(y, dtype))
    equality = INTEGER_EQUALITY.get(name)
    return m.test(equality or ("S" if dtype.kind == "i" else "U") + INTEGER_ORDER[name], x, y)


def predicate(m: Ops[V], name: str, dtype: DType, x: V) -> V:
    """is_nan, is_inf, signbit."""
    made: V = PREDICATES[name](m, dtype, x)
    return made


def power(m: Ops[V], x: V, exponent: int, dtype: DType) -> V:
    """x to a whole exponent of few factors."""
    if dtype.bits == 16:  # f32 has digits enough for all the factors
        return m.rounded(whole_power(m, m.widened(x, dtype), exponent, exact=False), dtype)
    if dtype.bits == 32 and m.flushes and not m.fast:  # what a product of small numbers lacks is subnormal
        return m.narrow(whole_power(m, m.widen(x), exponent, exact=False))
    return whole_power(m, x, exponent, exact=not m.fast)


# floats


def _row(opcode: str) -> Recipe:
    return lambda m, *operands: m.same(opcode, *operands)


def _arithmetic(opcode: str) -> Recipe:
    return lambda m, *operands: m.loose(opcode, *operands)


def _multiply_add(m: Ops[V], x: V, y: V, z: V) -> V:
    """In two steps where a fused one would be slow, and where the compiler may fuse and reassociate them as it
    likes."""
    return m.fma(x, y, z) if m.fused and not m.fast else m.loose("FAdd", m.loose("FMul", x, y), z)


def _sign(m: Ops[V], x: V) -> V:
    zero, one = m.const(x, 0.0), m.const(x, 1.0)
    signed = m.select(m.test("FUnordNotEqual", x, zero), m.copysign(one, x), zero)
    return m.select(m.is_nan(x), x, signed)


def _rsqrt(m: Ops[V], x: V) -> V:
    return m.loose("FDiv", m.const(x, 1.0), m.sqrt(x))


FLOATS: Final[dict[str, Recipe]] = {
    "add": _arithmetic("FAdd"),
    "sub": _arithmetic("FSub"),
    "mul": _arithmetic("FMul"),
    "div": _arithmetic("FDiv"),
    "neg": _arithmetic("FNegate"),
    "fma": _multiply_add,
    "abs": lambda m, x: m.abs(x),
    "sqrt": _row("Sqrt"),
    "floor": _row("Floor"),
    "ceil": _row("Ceil"),
    "round": _row("RoundEven"),
    "trunc": _row("Trunc"),
    "min": lambda m, x, y: m.extreme("min", x, y),
    "max": lambda m, x, y: m.extreme("max", x, y),
    "sign": _sign,
    "rsqrt": _rsqrt,
}
"""Beside the recipes of codegen.math."""

# bools


def _test(opcode: str) -> Recipe:
    return lambda m, *operands: m.test(opcode, *operands)


BOOLS: Final[dict[str, Recipe]] = {
    "and": _test("LogicalAnd"),
    "or": _test("LogicalOr"),
    "xor": _test("LogicalNotEqual"),
    "invert": _test("LogicalNot"),
    "min": _test("LogicalAnd"),
    "mul": _test("LogicalAnd"),
    "max": _test("LogicalOr"),
    "add": _test("LogicalOr"),
}

# tests

BOOL_ORDER: Final[dict[str, Recipe]] = {
    "eq": _test("LogicalEqual"),
    "ne": _test("LogicalNotEqual"),
    "lt": lambda m, x, y: m.both(m.invert(x), y),
    "le": lambda m, x, y: m.either(m.invert(x), y),
    "gt": lambda m, x, y: m.both(x, m.invert(y)),
    "ge": lambda m, x, y: m.either(x, m.invert(y)),
}
INTEGER_EQUALITY: Final = {"eq": "IEqual", "ne": "INotEqual"}
INTEGER_ORDER: Final = {"lt": "LessThan", "le": "LessThanEqual", "gt": "GreaterThan", "ge": "GreaterThanEqual"}
FLOAT_ORDER: Final = {
    "eq": "FOrdEqual",
    "ne": "FUnordNotEqual",
    "lt": "FOrdLessThan",
    "le": "FOrdLessThanEqual",
    "gt": "FOrdGreaterThan",
    "ge": "FOrdGreaterThanEqual",
}


def _is_nan(m: Ops[V], dtype: DType, x: V) -> V:
    return m.is_nan(m.widened(x, dtype))


def _is_inf(m: Ops[V], dtype: DType, x: V) -> V:
    x = m.widened(x, dtype)
    return m.eq(m.abs(x), m.const(x, float("inf")))


def _signbit(m: Ops[V], dtype: DType, x: V) -> V:
    bits = m.as_int(x)
    return m.test("SLessThan", bits, m.const(bits, 0))


PREDICATES: Final[dict[str, Recipe]] = {
    "is_nan": _is_nan,
    "is_inf": _is_inf,
    "signbit": _signbit,
}
