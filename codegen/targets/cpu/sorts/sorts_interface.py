"""What the module of sorts exports, and how its functions are told what the elements are.

An element is its bits. `Keys` says what integer without sign its order is: bits of `width`, floats with their zeros and
their NaN as one key each (NaN last) or integers; `order` is a word that tells apart what shares functions: the bit that
integers with a sign have turned over, and the bits of a float's infinity.

Elements are moved as `raw`, their bits, as a `record` of these and a position, or as a `position` alone. Exported, with
the suffix of the keys and all numbers i64:

- `lg_sort.values(from, to, beside, rows, count, order)` sorts rows; `beside`: room for a row
- `lg_sort.positions(from, to, beside, between, rows, count, order)` finds the positions that sort rows; `beside` and
  `between`: room for a row of records each, and the latter may be `to`, where records are as wide as positions
- `lg_sort.digits(from, count, order, totals)` counts how often elements have which digit: 256 numbers for each digit,
  from the lowest on
- `lg_sort.digit.raw(from, count, order, shift, totals)` and `.record`: for the digit at a bit alone
- `lg_sort.move.raw.raw(from, count, start, order, shift, places, to)` and its like move elements to the `places` of
  their digits, which are counted on; `start` is the position of the first one, where that isn't in the record
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

DIGIT: Final = 8  # bits
VALUES: Final = 256  # of a digit: so many lines of memory are written to at once, which a first-level cache holds
FORMS: Final = ("raw", "record")  # that are read
MOVES: Final = (("raw", "raw"), ("raw", "record"), ("record", "record"), ("record", "position"), ("raw", "position"))
MOST: Final = 1 << 32  # elements of a row whose positions are found


class Keys(NamedTuple):
    """What functions are for."""

    width: int
    real: bool

    @property
    def suffix(self) -> str:
        return f"{'f' if self.real else 'i'}{self.width}"

    @property
    def digits(self) -> int:
        return self.width // DIGIT

    @property
    def record_bytes(self) -> int:
        """Position and bits in one word, or in one each."""
        return 16 if self.width == 64 else 8


ALL_KEYS: Final = (*[Keys(width, False) for width in (8, 16, 32, 64)], *[Keys(width, True) for width in (16, 32, 64)])


def exports() -> tuple[str, ...]:
    names = (
        "values", "positions", "digits", *[f"digit.{form}" for form in FORMS],
        *[f"move.{given}.{result}" for given, result in MOVES],
    )  # fmt: skip
    return tuple([f"lg_sort.{name}.{keys.suffix}" for name in names for keys in ALL_KEYS])


def keys_of(dtype: np.dtype[np.generic]) -> tuple[Keys, int]:
    """And the word `order`."""
    width = 8 * dtype.itemsize
    if dtype.kind in "bu":
        return Keys(width, False), 0
    if dtype.kind == "i":
        return Keys(width, False), -1 << (width - 1)
    infinity = np.array(np.inf).astype(dtype).view(f"u{dtype.itemsize}")
    return Keys(width, True), int(infinity)
