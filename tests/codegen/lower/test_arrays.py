"""What rolled lanes keep in arrays."""

import numpy as np

from loopgrad.codegen.program import RoutineStep
from loopgrad.codegen.steps import all_steps
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph import ops
from loopgrad.graph.types import TensorType, float64
from tests.codegen.schedule.conftest import checked


def test_what_only_has_as_many_rows_as_there_are_lanes_is_no_lanes_own():
    """20 lanes solve for a column each, of a matrix of 20 rows, which is computed where it is read."""

    def solved(a, m):
        both = ops.mul(ops.add(m, mx.transposed(m)), 0.5)
        columns = ops.sub(mx.part(both, (0, 16), (0, 20)), mx.part(both, (4, 20), (0, 20)))
        return (mx.solve_triangular(a, columns, lower=True),)

    rng = np.random.default_rng(0)
    a, m = np.tril(rng.normal(size=(16, 16))) + 4 * np.eye(16), rng.normal(size=(20, 20))
    types = [TensorType(x.shape, float64) for x in (a, m)]
    program = checked(solved, types, [a, m], rtol=1e-9, atol=1e-9)
    assert not [step for step in all_steps(program.steps) if isinstance(step, RoutineStep)]
