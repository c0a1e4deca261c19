"""Axis rules are true: what changes in one lane of an operand changes nothing in other lanes of the result."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.primitives import FAMILIES, PRIMITIVES
from loopgrad.graph.types import DTYPES, TensorType, float64

SHAPE = (2, 3, 1, 4)
INDEX = np.array([[0, 1, 1], [1, 0, 1]])

RECURRENCE = (
    (("mul", "float64", (0, 2), ()), ("mul", "float64", (1, 2), ()), ("add", "float64", (5, 3), ())),
    (4, 6),
)

# op -> attributes and further operands beside one of SHAPE
CASES = {
    "add": [({}, ["same"])],
    "select": [({}, ["same", "same"])],
    "broadcast": [({"shape": (5, 2, 3, 7, 4), "dims": (1, 2, 3, 4)}, [])],
    "reshape": [({"shape": s}, []) for s in ((6, 4), (2, 12), (2, 1, 3, 4), (3, 2, 4), (4, 6), (24,), (2, 3, 2, 2))],
    "transpose": [({"perm": p}, []) for p in ((1, 0, 2, 3), (3, 2, 1, 0), (0, 1, 3, 2))],
    "slice": [({"start": (0, 1, 0, 3), "stop": (2, 3, 1, None), "step": (1, 1, 1, -1)}, [])],
    "pad": [({"low": (0, 1, 0, 0), "high": (0, 0, 2, 0)}, [()])],
    "concat": [({"axis": 1}, ["same"]), ({"axis": 3}, ["same"])],
    "flip": [({"axes": (0, 2)}, [])],
    "reduce_sum": [({"axes": (1,)}, []), ({"axes": (0, 3)}, [])],
    "argmax": [({"axis": 1}, [])],
    "cumsum": [({"axis": 3, "reverse": True}, [])],
    "sort": [({"axis": 1}, [])],
    "argsort": [({"axis": 3}, [])],
    "top_positions": [({"axis": 3, "k": 1}, [])],
    "matmul": [({}, [(2, 3, 4, 5)])],
    "conv": [
        (
            {
                "strides": (1, 1),
                "low": (0, 1),
                "high": (0, 0),
                "spread": (1, 1),
                "dilation": (1, 1),
                "groups": 1,
                "absent": False,
            },
            [(5, 3, 1, 2)],
        )
    ],
    "associative_scan": [
        ({"along": along, "reverse": along == -1, "function": RECURRENCE, "taken": (1,)}, ["same"])
        for along in (-1, -2)
    ],
    "gather": [({}, [INDEX]), ({}, [INDEX, INDEX])],
    "scatter": [({"kind": "add"}, [INDEX, (*INDEX.shape, 3, 1, 4)]), ({"kind": "set"}, [INDEX, INDEX, (2, 3, 1, 4)])],
}


def _arrays(op, others, rng):
    """Operands; all elements differ."""
    given = [rng.permutation(24).reshape(SHAPE) + 0.5]
    for other in others:
        if isinstance(other, np.ndarray):
            given.append(other)
        else:
            shape = SHAPE if other == "same" else other
            given.append(rng.permutation(int(np.prod(shape))).reshape(shape) + 100.25)
    if op == "select":
        given[0] = given[0] > 12
    return given


def _node(op, attrs, arrays):
    types = [TensorType(x.shape, DTYPES[x.dtype.name]) for x in arrays]
    graph, _ = trace(lambda *operands: emit(op, operands, attrs), types)
    return graph, graph.nodes[0]


def _lanes(shape, axes):
    """The number of each element's lane: its coordinates along `axes` in row-major order."""
    lanes = np.zeros(shape, int)
    for a in axes:
        lanes = lanes * shape[a] + np.indices(shape)[a] if shape[a] else lanes
    return lanes


def _subsets(rank):
    return [tuple(a for a in range(rank) if bits >> a & 1) for bits in range(1, 1 << rank)]


@pytest.mark.parametrize("op", CASES)
def test_lanes_stay_apart(op):
    rng = np.random.default_rng(0)
    promised = 0
    for attrs, others in CASES[op]:
        arrays = _arrays(op, others, rng)
        graph, node = _node(op, attrs, arrays)
        (before,) = interpret(graph, arrays)
        for i, x in enumerate(arrays):
            if np.issubdtype(x.dtype, np.integer):
                continue  # another index is another place
            for axes in _subsets(x.ndim):
                moved = PRIMITIVES[op].axes(node, i, axes)
                if moved is None:
                    continue
                promised += 1
                assert moved is not axes or all(x.shape[a] == before.shape[a] for a in axes)
                mine, theirs = _lanes(x.shape, axes), _lanes(before.shape, moved)
                for lane in np.unique(mine):
                    changed = [*arrays]
                    changed[i] = np.where(mine == lane, x[::-1] if x.dtype == bool else -3 * x, x)
                    (after,) = interpret(graph, changed)
                    assert (theirs[after != before] == lane).all(), (attrs, i, axes, moved)
    assert promised


def test_every_kind_of_rule_is_tried():
    rules = {PRIMITIVES[op].axes for op in CASES}
    """Routines over whole matrices and rows of pairs, collectives and named axes, aren't done inside lanes."""
    families = ("factorisations", "lapack", "fourier", "complex_parts", "collectives", "named_axes")
    whole = {op for family in families for op in FAMILIES[family]}
    assert {row.axes for op, row in PRIMITIVES.items() if op not in whole} - {None} <= rules


@pytest.mark.parametrize(
    ("old", "new", "axes", "expected"),
    [
        ((2, 3), (6,), (0, 1), (0,)),
        ((2, 3), (6,), (0,), None),
        ((2, 3), (3, 2), (0, 1), (0, 1)),
        ((2, 1, 3, 5), (6, 5), (0, 2), (0,)),
        ((2, 1, 3, 5), (6, 5), (3,), (1,)),
        ((6, 5), (2, 3, 5), (0,), (0, 1)),
        ((4, 3), (2, 6), (0, 1), (0, 1)),
        ((4, 3), (2, 6), (1,), None),
        ((2, 3, 2), (6, 2), (1, 2), None),
        ((1, 5), (5,), (1,), (0,)),
    ],
)
def test_axes_of_reshapes_by_groups(old, new, axes, expected):
    graph, _ = trace(lambda x: emit("reshape", (x,), {"shape": new}), [TensorType(old, float64)])
    assert PRIMITIVES["reshape"].axes(graph.nodes[0], 0, axes) == expected
