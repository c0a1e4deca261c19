"""Who does Fourier transforms on GPUs.

A length that is a product of small primes, and of which a workgroup holds a row, is one launch (`dft_rows`). A longer
one, n = n1 n2, is two: n2 transforms of length n1 along columns, whose results are turned by powers of the root of
unity of n, then n1 of length n2 (D. H. Bailey, FFTs in external or hierarchical memory, 1990); these are two again
where n2 is more than a workgroup holds some rows of. Any other length is a convolution with a chirp, by transforms of a
power of two of at least 2 n - 1 (L. I. Bluestein, A linear filtering approach to the computation of the discrete
Fourier transform, 1968).

Real numbers are read as complex ones; of half a spectrum the rest is read as the conjugates that it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any, Final

import numpy as np

from loopgrad.codegen.targets.gpu.emit.context import SIZE
from loopgrad.codegen.targets.gpu.routines.butterflies import radices
from loopgrad.codegen.targets.gpu.routines.dft_rows import COARSE, DftRows, Side, padded
from loopgrad.codegen.targets.gpu.routines.routine import Array, Provider, Routine
from loopgrad.graph.primitives.fourier import axes_of, factor_of, spectrum_shape, transform_length

MOST_HELD: Final = 16  # numbers of an invocation, of 4 bytes a part; half as many of 8
FEW_HELD: Final = 4  # from which on a workgroup needs no further rows
SIDE_BY_SIDE: Final = 16  # rows of parts of transforms that a workgroup takes, if it can hold them
SECTOR: Final = 32  # bytes that memory hands out at least
LONGEST: Final = 1 << 28  # numbers of one transform, whose places are counted in 32 bits
Table = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Transform:
    """`count` transforms of `length` numbers from `source` to `target`, whose pitch is that between transforms.
    `before`, `after`: tables of factors. `beside`: how many lie side by side, pitches are between such arrays then."""

    length: int
    count: int
    inverse: bool
    source: Side
    target: Side
    factor: float = 1.0
    before: Table | None = None
    after: Table | None = None
    beside: int = 1


class _Launches:
    """Of one routine."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.dtype = routine.inputs[0].type.dtype
        self.type = f"f{self.dtype.bits}"

    # what a workgroup holds

    @property
    def most(self) -> int:
        """Numbers that a workgroup holds."""
        size = SIZE[self.type]
        numbers = self.routine.group * MOST_HELD * 4 // size
        while numbers and 2 * size * padded(numbers) > self.routine.memory:
            numbers //= 2
        return numbers

    def whole(self, length: int) -> bool:
        """Whether it holds a row."""
        return radices(length) is not None and length <= self.most

    def split(self, length: int) -> tuple[int, ...] | None:
        """Two or three lengths of rows that make this one, as alike as can be. Three where two are too long for
        neighbours in memory to be read together."""
        if radices(length) is None or length > LONGEST:
            return None
        two = _as_alike(length)
        if two[1] <= self.most and self._together(two[1]) * 2 * SIZE[self.type] >= SECTOR:
            return two
        for first in range(round(length ** (1 / 3)), 1, -1):
            if length % first == 0:
                three = first, *_as_alike(length // first)
                if three[2] <= self.most:
                    return three
        return two if two[1] <= self.most else None

    def can(self, length: int) -> bool:
        return self.whole(length) or self.split(length) is not None

    # launches

    def transform(self, t: Transform, source: Array, target: Array) -> None:
        """By one launch or two."""
        if self.whole(t.length):
            self._whole(t, source, target)
        else:
            self._split(t, source, target)

    def _whole(self, t: Transform, source: Array, target: Array) -> None:
        sides = [Side(0, side.pitch, 1, side.valid, side.form, side.whole) for side in (t.source, t.target)]
        rows = max(min(t.count, self.routine.group * FEW_HELD // t.length, self.most // t.length), 1)
        self._launch(t, t.length, 1, t.count, rows, sides, (source, target))

    def columns(self, t: Transform, source: Array, target: Array) -> None:
        """By one launch, of transforms that lie side by side."""
        sides = [side._replace(across=1, along=t.beside) for side in (t.source, t.target)]
        rows = self._together(t.length)
        self._launch(t, t.length, t.count // t.beside, t.beside, rows, sides, (source, target))

    def _split(self, t: Transform, source: Array, target: Array) -> None:
        """Columns of the first length, whose results are turned; where there are three, of each of what is left columns
        of the second one, which go behind what is left of the others; then rows of the last one."""
        found = self.split(t.length)
        assert found is not None
        n1, *middle, last = found
        between = self.routine.scratch(t.count * 2 * t.length, self.dtype)
        n, behind = t.length, t.length // n1
        columns = Side(n, 1, behind, n)
        first, second = replace(t, factor=1.0, after=None), replace(t, factor=1.0, before=None, after=None)
        of_source = t.source._replace(across=1, along=behind)
        self._launch(first, n1, t.count, behind, self._together(n1), [of_source, columns], (source, between), n)
        for n2 in middle:
            after = self.routine.scratch(t.count * 2 * n, self.dtype)
            for array in range(t.count):
                sides = [Side(behind, 1, last, n, base=array * n), Side(last, 1, n1 * last, n, base=array * n)]
                self._launch(second, n2, n1, last, self._together(n2), sides, (between, after), behind)
            between = after
        rows, of_target = Side(n, last, 1, n), t.target._replace(across=1, along=n // last)
        whole = replace(t, before=None)
        self._launch(whole, last, t.count, n // last, self._together(last), [rows, of_target], (between, target), 1)

    def _together(self, length: int) -> int:
        rows = SIDE_BY_SIDE
        while rows > 1 and rows * length > self.most:
            rows //= 2
        return rows

    def _launch(
        self, t: Transform, length: int, count: int, rows: int, together: int, sides: list[Side],
        arrays: tuple[Array, Array], turns: int = 0,
    ) -> None:  # fmt: skip
        factors = radices(length)
        assert factors is not None
        tables = [self._table(roots(length, np.arange(length), t.inverse))]
        if turns > 1:
            tables.append(self._table(roots(turns, np.arange(min(COARSE, turns)), t.inverse)))
            tables.append(self._table(roots(turns, np.arange(0, turns + COARSE, COARSE), t.inverse)))
        tables += [self._table(table) for table in (t.before, t.after) if table is not None]
        program = DftRows(
            self.type, length, factors, t.inverse, count, rows, together, sides[0], sides[1], t.factor, turns > 0,
            turns > 1, t.before is not None, t.after is not None,
        )  # fmt: skip
        self.routine.by_groups("dft_rows", program, program.tiles, *arrays, *tables)

    def _table(self, numbers: Table) -> Array:
        pairs = np.stack([numbers.real, numbers.imag], axis=-1).astype(self.dtype.np)
        return self.routine.constant(pairs)


def _as_alike(length: int) -> tuple[int, int]:
    """Two factors of it, the smaller one first."""
    first = next(n for n in range(isqrt(length), 0, -1) if length % n == 0)
    return first, length // first


def roots(n: int, powers: Table, inverse: bool) -> Table:
    """exp(-2 pi i k / n) for these k, or their conjugates, by angles of an eighth of a turn at most."""
    quarters, rest = np.divmod(4 * (powers % n), n)
    beyond = 2 * rest > n
    angle = np.pi / 2 * (np.where(beyond, n - rest, rest) / n)
    along, across = np.cos(angle), np.sin(angle)
    found = np.where(beyond, across, along) + 1j * np.where(beyond, along, across)
    turned: Table = found * np.array([1, 1j, -1, -1j])[quarters]
    return turned if inverse else turned.conj()


# ---- chirps


def chirp(n: int, inverse: bool) -> Table:
    """exp(-pi i j**2 / n): j k is half of j**2 + k**2 - (k - j)**2."""
    j = np.arange(n)
    return roots(2 * n, j * j % (2 * n), inverse)


def chirp_spectrum(n: int, padded_length: int, inverse: bool) -> Table:
    """Of the conjugate chirp on both sides of 0, over the length, so that the way back needs no factor."""
    back = np.conj(chirp(n, inverse))
    kernel = np.zeros(padded_length, np.complex128)
    kernel[:n] = back
    kernel[padded_length - n + 1 :] = back[:0:-1]
    return np.fft.fft(kernel) / padded_length


def chirp_length(n: int) -> int:
    return 1 << (2 * n - 2).bit_length()


# ---- providers


def _wanted(routine: Routine) -> Transform:
    """The transforms of a step."""
    source, target = routine.inputs[0].type, routine.outputs[0].type
    n = transform_length(routine.name, routine.attrs, source)
    factor, half = factor_of(str(routine.attrs["norm"]), n), n // 2 + 1
    whole, part = Side(n, 0, 0, n), Side(half, 0, 0, half)
    reals = whole._replace(form="real")
    match routine.name:
        case "real_dft":
            return Transform(n, source.size // n, False, reals, part, factor)
        case "hermitian_dft":
            mirrored = part._replace(form="half", whole=n, valid=n)
            return Transform(n, target.size // n, True, mirrored, reals, factor)
    return Transform(n, source.size // (2 * n), bool(routine.attrs["inverse"]), whole, whole, factor)


def _wanted_along(routine: Routine) -> Transform:
    """The transforms along one axis."""
    (axis,), attrs = axes_of(routine.attrs), routine.attrs
    shape = spectrum_shape(routine.name, routine.inputs[0].type, routine.outputs[0].type)
    n, beside = shape[axis], prod(shape[axis + 1 :])
    half, factor = n // 2 + 1, factor_of(str(attrs["norm"]), n)
    whole, part = Side(n * beside, 0, 0, n), Side(half * beside, 0, 0, half)
    reals = whole._replace(form="real")
    found = Transform(n, prod(shape) // n, False, whole, whole, factor, beside=beside)
    match routine.name:
        case "real_dft_along":
            return replace(found, source=reals, target=part)
        case "hermitian_dft_along":
            return replace(found, inverse=True, source=part._replace(form="half", whole=n, valid=n), target=reals)
    return replace(found, inverse=bool(attrs["inverse"]))


def _refuses_columns(routine: Routine) -> str:
    axes, launches = axes_of(routine.attrs), _Launches(routine)
    if len(axes) > 1:
        return "several axes"
    n = spectrum_shape(routine.name, routine.inputs[0].type, routine.outputs[0].type)[axes[0]]
    return "" if launches.whole(n) else "a row is more than a workgroup holds"


def _make_columns(routine: Routine) -> None:
    _Launches(routine).columns(_wanted_along(routine), routine.inputs[0], routine.outputs[0])


def _refuses_whole(routine: Routine) -> str:
    launches, n = _Launches(routine), _wanted(routine).length
    if radices(n) is None:
        return "the length has a prime factor above 13"
    return "" if launches.whole(n) else "a row is more than a workgroup holds"


def _refuses_split(routine: Routine) -> str:
    launches, n = _Launches(routine), _wanted(routine).length
    if radices(n) is None:
        return "the length has a prime factor above 13"
    return "" if launches.split(n) is not None else "a part of a row is more than a workgroup holds"


def _refuses_chirp(routine: Routine) -> str:
    launches, n = _Launches(routine), _wanted(routine).length
    return "" if launches.can(chirp_length(n)) else "a part of a row is more than a workgroup holds"


def _make(routine: Routine) -> None:
    _Launches(routine).transform(_wanted(routine), routine.inputs[0], routine.outputs[0])


def _make_chirp(routine: Routine) -> None:
    launches, t = _Launches(routine), _wanted(routine)
    n, longer = t.length, chirp_length(t.length)
    between = [routine.scratch(t.count * 2 * longer, launches.dtype) for _ in range(2)]
    whole, numbers = Side(longer, 0, 0, longer), chirp(n, t.inverse)
    spectrum = chirp_spectrum(n, longer, t.inverse)
    there = Transform(longer, t.count, False, t.source, whole, before=numbers, after=spectrum)
    launches.transform(there, routine.inputs[0], between[0])
    back = Transform(longer, t.count, True, whole, t.target, t.factor, after=numbers)
    launches.transform(back, between[0], routine.outputs[0])


WHOLE: Final = Provider("rows in memory of workgroups", _refuses_whole, _make)
SPLIT: Final = Provider("rows of parts in memory of workgroups", _refuses_split, _make)
CHIRP: Final = Provider("a convolution with a chirp, by transforms of a power of two", _refuses_chirp, _make_chirp)
PROVIDERS: Final = (WHOLE, SPLIT, CHIRP)
COLUMNS: Final = Provider("columns in memory of workgroups", _refuses_columns, _make_columns)
