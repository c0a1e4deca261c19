"""Cholesky and LU factors, and what is solved by them, in loops.

Each element is computed by the operations that `codegen.factorisations.in_lanes` has for it, in their order, so that
the results of small matrices have the same bits whether code is rolled or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.lower.arrays import repeated
from loopgrad.codegen.lower.context import Frame, Lowering
from loopgrad.codegen.lower.emitter import Position
from loopgrad.codegen.lower.factorisations.matrices import (
    EachMatrix,
    Element,
    Matrix,
    MatrixOperand,
    between,
    carried,
    carried_numbers,
    copy,
    in_fours,
    scratch,
)
from loopgrad.codegen.lower.factorisations.numbers import Number
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives.factorisations import extents
from loopgrad.graph.types import bool_


def cholesky(ctx: Lowering, frame: Frame, node: Node) -> None:
    """Row after row of a column: what the columns before it take from it, then the root of the diagonal divides."""
    e, n = ctx.emitter, extents(node, 0)[-1]

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a,), (factor,) = operands, results
        x = factor.numbers

        def left(j: Position, rows: Sequence[Position]) -> list[Number]:
            def taken(k: KValue, *values: Number) -> Sequence[Number]:
                across = x.conj(factor.at(j, k))
                return [x.less(v, factor.at(i, k), across) for i, v in zip(rows, values, strict=True)]

            return carried_numbers(e, j, [a.at(i, j) for i in rows], taken)

        def column(j: KValue, positive: KValue) -> Sequence[KValue]:
            pivot = left(j, [j])[0][0]
            root = x.real.op("sqrt", pivot)
            factor.put(j, x.of_real(x.real.op("div", pivot, root)), j)

            def below(rows: list[Position]) -> None:
                for i, v in zip(rows, left(j, rows), strict=True):
                    factor.put(i, x.over(v, root), j)
                    factor.put(j, x.const(0), i)

            in_fours(e, e.add(j, 1), n, below)
            return [x.real.both(positive, x.real.test("gt", pivot, x.real.const(0)))]

        (positive,) = carried(e, n, [e.const(True, bool_)], column)
        whole = Matrix(ctx, factor.array, 1, factor.start, x.parts)
        repeated(e, n * n, lambda k: whole.put(k, x.select(positive, whole.at(k), x.const(np.nan))))

    EachMatrix(ctx, frame, node, (2,)).run(each)


def lu(ctx: Lowering, frame: Frame, node: Node) -> None:
    """Column after column: its largest element comes to the diagonal, NaN before all; then what the row takes from
    those below."""
    e, (m, n) = ctx.emitter, extents(node, 0)

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        packed, swaps, rows = results
        x = packed.numbers
        copy(e, operands[0], packed, m, n)
        repeated(e, m, lambda i: rows.put(i, (i,)))

        def larger(j: Position, k: KValue, best: KValue, found: KValue) -> Sequence[KValue]:
            i = e.value(e.add(e.add(j, 1), k))
            size = x.size(packed.at(i, j))
            better = e.op("invert", (x.real.test("le", size, best),), bool_)
            known = e.op("invert", (x.real.test("is_nan", best),), bool_)
            better = x.real.both(better, known)
            return [x.real.select(better, size, best), x.real.select(better, i, found)]

        def column(j: KValue) -> None:
            first = x.size(packed.at(j, j))
            _, found = carried(e, e.sub(m - 1, j), [first, j], lambda k, *best: larger(j, k, *best))
            swaps.put(j, (found,))
            exchange(packed, n, j, found)
            exchange(rows, 1, j, found)
            pivot = packed.at(j, j)
            singular = x.is_zero(pivot)

            def below(places: list[Position]) -> None:
                factors = []
                for i in places:
                    v = packed.at(i, j)
                    factors.append(x.select(singular, v, x.div(v, pivot)))
                    packed.put(i, factors[-1], j)

                def taken(c: Position) -> None:
                    across = packed.at(j, c)
                    for i, factor in zip(places, factors, strict=True):
                        packed.put(i, x.less(packed.at(i, c), factor, across), c)

                between(e, e.add(j, 1), n, taken)

            in_fours(e, e.add(j, 1), m, below)

        repeated(e, min(m, n), column)

    def exchange(matrix: Matrix, columns: int, i: Position, j: Position) -> None:
        def one(c: Position) -> None:
            upper, lower = matrix.at(i, c), matrix.at(j, c)
            matrix.put(i, lower, c)
            matrix.put(j, upper, c)

        repeated(e, columns, one)

    EachMatrix(ctx, frame, node, (2, 1, 1)).run(each)


def triangular_solve(ctx: Lowering, frame: Frame, node: Node) -> None:
    n, k = extents(node, 1)

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (a, b), (solution,) = operands, results
        copy(ctx.emitter, b, solution, n, k)
        substitute(node.attrs, a.at, solution, n, k)

    EachMatrix(ctx, frame, node, (2,)).run(each)


def substitute(attrs: Any, a: Element, solution: Matrix, n: int, k: int) -> None:
    """The solution of a triangular system in place of its right side."""
    e, x = solution.ctx.emitter, solution.numbers
    matrix: Element = (lambda i, j: a(j, i)) if attrs["transpose"] else a
    forward = attrs["lower"] != attrs["transpose"]

    def place(step: Position) -> Position:
        return step if forward else e.sub(n - 1, step)

    def row(step: KValue) -> None:
        i = place(step)

        def some(columns: list[Position]) -> None:
            def taken(t: KValue, *values: Number) -> Sequence[Number]:
                j = place(t)
                factor = matrix(i, j)
                return [x.less(v, factor, solution.at(j, c)) for c, v in zip(columns, values, strict=True)]

            values = carried_numbers(e, step, [solution.at(i, c) for c in columns], taken)
            for c, v in zip(columns, values, strict=True):
                solution.put(i, v if attrs["unit_diagonal"] else x.div(v, matrix(i, i)), c)

        if k == 1:
            some([0])
        else:
            in_fours(e, 0, k, some)

    repeated(e, n, row)


def solve_factored(ctx: Lowering, frame: Frame, node: Node) -> None:
    """Two triangular systems, and the order of rows before or after."""
    e, (n, k), transpose = ctx.emitter, extents(node, 3), node.attrs["transpose"]
    unit = {"lower": True, "transpose": transpose, "unit_diagonal": True}
    plain = {"lower": False, "transpose": transpose, "unit_diagonal": False}

    def each(operands: list[MatrixOperand], results: list[Matrix]) -> None:
        (_, packed, rows, b), (result,) = operands, results
        if not transpose:
            repeated(e, n, lambda i: along(i, rows.at(i)[0], lambda j, row, c: result.put(j, b.at(row, c), c)))
            substitute(unit, packed.at, result, n, k)
            substitute(plain, packed.at, result, n, k)
            return
        solution = scratch(ctx, n, k, node.results[0].dtype, result.parts)
        copy(e, b, solution, n, k)
        substitute(plain, packed.at, solution, n, k)
        substitute(unit, packed.at, solution, n, k)
        repeated(e, n, lambda i: along(i, rows.at(i)[0], lambda j, row, c: result.put(row, solution.at(j, c), c)))

    def along(i: Position, row: KValue, put: Any) -> None:
        repeated(e, k, lambda c: put(i, row, c))

    EachMatrix(ctx, frame, node, (2,)).run(each)
