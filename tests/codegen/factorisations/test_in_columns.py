"""Which matrices GPUs factorise by workgroups that have their columns."""

import pytest

from loopgrad.codegen.factorisations.by_library import NEEDED
from loopgrad.codegen.options import IN_COLUMNS
from loopgrad.codegen.schedule.factorisations import rewrite_factorisations
from loopgrad.graph.build import emit, trace
from loopgrad.graph.types import TensorType, float32

ALONE, BESIDE = frozenset({IN_COLUMNS}), frozenset({IN_COLUMNS, NEEDED})


@pytest.mark.parametrize(
    ("op", "shape", "library", "wanted"),
    [
        ("cholesky", (17, 16, 16), BESIDE, 1),
        ("cholesky", (16, 16, 16), BESIDE, 1),  # one launch, where a library takes several for each
        ("cholesky", (16, 16), ALONE, 1),
        ("cholesky", (8, 8), ALONE, 0),
        ("cholesky", (40, 40), ALONE, 2),  # of halves, and a lane has the last eight columns
        ("qr", (32, 4), ALONE, 1),
        ("qr", (17, 32, 4), ALONE, 0),  # a lane has so few columns in registers
        ("qr", (33, 4), ALONE, 0),
        ("lu", (16, 16), ALONE, 1),
        ("lu", (17, 17), ALONE, 1),
        ("lu", (17, 17, 17), ALONE, 0),  # one invocation looks for all pivots of each
        ("lu", (16, 16), frozenset[str](), 0),
    ],
)
def test_who_is_chosen(op: str, shape: tuple[int, ...], library: frozenset[str], wanted: int) -> None:
    attrs = {"complete": False} if op == "qr" else {}
    graph, _ = trace(lambda a: emit(op, (a,), attrs), [TensorType(shape, float32)])
    rewritten = rewrite_factorisations(graph, library)
    assert sum(node.op == op for node in rewritten.nodes) == wanted
