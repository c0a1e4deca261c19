"""Factorisations by lanes do what the primitives' references do; and who is chosen when."""

from __future__ import annotations

import numpy as np
import pytest

from loopgrad.codegen.factorisations import in_lanes
from loopgrad.codegen.schedule.factorisations import rewrite_factorisations
from loopgrad.graph import matrix_ops as mx
from loopgrad.graph.build import emit, trace
from loopgrad.graph.complex_pairs import in_pairs
from loopgrad.graph.interpret import interpret
from loopgrad.graph.primitives import LIBRARY, REFERENCE, factorisations
from loopgrad.graph.types import DTYPES, TensorType
from loopgrad.graph.verify import verify

RNG = np.random.default_rng(2)
TRIANGULAR = [
    {"lower": lower, "transpose": transpose, "unit_diagonal": unit}
    for lower in (True, False)
    for transpose in (True, False)
    for unit in (True, False)
]


def square(*batch: int, n: int) -> np.ndarray:
    return RNG.standard_normal((*batch, n, n)) + 2 * np.eye(n)


def positive(n: int) -> np.ndarray:
    a = square(2, n=n)
    return np.concatenate([a @ a.swapaxes(1, 2), -a[:1] @ a[:1].swapaxes(1, 2), np.full((1, n, n), np.nan)])


def special(n: int) -> np.ndarray:
    """Singular ones too, and zeros in the first place."""
    zero_first = square(1, n=n)
    zero_first[0, 0, 0] = 0.0
    return np.concatenate([square(2, n=n), zero_first, np.ones((1, n, n)), np.zeros((1, n, n))])


def factored(n: int) -> list[np.ndarray]:
    a = square(3, n=n)
    packed, _, rows = REFERENCE["lu"]({}, a)
    return [a, packed, rows, RNG.standard_normal((3, n, 2))]


def cases(n: int) -> list[tuple[str, dict[str, object], list[np.ndarray]]]:
    wide, tall = RNG.standard_normal((2, n, n + 2)), RNG.standard_normal((n + 1, n))
    return [
        ("cholesky", {}, [positive(n)]),
        *[("lu", {}, [a]) for a in (special(n), wide, tall)],
        *[("triangular_solve", attrs, [square(3, n=n), RNG.standard_normal((3, n, 2))]) for attrs in TRIANGULAR],
        *[("solve_factored", {"transpose": t}, factored(n)) for t in (False, True)],
    ]


def types(arrays: list[np.ndarray]) -> list[TensorType]:
    return [TensorType(a.shape, DTYPES[a.dtype.name]) for a in arrays]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_forms_are_the_references(n: int) -> None:
    assert {op for op, _, _ in cases(n)} == set(in_lanes.FORMS)
    for op, attrs, arrays in cases(n):
        graph, _ = trace(lambda *v, op=op, attrs=attrs: in_lanes.FORMS[op](attrs, v), types(arrays))
        for found, expected in zip(interpret(graph, arrays), REFERENCE[op](attrs, *arrays), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=f"{op} {attrs}")


@pytest.mark.parametrize(
    ("shape", "library", "stays"),
    [
        ((1000, 4, 4), LIBRARY, False),  # many small ones: lanes
        ((3, 4, 4), LIBRARY, True),  # few: the library
        ((8, 20, 20), LIBRARY, False),  # lanes in loops
        ((1000, 40, 40), LIBRARY, True),
        ((3, 4, 4), frozenset[str](), False),
    ],
)
def test_who_is_chosen(shape: tuple[int, ...], library: frozenset[str], stays: bool) -> None:
    graph, _ = trace(lambda a: emit("cholesky", (a,)), [TensorType(shape, DTYPES["float32"])])
    rewritten = rewrite_factorisations(graph, library)
    verify(rewritten)
    assert any(node.op == "cholesky" for node in rewritten.nodes) == stays
    a = RNG.standard_normal(shape).astype("float32")
    a = a @ a.swapaxes(-1, -2) + np.eye(shape[-1], dtype="float32")
    np.testing.assert_allclose(interpret(rewritten, [a])[0], np.linalg.cholesky(a), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("n", [2, 12, 16, 17, 33])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_nothing_is_left_where_no_library_is(n: int, dtype: str) -> None:
    """What a lane refuses is taken apart, whatever its size."""
    a = square(2, n=n).astype(dtype)
    if dtype == "complex128":
        a += 1j * RNG.standard_normal(a.shape)
    positive = a @ a.conj().swapaxes(1, 2) + np.eye(n)
    for right in (np.ones((2, n, 1), dtype), square(2, n=n).astype(dtype)):
        graph, _ = trace(lambda a, p, b: (mx.solve(a, b), mx.cholesky(p)), types([a, positive, right]))
        rewritten = rewrite_factorisations(in_pairs(graph), frozenset())
        assert not [node for node in rewritten.nodes if node.op in factorisations.ROWS]
        paired = [x if dtype == "float64" else x.view("float64").reshape(*x.shape, 2) for x in (a, positive, right)]
        results = interpret(rewritten, paired)
        x, factor = (np.ascontiguousarray(v).view(dtype).reshape(2, n, -1) for v in results)
        np.testing.assert_allclose(x, np.linalg.solve(a, right), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(factor, np.linalg.cholesky(positive), rtol=1e-9, atol=1e-11)
