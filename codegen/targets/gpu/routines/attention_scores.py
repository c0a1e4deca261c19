"""Scores of attention in registers: how arguments lie, where tiles do, masks and biases, and which keys a query doesn't
see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, log
from typing import Final, NamedTuple, Protocol

from loopgrad.codegen.targets.gpu.assembler import Val, Variable
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.routines.float_tiles import FloatMatrices
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import SIDE, Depth, LeftRows, MatrixCode, MatrixRows, Sums
from loopgrad.codegen.targets.gpu.routines.narrow_tiles import NarrowMatrices
from loopgrad.codegen.targets.gpu.routines.panel_tiles import PanelMatrices
from loopgrad.codegen.targets.gpu.routines.split_floats import float_matrices

LOG2E: Final = 1 / log(2)
WORD: Final = 4  # bytes of an f32
CACHED: Final = 1 << 24  # bytes that second-level caches hold beside all else
DEPTHS: Final[dict[str, Depth]] = {
    **dict.fromkeys(("b16", "f16"), NarrowMatrices.depth),
    **dict.fromkeys(("f32", "tf32"), FloatMatrices.depth),
}
"""Of the types of factors; "tf32" is float32 of which 11 bits are read."""


class SideLayout(NamedTuple):
    """How a mask or bias lies: the extents of leading axes, how far apart their elements are, and those of queries and
    keys; 0 where it is the same for all."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    along_queries: int
    along_keys: int


