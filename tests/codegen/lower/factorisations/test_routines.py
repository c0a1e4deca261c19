"""Factorisations in loops over a lane's arrays do what the primitives' references do, in few operations."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.nodes import walk
from loopgrad.codegen.lower.factorisations.table import ROUTINES
from loopgrad.codegen.options import Options
from loopgrad.codegen.pipeline import build_program
from loopgrad.graph.build import emit, trace
from loopgrad.graph.primitives import REFERENCE
from loopgrad.graph.types import DTYPES, TensorType
from tests.codegen.factorisations.test_in_lanes import cases

MOST_OPERATIONS = 500


@pytest.mark.parametrize("n", [9, 14])
@pytest.mark.parametrize("inner", [(), (2,)], ids=["lane", "batch"])
def test_routines_are_the_references(n: int, inner: tuple[int, ...]) -> None:
    """`inner`: several matrices a lane."""
    done = set()
    for op, attrs, arrays in cases(n):
        if arrays[0].ndim < 3:
            continue
        repeated = [np.repeat(x[:, None], 2, axis=1) if inner else x for x in arrays]
        types = [TensorType(a.shape, DTYPES[a.dtype.name]) for a in repeated]
        graph, _ = trace(lambda *v, op=op, attrs=attrs: emit(op, v, attrs), types)
        program = build_program(graph, Options(), frozenset())
        assert any(kernel.arrays for kernel in program.kernels), op
        assert sum(1 for kernel in program.kernels for _ in walk(kernel.body)) < MOST_OPERATIONS
        for found, expected in zip(interpret_program(program, repeated), REFERENCE[op](attrs, *repeated), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11, err_msg=f"{op} {attrs}")
        done.add(op)
    assert done <= set(ROUTINES)
