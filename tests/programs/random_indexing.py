"""Random indices against NumPy: slices, numbers, None, an ellipsis, positions and masks in one index, and what is done
with them: reading, assigning, `op=`, `at[...]`, eagerly, compiled and under vmap, and the derivatives of both.

One seed is one `Case`. Elements are small whole numbers, so that results are equal to the last bit; a derivative is
that of a linear function, which NumPy says by adding weights at the index (`np.add.at`), or by which value was written
last.

    python tests/programs/random_indexing.py --count 3000 --first 0 --device cpu
"""

from __future__ import annotations

import argparse
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import loopgrad as lg

DTYPES = ("float64", "float64", "float32", "float16", "int64", "int8", "uint16", "bool", "complex128")
BROADCAST = ((), (1,), (2,), (3,), (2, 1), (1, 3), (2, 3), (0,))  # shapes that positions of one index have
UPDATES = {"add": "add", "subtract": "subtract", "multiply": "multiply", "maximum": "max", "minimum": "min"}
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.iadd, "subtract": operator.isub, "multiply": operator.imul,
}  # fmt: skip
Problem = str | None


@dataclass(frozen=True)
class Case:
    """An array, an index of it, the numbers that are put there, and weights of a linear function."""

    seed: int
    x: np.ndarray
    index: tuple[Any, ...]
    form: str  # of positions: tensors, NumPy's arrays or lists
    values: np.ndarray
    op: str

    def ours(self) -> Any:
        """The index with positions in the case's form; lists of one number are left to NumPy's arrays."""
        forms = {"tensors": lg.asarray, "arrays": lambda a: a, "lists": lambda a: a.tolist() if a.ndim else a}
        return tuple([forms[self.form](p) if isinstance(p, np.ndarray) else p for p in self.index])

    @property
    def masked(self) -> bool:
        return any(isinstance(p, np.ndarray) and p.dtype == bool for p in self.index)

    def weights(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(self.seed + 1).integers(-8, 9, shape).astype(float)


def drawn(seed: int) -> Case:
    r, numbers = random.Random(seed), np.random.default_rng(seed)
    least = 0 if r.random() < 0.1 else 1
    shape = tuple([max(least, r.choice((0, 1, 2, 3, 3, 4, 5))) for _ in range(r.randint(1, 4))])
    x = numbers.integers(-8, 9, shape).astype(r.choice(DTYPES))
    index = _index(r, shape)
    part = x[index].shape
    stretched = r.choice((part, part, part[-1:], (), (1,) * len(part)))
    given = np.dtype("int64") if x.dtype.kind in "fc" and r.random() < 0.3 else x.dtype
    values = numbers.integers(-8, 9, stretched).astype(given)
    return Case(seed, x, index, r.choice(("tensors", "arrays", "lists")), values, r.choice(tuple(UPDATES)))


def _index(r: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    parts: list[Any] = []
    advanced, positions = r.random() < 0.6, r.choice(BROADCAST)
    for extent in shape[: r.randint(0, len(shape))]:
        kind = r.choice(("number", "slice", "slice", "positions", "positions", "mask", "none"))
        if kind == "none":
            parts.append(None)
        if kind == "number" and extent:
            parts.append(r.randrange(-extent, extent))
        elif kind == "positions" and advanced and extent:
            chosen = r.choice((positions, positions, positions[-1:]))
            drawn_places = [r.randrange(-extent, extent) for _ in range(int(np.prod(chosen)))]
            parts.append(np.array(drawn_places, np.int64).reshape(chosen))
        elif kind == "mask" and advanced:
            parts.append(np.array([r.random() < 0.6 for _ in range(extent)], bool))
        else:
            ends = [r.choice((None, r.randint(-extent - 1, extent + 1))) for _ in range(2)]
            parts.append(slice(*ends, r.choice((None, 1, 2, -1, -2, 3))))
    if r.random() < 0.35:
        parts.append(Ellipsis)
    if r.random() < 0.15:
        parts.append(None)
    try:
        np.empty(shape)[tuple(parts)]
    except IndexError:  # a mask holds at another number of places than there are positions
        return _index(r, shape)
    return tuple(parts)


def _equal(name: str, found: Any, expected: Any) -> Problem:
    got, wanted = np.asarray(found), np.asarray(expected)
    if got.shape == wanted.shape and got.dtype == wanted.dtype and np.array_equal(got, wanted):
        return None
    return f"{name}: {got!r}, NumPy {wanted!r}"


def reading(case: Case) -> Problem:
    at, expected, x = case.ours(), case.x[case.index], lg.asarray(case.x)
    if problem := _equal("read", x[at], expected):
        return problem
    if case.masked:
        return None
    rows = np.stack([case.x, case.x[::-1] if case.x.ndim else case.x, case.x])
    mapped = lg.vmap(lambda row: row[at])(lg.asarray(rows))
    wanted = np.stack([row[case.index] for row in rows])
    return _equal("compiled", lg.compile(lambda x: x[at])(x), expected) or _equal("vmap", mapped, wanted)


def assigning(case: Case) -> Problem:
    at, expected = case.ours(), case.x.copy()
    expected[case.index] = case.values

    def assigned(x: Any, values: Any) -> Any:
        x[at] = values
        return x

    x, y, values = lg.asarray(case.x), lg.asarray(case.x), lg.asarray(case.values)
    results = {"returned": assigned(x, values), "written": x, "compiled": lg.compile(assigned)(y, values), "seen": y}
    return next((p for name, r in results.items() if (p := _equal(name, r, expected))), None)


def in_place(case: Case) -> Problem:
    if case.op not in IN_PLACE or case.x.dtype == bool:
        return None
    x, expected, at = lg.asarray(case.x), case.x.copy(), case.ours()
    expected[case.index] = IN_PLACE[case.op](expected[case.index], case.values)
    x[at] = IN_PLACE[case.op](x[at], lg.asarray(case.values))
    return _equal(f"{case.op} in place", x, expected)


def updating(case: Case) -> Problem:
    if case.x.dtype.kind in "bc":
        return None
    values, expected = case.values.astype(case.x.dtype), case.x.copy()
    getattr(np, case.op).at(expected, case.index, values)
    found = getattr(lg.asarray(case.x).at[case.ours()], UPDATES[case.op])(lg.asarray(values))
    return _equal(f"at[...].{UPDATES[case.op]}", found, expected)


def derivative_of_reading(case: Case) -> Problem:
    x, at = lg.asarray(case.x.real.astype(float)), case.ours()
    weights = case.weights(case.x[case.index].shape)
    expected = np.zeros(case.x.shape)
    np.add.at(expected, case.index, weights)
    return _equal("derivative", lg.grad(lambda x: lg.sum(x[at] * lg.asarray(weights)))(x), expected)


def derivative_of_assigning(case: Case) -> Problem:
    """A weight goes to the value that was written last, or to the element where none was."""
    x, values, at = case.x.real.astype(float), case.values.real.astype(float), case.ours()
    weights, last = case.weights(x.shape), np.full(x.shape, -1)
    last[case.index] = np.arange(values.size).reshape(values.shape)
    of_values = np.zeros(values.size)
    np.add.at(of_values, last[last >= 0], weights[last >= 0])

    def loss(x: Any, values: Any) -> Any:
        x[at] = values
        return lg.sum(x * lg.asarray(weights))

    by_x, by_values = lg.grad(loss, argnums=(0, 1))(lg.asarray(x), lg.asarray(values))
    kept = _equal("derivative by x", by_x, np.where(last < 0, weights, 0.0))
    return kept or _equal("derivative by values", by_values, of_values.reshape(values.shape))


WAYS = (reading, assigning, in_place, updating, derivative_of_reading, derivative_of_assigning)


def check_case(seed: int, device: str) -> None:
    """Raises AssertionError with the case where a way differs from NumPy."""
    case = drawn(seed)
    way = WAYS[seed % len(WAYS)]
    with lg.default_device(device), np.errstate(all="ignore"):
        problem = way(case)
    assert problem is None, f"seed {seed}, {case.x.dtype}{case.x.shape}[{case.index}], {case.form}: {problem}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    failed = 0
    for number in range(options.first, options.first + options.count):
        try:
            check_case(number, options.device)
        except Exception as error:
            failed += 1
            print(f"{number}: {type(error).__name__} {error}")
    print(f"{options.count} cases, {failed} failed")