class SharedMatrices(NamedTuple):
    """Which matrix each of an array of so many extents has: how far apart they are, 0 where it is the same one."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shapes:
    """Of `count` attentions. `mask`, `bias`: how they lie, where there are some. `panels`: warpgroups multiply, by
    right factors in panels. `shared`: which keys and values each has, where they aren't its own."""

    type: str
    count: int
    queries: int
    keys: int
    width: int
    value_width: int
    causal: bool
    scale: float
    mask: SideLayout | None = None
    bias: SideLayout | None = None
    panels: bool = False
    shared: SharedMatrices | None = None

    @property
    def together(self) -> int:
        """So many attentions that their keys and values stay in a cache while all rows see them."""
        each = self.keys * (self.width + self.value_width) * DEPTHS[self.type].bytes
        most = max(CACHED // each, 1)
        return next(n for n in range(min(most, self.count), 0, -1) if self.count % n == 0)

    @property
    def depth(self) -> Depth:
        return PanelMatrices.depth if self.panels else DEPTHS[self.type]


class Sides:
    """Mask and bias of one of the attentions, at scores in registers."""

    def __init__(self, code: MatrixCode, shapes: Shapes, number: Val, mask: Val | None, bias: Val | None) -> None:
        self.code, self.shapes = code, shapes
        self.mask = self._base(mask, shapes.mask, number, 1)
        self.bias = self._base(bias, shapes.bias, number, WORD)

    @classmethod
    def of_arrays(cls, code: MatrixCode, shapes: Shapes, number: Val, arrays: Sequence[Val]) -> Sides:
        """The arrays of those that there are: bias, then mask."""
        given = iter(arrays)
        bias = next(given) if shapes.bias is not None else None
        return cls(code, shapes, number, next(given) if shapes.mask is not None else None, bias)

    def _base(self, address: Val | None, side: SideLayout | None, number: Val, size: int) -> Val | None:
        """Where that of the attention begins."""
        if address is None or side is None:
            return None
        return self.code.e.at(address, place_of(self.code, number, side.extents, side.strides), size)

    def place(self, side: SideLayout, row: Val, column: Val) -> Val:
        """The number of an element; `row`, `column`: of the query and the key, of which there may be none."""
        c, s = self.code, self.shapes
        along = c.op("IMul", c.below(row, s.queries), side.along_queries)
        return c.plus(along, c.op("IMul", c.below(column, s.keys), side.along_keys))

    def of(self, score: Val, row: Val, column: Val) -> Val:
        """The score (in units of the binary logarithm) with its bias, -inf where the mask hides it."""
        c, s = self.code, self.shapes
        if self.bias is not None and s.bias is not None:
            added = c.b.load(c.at(self.bias, self.place(s.bias, row, column), WORD), "f32", True)
            score = c.fma(added, c.f32(LOG2E), score)
        if self.mask is not None and s.mask is not None:
            seen = c.b.load(c.at(self.mask, self.place(s.mask, row, column), 1), "i8", True)
            score = c.e.select(c.test("INotEqual", seen, 0), score, c.f32(-inf))
        return score


def place_of(code: MatrixCode, number: Val, extents: Sequence[int], strides: Sequence[int]) -> Val:
    """Where something lies by its number (i64) in an array of those extents."""
    place = code.b.const("i64", 0)
    for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
        number, own = code.divided(number, extent)
        if stride:
            place = code.op("IAdd", place, code.op("IMul", own, stride))
    return place


def factor_of(code: MatrixCode, shapes: Shapes) -> tuple[bool, Val]:
    """Whether scores are multiplied by the scale before some are hidden or compared, which only a positive factor
    allows afterwards, and by what they are multiplied then, in units of the binary logarithm."""
    early = shapes.bias is not None or shapes.scale <= 0
    return early, code.f32(1.0 if early else shapes.scale * LOG2E)


def multiplied(code: MatrixCode, shapes: Shapes, scores: Sequence[Sums]) -> list[Sums]:
    by = code.f32(shapes.scale * LOG2E)
    return [[[code.scaled(x, by) for x in eight] for eight in sums] for sums in scores]


def rows_of(code: MatrixCode, array: Val, number: Val, count: int, width: int) -> MatrixRows:
    """Those of one of many matrices."""
    return MatrixRows(code.e.at(array, code.op("IMul", number, count * width), code.depth.bytes), count, width)


def matrix_code(e: Emitter, shapes: Shapes) -> MatrixCode:
    if DEPTHS[shapes.type] is FloatMatrices.depth:
        return float_matrices(e, shapes.type == "f32")
    return (PanelMatrices if shapes.panels else NarrowMatrices)(e, shapes.type)


class TiledRows(Protocol):
    """A program of tiles of `rows` queries or keys, of which `warps` have as many each, in memory of the workgroup
    where they are `held`, otherwise in registers."""

    @property
    def held(self) -> bool: ...

    @property
    def shapes(self) -> Shapes: ...

    @property
    def warps(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def row_blocks(self) -> int: ...


class ScoreTile:
    """One tile, of attention `number`, from row `first` on, and this warp's rows from `own_first` on. `backwards`: the
    last tile of an attention comes first. Tiles of those that are worked on `together` follow each other."""

    sides: Sides

    def __init__(self, e: Emitter, program: TiledRows, tile: Val, backwards: bool) -> None:
        self.e, self.b, self.s, self.program = e, e.b, program.shapes, program
        self.code = c = matrix_code(e, self.s)
        some, inside = c.divided(tile, self.s.together * program.row_blocks)
        order, own = c.divided(inside, self.s.together)
        self.number = c.op("IAdd", c.op("IMul", some, self.s.together), own)
        if backwards:
            order = c.op("ISub", self.b.const("i64", program.row_blocks - 1), order)
        self.first = e.resize(c.op("IMul", order, program.rows), "i32")
        self.own_first = c.plus(self.first, c.times(c.warp, program.rows // program.warps))
        self.early, self.factor = factor_of(c, self.s)

    def own_left(self, rows: MatrixRows, tiles: int) -> list[LeftRows]:
        """This warp's rows as left factors, 16 each."""
        c, program = self.code, self.program
        if not program.held:
            return [c.own_rows(rows, c.plus(self.own_first, SIDE * tile)) for tile in range(tiles)]
        held = c.held(program.rows, rows.width)
        c.copy_block(held, rows, self.first, program.rows)
        return c.tile_rows(held, tiles)

    def with_sides(self, sums: Sums, row: Val, at: Val, turned: bool = False) -> Sums:
        """Scores with mask and bias; `row`: of the first of these, `at`: of the first column, of keys or, `turned`, of
        queries."""
        c = self.code
        column = c.plus(at, c.column)

        def place(n: int, i: int) -> tuple[Val, Val]:
            own, other = c.plus(row, 8 * (i // 2)), c.plus(column, 8 * n + i % 2)
            return (other, own) if turned else (own, other)

        return [[self.sides.of(x, *place(n, i)) for i, x in enumerate(eight)] for n, eight in enumerate(sums)]


class Seen(NamedTuple):
    """Of each of a tile's two rows the first column that is seen, and the first that no longer is (i32); None: all."""

    least: Sequence[Val] | None
    most: Sequence[Val]


def only_seen(code: MatrixCode, scores: Sequence[Sums], partly: Val, seen: Sequence[Seen]) -> list[Sums]:
    """-inf in the place of scores that aren't; `partly`: whether there are some. Columns are counted from this
    invocation's first."""
    held = [[[code.b.local("f32") for _ in eight] for eight in sums] for sums in scores]
    for variables, sums in zip(held, scores, strict=True):
        _put(code, variables, sums)
    code.e.when(partly, partial(_hide, code, held, scores, seen))
    return [[[code.b.get(v, "f32") for v in eight] for eight in variables] for variables in held]


def _put(code: MatrixCode, variables: Sequence[Sequence[Variable]], sums: Sums) -> None:
    for eight, values in zip(variables, sums, strict=True):
        for variable, value in zip(eight, values, strict=True):
            code.b.set(variable, value)


def _hide(
    code: MatrixCode, held: Sequence[Sequence[Sequence[Variable]]], scores: Sequence[Sums], seen: Sequence[Seen]
) -> None:
    for variables, sums, (least, most) in zip(held, scores, seen, strict=True):
        for n, eight in enumerate(sums):
            for i, x in enumerate(eight):
                column = 8 * n + i % 2
                hidden = code.test("SLessThanEqual", most[i // 2], column)
                if least is not None:
                    early = code.test("SGreaterThan", least[i // 2], column)
                    hidden = code.b.inst("LogicalOr", "bool", hidden, early)
                code.b.set(variables[n][i], code.e.select(hidden, code.f32(-inf), x))
