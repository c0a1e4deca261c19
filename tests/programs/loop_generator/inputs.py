"""The numbers a program runs on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loop_generator.description import FLOATS, Program

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Inputs:
    """Floats x, e (lanes), s, T (table), R (table's rows), a (cells); integers n, q, p (lanes), u, J (table). `p` are
    different positions of the cells where there are enough. `directions`: one tangent for each float."""

    arrays: Arrays
    directions: Arrays

    @staticmethod
    def drawn(program: Program, variant: int) -> Inputs:
        """Variants differ in every number, trip counts included."""
        draw = np.random.default_rng((program.seed, variant, 77))
        shape, table, cells, width = program.shape, program.table, program.cells, program.width
        kinds = dict(zip("nqpu", program.dtypes, strict=True))
        sizes = {"x": shape, "e": shape, "s": (), "T": (table,), "R": (table, width), "a": (cells,)}
        least = {name: 0 if kind.startswith("u") else 1 for name, kind in kinds.items()}
        positions = np.resize(draw.permutation(cells), program.lanes)
        integers = {
            "n": draw.integers(-2 * least["n"], 7, shape),
            "q": draw.integers(-3 * least["q"], max(table, 3) + 3, shape),
            "p": positions.reshape(shape),
            "u": draw.integers(-1 * least["u"], 5, ()),
        }
        arrays = {name: np.asarray(draw.uniform(-1, 1, size), program.dtype) for name, size in sizes.items()}
        arrays |= {name: np.asarray(values, kinds[name]) for name, values in integers.items()}
        arrays["J"] = draw.integers(-2, 6, table)
        directions = {name: np.asarray(draw.uniform(-1, 1, size), program.dtype) for name, size in sizes.items()}
        return Inputs(arrays, directions)

    def floats(self) -> list[np.ndarray]:
        return [self.arrays[name] for name in FLOATS]

    def along(self) -> list[np.ndarray]:
        return [self.directions[name] for name in FLOATS]
