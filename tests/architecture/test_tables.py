"""One primitive, one row: every table handles every primitive exactly once, or its record says why not.

Nothing here is true by construction: what a table fills in for all elementwise primitives alike is put to the test
by making kernels (`test_kernels_of_each_dtype`), code (tests/codegen/scalar) and batches (tests/graph/batching).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.autodiff import rules
from loopgrad.autodiff.forward import REGION_JVP
from loopgrad.autodiff.reverse import REGION_VJP
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.lower import kernel
from loopgrad.codegen.options import Options
from loopgrad.codegen.pipeline import build_program
from loopgrad.codegen.schedule import canonical
from loopgrad.graph import batching
from loopgrad.graph.build import emit, trace
from loopgrad.graph.primitives import FAMILIES, INFER, PRIMITIVES, REDUCTIONS, REFERENCE, Kind
from loopgrad.graph.primitives.elementwise import BINARY, COMPARE
from loopgrad.graph.primitives.primitive import KIND_NAMES
from loopgrad.graph.types import DTYPES, DType, TensorType, bool_, float32
from tests.architecture.sources import ROOT, SOURCES, name, nodes, parsed

NAMES = sorted(PRIMITIVES)

# How each mode handles a primitive: exactly one of these tables holds it.
REVERSE = (rules.PARTIALS, rules.VJP, rules.ACCUMULATE, REGION_VJP, rules.NONDIFFERENTIABLE)
FORWARD = (rules.PARTIALS, rules.JVP, REGION_JVP, rules.NONDIFFERENTIABLE)


def test_families_do_not_overlap():
    names = [op for rows in FAMILIES.values() for op in rows]
    assert len(names) == len(set(names)) == len(PRIMITIVES)
    assert all(op == row.name for op, row in PRIMITIVES.items())


def test_no_table_holds_what_is_no_primitive():
    for table in (*REVERSE, *FORWARD, batching.ROWS, kernel.RULES):
        assert set(table) <= set(PRIMITIVES)


@pytest.mark.parametrize("op", NAMES)
def test_shape_rule_and_reference(op):
    assert op in INFER
    interpreted_elsewhere = PRIMITIVES[op].kind in (Kind.REGION, Kind.STACK)  # by graph.interpret itself
    assert (op in REFERENCE) != interpreted_elsewhere


@pytest.mark.parametrize("op", NAMES)
@pytest.mark.parametrize("mode", [REVERSE, FORWARD], ids=["reverse", "forward"])
def test_one_derivative(op, mode):
    assert sum(op in table for table in mode) == 1
    assert op in rules.PARTIALS or op in rules.NONDIFFERENTIABLE or PRIMITIVES[op].kind is not Kind.ELEMENTWISE
    if op in rules.PARTIALS:
        assert len(rules.PARTIALS[op]) == len(_types(op, float32))


@pytest.mark.parametrize("op", NAMES)
def test_traits_fit_together(op):
    row = PRIMITIVES[op]
    assert set(row.kinds) <= set(KIND_NAMES)
    assert not (row.linear and row.singular)
    assert not (row.not_differentiable and (row.linear or row.singular))
    combine = "" if row.combine == "logaddexp" else row.combine  # made of running sums of exponentials alone
    for other in filter(None, (row.mirrored, row.negated, combine)):
        assert PRIMITIVES[other].kind is Kind.ELEMENTWISE
    if row.mirrored:
        assert PRIMITIVES[row.mirrored].mirrored == PRIMITIVES[row.negated].negated == op
    if combine:
        assert PRIMITIVES[combine].commutes


@pytest.mark.parametrize("op", [op for op in NAMES if PRIMITIVES[op].mirrored])
def test_what_comparisons_are_to_each_other(op):
    x, y = np.array([1, 2, 3]), np.array([2, 2, 2])
    (expected,) = REFERENCE[op]({}, x, y)
    assert (REFERENCE[PRIMITIVES[op].mirrored]({}, y, x)[0] == expected).all()
    assert (REFERENCE[PRIMITIVES[op].negated]({}, x, y)[0] == ~expected).all()


@pytest.mark.parametrize("op", [op for op in BINARY if "i" in PRIMITIVES[op].kinds])
def test_neutral_numbers_and_order(op):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-9, 9, (2, 50))
    apply, row = REFERENCE[op], PRIMITIVES[op]
    assert bool(row.commutes) == (apply({}, x, y)[0] == apply({}, y, x)[0]).all()
    if row.neutral is not None:
        assert (apply({}, x, np.full_like(x, row.neutral))[0] == x).all()


@pytest.mark.parametrize("op", NAMES)
def test_one_batching_rule(op):
    assert op in batching.ROWS


@pytest.mark.parametrize("op", NAMES)
def test_one_lowering(op):
    """Control flow and stacks are lowered by the walk over regions, reductions by shards are what a kernel ends with,
    all others by a row, a library or other primitives; of complex numbers and named axes nothing is left then."""
    gone = (Kind.PARTS, Kind.NAMED_AXIS)
    elsewhere = PRIMITIVES[op].kind in (Kind.REGION, Kind.STACK, Kind.LIBRARY, Kind.SHARDS, *gone)
    assert [op in kernel.RULES, op in canonical.IN_OTHERS, elsewhere].count(True) == 1


# ---- kernels; tests/codegen/scalar emits code of them for each target

COMPUTING = [op for op in NAMES if PRIMITIVES[op].kind in (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.RUNNING_TOTAL)]
REAL = [dtype for dtype in DTYPES.values() if dtype.kind != "c"]


def _types(op: str, dtype: DType) -> list[TensorType]:
    """Operands with which a primitive that computes can be tried."""
    t = TensorType((4, 3), dtype)
    if op == "select":
        return [TensorType(t.shape, bool_), t, t]
    if op == "philox":
        return [t] * 7
    return [t, t] if op in BINARY or op in COMPARE or op == "complex" else [t]


def _attrs(op: str, dtype: DType) -> list[dict[str, object]]:
    if op == "cast":
        return [{"dtype": dtype} for dtype in REAL]
    if op == "bitcast":
        return [{"dtype": as_wide} for as_wide in REAL if as_wide.bits == dtype.bits and as_wide.kind != "b"]
    if PRIMITIVES[op].kind is Kind.ELEMENTWISE:
        return [{}]
    return [{"axes": (1,)} if op in REDUCTIONS else {"axis": 1, "reverse": True}]


@pytest.mark.parametrize("op", COMPUTING)
def test_kernels_of_each_dtype(op):
    """Rows that serve all primitives of a kind alike do serve this one."""
    dtypes = [dtype for dtype in REAL if dtype.kind in PRIMITIVES[op].kinds]
    if op == "philox":  # of words of 32 and 64 bits
        dtypes = [dtype for dtype in dtypes if dtype.bits >= 32]
    assert dtypes
    for dtype in dtypes:
        ways = _attrs(op, dtype)
        graph, _ = trace(lambda *x, ways=ways: [emit(op, x, attrs)[0] for attrs in ways], _types(op, dtype))
        for made in build_program(graph, Options()).kernels:
            verify_kernel(made)


# ---- what users see


@pytest.mark.parametrize("op", [op for op in NAMES if PRIMITIVES[op].public is not None])
def test_a_public_name_in_the_documentation(op):
    public = PRIMITIVES[op].public or op
    assert public in lg.__all__
    assert f"`{public}`" in (ROOT / "docs" / "numpy.md").read_text()


# ---- nothing else lists primitives

# Rows of functions and of texts may be keyed by primitives; a set of their names is a trait that somebody forgot.
EXEMPT = (
    "graph/primitives/",
    "codegen/targets/amdgpu/intrinsics.py",  # functions of LLVM, called as they are
    "codegen/targets/llvm_gpu/flavour.py",  # instructions that approximate them
)
MOST = 2


def _names(node: ast.AST) -> list[str]:
    """The texts that a literal collection consists of; none where it holds anything else."""
    match node:
        case ast.Set(elts=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.MatchOr(patterns=parts):
            parts = [part.value if isinstance(part, ast.MatchValue) else part for part in parts]
        case ast.Dict(keys=parts, values=values) if not all(map(_is_row, values)):
            pass
        case _:
            return []
    texts = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return texts if len(texts) == len(parts) else []


def _is_row(value: ast.AST) -> bool:
    """A function or several, made here or elsewhere, or a text that is no primitive's name."""
    if isinstance(value, ast.Tuple):
        return all(map(_is_row, value.elts))
    if isinstance(value, ast.Constant):
        return value.value is None or (isinstance(value.value, str) and value.value not in PRIMITIVES)
    return isinstance(value, ast.Name | ast.Attribute | ast.Lambda | ast.Call)


