"""What is recorded of one number, against the same computed with others."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, prod
from typing import Any

import numpy as np
import pytest

from loopgrad.codegen.extents.conditions import conditions
from loopgrad.codegen.extents.decisions import ExtentDecisions
from loopgrad.codegen.extents.extent import Extent, Piece, double_bits, integer_of, representative
from loopgrad.codegen.extents.template import Templates
from loopgrad.codegen.extents.variables import variables
from loopgrad.codegen.targets.cpu.open_numbers import numbered
from loopgrad.codegen.targets.cpu.open_program import OpenCode, _table
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.skeleton import outlined, with_integers
from loopgrad.graph.types import TensorType, float64, floating, power_of_two, rounded, scalar_text

NUMBERS = (0, 1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 255, 256, 257, 1000, 4096, 65535, 65536, 65537)


def chunks(n: int, m: int) -> Any:
    lanes = n * m
    size = min(max(lanes // 128, 1 << 10, 16 * m), 1 << 16)
    size = (size + 63) // 64 * 64
    return (size, -(-lanes // size)) if size % 3 else ("thirds", size // 3, lanes % size)


def offsets(n: int, m: int) -> Any:
    found, at = [], 0
    for nbytes in (8 * n, 4 * m, n * m, 0):
        found.append(at)
        at = (at + nbytes + 63) // 64 * 64
    return found, f"{at:,} bytes", (at >> 3) & 7, at ^ 5, (n << 3) | 1, at.bit_length()


def costs(n: int, m: int) -> Any:
    cost = 1.5 * n + m / 3
    if cost > 4096.0:
        return "large", n - m
    return ("one", abs(n - m)) if cost < 2 * m else ("few", divmod(n + 5, m + 1))


def tables(n: int, m: int) -> Any:
    known = {n: "n", m: "m", n + m: "both", prod((n, m)): "product"}
    return known.get(m), known.get(n), len(known), sorted({n, m, 2 * n, 64}), n == m


def written(n: int, m: int) -> Any:
    names = [f"{n:d}", f"{m:d}"]
    return ("same" if names[0] == names[1] else "other", "one" if names[1] == "1" else integer_of(names[0]) * 2)


def floats(n: int, m: int) -> Any:
    """As code has constants of them."""
    x = 1.0 * n
    kind = "same" if scalar_text(x) == scalar_text(1.0 * m) else "power" if power_of_two(x) else "other"
    return kind, double_bits(x, 64), double_bits(x / 3.0, 32), f"0x{double_bits(floating(x), 32):016X}"


def quantiles(n: int, m: int) -> Any:
    """As constants are folded."""
    place = rounded(0.3 * rounded(1.0 * n - 1.0, 32), 32)
    below = floor(place) if place > 0 else 0
    return below, below + 1 < m, double_bits(rounded(place - rounded(1.0 * below, 32), 32), 32)


def sampled(n: int, m: int) -> Any:
    """By how many bits it has."""
    return representative(n) < 1 << n.bit_length(), n + m


@pytest.mark.parametrize("function", [chunks, offsets, costs, tables, written, floats, quantiles, sampled])
def test_filled_in_is_computed(function: Callable[[int, int], Any]) -> None:
    """For each pair of numbers for which what was recorded of another pair holds."""
    rng = np.random.default_rng(3)
    pairs = [(int(a), int(b)) for a, b in rng.choice(NUMBERS, (60, 2))]
    held = 0
    for first in pairs[:30]:
        decisions = ExtentDecisions(2)
        made = function(*[extent(decisions, i, value) for i, value in enumerate(first)])
        templates = Templates(decisions)
        fill = templates.filling(made) or (lambda _, made=made: made)
        holds = conditions(decisions, templates.used, ())
        for other in [*pairs, (first[0] + 1, first[1]), (first[0] + 64, first[1] + 1)]:
            atoms = holds.atoms(other)
            if atoms is not None:
                held += other != first
                assert fill(atoms) == function(*other), (first, other)
    assert held > 3


def extent(decisions: ExtentDecisions, number: int, value: int) -> Any:
    return Extent(decisions, (((number,), 1),), value)


READERS: dict[str, Callable[[Any], Any]] = {
    "range": lambda n: list(range(n)),
    "index": lambda n: [*range(100)][n],
    "slice": lambda n: "x" * 100 if n is None else ("x" * 100)[:n],
    "repetition": lambda n: [0] * n,
    "array": lambda n: np.zeros(n).shape,
    "element": lambda n: int(np.asarray([n])[0]),
    "float": float,
    "power": lambda n: 2**n,
    "shift": lambda n: 1 << n,
    "percent": lambda n: f"{n!s}" and "%d" % n,  # noqa: UP031
    "attribute": lambda n: n.real,
    "text": lambda n: int(f"{n}"),
}


@pytest.mark.parametrize("name", READERS)
def test_who_takes_the_number_fixes_it(name: str) -> None:
    decisions = ExtentDecisions(1)
    assert READERS[name](extent(decisions, 0, 40)) == READERS[name](40)
    holds = conditions(decisions, (), ())
    assert holds.atoms([40]) is not None
    assert holds.atoms([41]) is None


def test_an_extent_is_an_int() -> None:
    n = extent(ExtentDecisions(1), 0, 40)
    assert isinstance(n, int)
    assert not isinstance(n, float)
    assert isinstance(n * 0.5, float)
    assert type(f"{n}") is Piece
    with pytest.raises(TypeError, match="can't leave"):
        n.__reduce__()


def test_integers_of_a_graph_come_back() -> None:
    def body(x: Any) -> Any:
        return (ops.div(ops.reshape(ops.slice(x, (2, 0), (7, 3), (1, 1)), (15,)), 21.0),)

    graph, _ = trace(body, [TensorType((9, 3), float64)])
    skeleton, integers = outlined(graph)
    assert {9, 3, 7, 15, 21} <= set(integers)
    larger = [{9: 90, 7: 70, 15: 204, 21: 210}.get(i, i) for i in integers]
    again = outlined(with_integers(graph, larger))
    assert again == (skeleton, larger)


def test_what_follows_from_symbols() -> None:
    found = variables([(5, 7, 35, 10, 8, 3), (6, 9, 54, 12, 9, 3), (9, 9, 81, 18, 12, 3)])
    assert found is not None
    assert found.places == (0, 1)
    assert found.constants == ((5, 3),)
    assert found.values((20, 30, 600, 40, 23, 3)) == [20, 30]
    assert found.values((20, 30, 600, 40, 23, 4)) is None
    assert found.values((20, 30, 601, 40, 23, 3)) is None
    assert variables([(1, 2), (1, 2)]) is None


def test_a_float_that_code_has_not_open_is_a_condition() -> None:
    decisions = ExtentDecisions(1)
    n = extent(decisions, 0, 100)
    parts = numbered(f"  %half = fdiv double %x, 0x{double_bits(1.0 * n, 64):016X}\n")
    code = OpenCode(b"", (), [f"0x{double_bits(100.0, 64):016X}"])
    assert _table(Templates(decisions), parts, code, decisions)([]) == ()
    holds = conditions(decisions, (), ())
    assert holds.atoms([100]) is not None
    assert holds.atoms([101]) is None
