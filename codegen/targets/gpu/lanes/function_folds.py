"""Running combinations by a function of elements: what is combined so far is the function's numbers, and whether there
are some, since an associative function need not have an element that changes no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loopgrad.codegen.scalar.conversions import convert, reinterpret
from loopgrad.codegen.scalar.elementwise import FLOAT_ORDER, PREDICATES, compare, compute, predicate
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.recipes import ScalarOps
from loopgrad.graph.scalar_functions import CONST, Row, ScalarFunction
from loopgrad.graph.types import DTYPES, DType, bool_

Numbers = tuple[Val, ...]  # of the leaves, and the bool


@dataclass(frozen=True, slots=True)
class FunctionFold:
    """By `function` of twice as many numbers as there are `leaves`: what is combined so far comes first."""

    leaves: tuple[DType, ...]
    function: ScalarFunction

    @property
    def parts(self) -> tuple[DType, ...]:
        """Of what is combined so far."""
        return (*self.leaves, bool_)

    def nothing(self, e: Emitter) -> Numbers:
        m = ScalarOps(e)
        return (*[m.element(dtype, 0) for dtype in self.leaves], e.b.const("bool", False))

    def combined(self, e: Emitter, x: Numbers, y: Numbers) -> Numbers:
        (*left, before), (*right, own) = x, y
        if _known(e, before, False) or _known(e, own, False):
            return x if _known(e, own, False) else y
        found: Sequence[Val] = self._applied(e, [*left, *right])
        if not _known(e, own, True):
            found = [e.select(own, v, w) for v, w in zip(found, left, strict=True)]
        if _known(e, before, True):
            return (*found, before)
        found = [e.select(before, v, w) for v, w in zip(found, right, strict=True)]
        return (*found, own if _known(e, own, True) else e.b.inst("LogicalOr", "bool", before, own))

    def _applied(self, e: Emitter, inputs: Sequence[Val]) -> list[Val]:
        dtypes = [*self.leaves, *self.leaves, *[DTYPES[row.dtype] for row in self.function.rows]]

        def apply(row: Row, operands: Sequence[Val]) -> Val:
            return _emitted(e, row, [dtypes[k] for k in row.operands], operands)

        return self.function.evaluate(inputs, apply)


def _known(e: Emitter, x: Val, value: bool) -> bool:
    return e.b.is_constant(x) and x.id == e.b.const("bool", value).id


def _emitted(e: Emitter, row: Row, given: Sequence[DType], operands: Sequence[Val]) -> Val:
    m, to = ScalarOps(e), DTYPES[row.dtype]
    match row.op:
        case "select":
            return e.select(*operands)
        case "cast":
            return operands[0] if given[0] is to else convert(m, operands[0], given[0], to)
        case "bitcast":
            return operands[0] if given[0] is to else reinterpret(m, operands[0], given[0], to)
        case "alias" | "stop_gradient":
            return operands[0]
        case op if op == CONST:
            return m.element(to, row.attributes()["value"])
        case op if op in FLOAT_ORDER:
            return compare(m, op, given[0], *operands)
        case op if op in PREDICATES:
            return predicate(m, op, given[0], *operands)
    return compute(m, row.op, given[0], operands)