def _lists_of_primitives(tree: ast.Module) -> Iterator[int]:
    """Lines of literal collections of primitives' names; `__all__` lists functions."""
    exported = {n.value for n in nodes(tree, ast.Assign) if getattr(n.targets[0], "id", "") == "__all__"}
    for node in nodes(tree, ast.Set, ast.List, ast.Tuple, ast.Dict, ast.MatchOr):
        if node not in exported and sum(text in PRIMITIVES for text in _names(node)) > MOST:
            yield node.lineno  # type: ignore[attr-defined]


def test_nobody_keeps_a_set_of_primitives():
    places = [path for path in SOURCES if not name(path).startswith(EXEMPT)]
    found = [f"{name(path)}:{line}" for path in places for line in _lists_of_primitives(parsed(path)[1])]
    assert not found, "ask a trait of graph.primitives instead"


@pytest.mark.parametrize(
    "code",
    ['{"add", "mul", "min"}', '["sin", "cos", "x", "tan"]', '{"eq": "ne", "ne": "eq", "lt": "ge"}',
     '{"lt": True, "le": True, "gt": False}', 'match x:\n case "add" | "mul" | "min": pass'],
)  # fmt: skip
def test_sets_of_primitives_are_seen(code):
    assert list(_lists_of_primitives(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ['{"add": f, "or": g(1), "min": (f, g)}', '{"add": "+", "sub": "-", "mul": "*"}', '("add", x, "mul", "or")']
)
def test_rows_are_not_taken_for_sets(code):
    assert not list(_lists_of_primitives(ast.parse(code)))
