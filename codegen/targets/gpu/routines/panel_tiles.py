"""Matrices of 16-bit floats for matrix units of warpgroups: right factors stay in memory of the workgroup, where rows
lie in panels of 64 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from loopgrad.codegen.targets.gpu.assembler import (
    PANEL_BYTES,
    PANEL_ROWS,
    WARP,
    WARPGROUP,
    PanelProduct,
    PanelRows,
    Panels,
    ProductChain,
    Val,
    WarpgroupUnits,
)
from loopgrad.codegen.targets.gpu.routines.matrix_tiles import (
    SIDE,
    Depth,
    HeldRows,
    LeftRows,
    MatrixCode,
    RowVariables,
    Sums,
)
from loopgrad.codegen.targets.gpu.routines.narrow_tiles import NarrowMatrices

PANEL: Final = PANEL_BYTES // 2  # elements of a row


class PanelDepth(Depth):
    """Of rows in panels."""

    def held_elements(self, block: int, width: int) -> int:
        return -(-self.padded(width) // PANEL) * PANEL * block


class PanelCode(MatrixCode):
    """What is copied is read by matrix units of warpgroups."""

    @property
    def group_units(self) -> WarpgroupUnits:
        units = self.b.warpgroup_units
        assert units is not None, "a target without matrix units of warpgroups has no such programs"
        return units

    def copied(self) -> None:
        super().copied()
        self.group_units.written()


class PanelMatrices(PanelCode, NarrowMatrices):
    """`HeldRows` are some panels here, one `pitch` elements after the other. Left factors that are used again are in
    memory, too: NVIDIA's assembler of driver 580 gives registers of theirs to others in between (an H200, where right
    factors of both products in a loop had as many columns)."""

    depth: ClassVar = PanelDepth(2)

    def held_twice(self, block: int, width: int, blocks: int = 2) -> Callable[[Val], HeldRows]:
        size = self.depth.held_elements(block, width)
        array = self.b.shared(self.element, blocks * size, PANEL_ROWS * PANEL_BYTES)

        def of(number: Val) -> HeldRows:
            start = self.op("IMul", self.divided(number, 2)[1], size) if blocks > 1 else self.i32(0)
            return HeldRows(array, self.depth.padded(width), block * PANEL, start)

        return of

    def cell(self, held: HeldRows, line: Val, column: Val) -> Val:
        panel, inside = self.divided(column, PANEL)
        chunk, own = self.divided(inside, self.depth.chunk)
        chunk = self.op("BitwiseXor", chunk, self.op("BitwiseAnd", line, PANEL_ROWS - 1))
        place = self.plus(self.times(line, PANEL), self.plus(self.times(chunk, self.depth.chunk), own))
        return self.plus(self.plus(place, self.op("IMul", panel, held.pitch)), held.start)

    def tile_rows(self, held: HeldRows, tiles: int) -> list[LeftRows]:
        assert tiles == 1, "rows of all warps of a warpgroup are read as one left factor"
        number = self.divided(self.warp, WARPGROUP)[0] if self.group > WARPGROUP * WARP else self.i32(0)
        start = self.plus(held.start, self.times(number, WARPGROUP * SIDE * PANEL))
        return [lambda k: PanelRows(held.array, start, self._place(held, k))]

    def _place(self, held: HeldRows, k: int) -> int:
        """Where columns number k of so many as a product adds up begin."""
        panel, inside = divmod(k * self.depth.elements, PANEL)
        return panel * held.pitch + inside

    def times_held(self, left: Sequence[LeftRows], held: HeldRows, block: int) -> list[Sums]:
        return self.products([self.scores(rows, held, block) for rows in left])

    def add_product(self, totals: RowVariables, left: Sequence[Sums], held: HeldRows) -> None:
        chains = [self.added(totals, tile, self.factors(sums), held) for tile, sums in enumerate(left)]
        for tile, sums in enumerate(self.products(chains)):
            self.put(totals, tile, sums)

    def scores(self, left: LeftRows, held: HeldRows, block: int) -> ProductChain:
        """left @ held.T: `block` columns."""
        steps = range(held.width // self.depth.elements)
        products = [PanelProduct(left(k), self._place(held, k)) for k in steps]
        return ProductChain(None, products, Panels(held.array, held.start, block))

    def factors(self, sums: Sums) -> list[list[Val]]:
        """Sums as left factors, 16 columns of each."""
        return [self._as_factor(*sums[2 * k : 2 * k + 2]) for k in range(len(sums) // 2)]

    def added(self, totals: RowVariables, tile: int, left: Sequence[Sequence[Val]], held: HeldRows) -> ProductChain:
        """totals + left @ held."""
        before = [x for eight in self.taken(totals, tile) for x in eight]
        products = [PanelProduct(words, k * SIDE * PANEL) for k, words in enumerate(left)]
        return ProductChain(before, products, Panels(held.array, held.start, held.width, True, held.pitch))

    def products(self, chains: Sequence[ProductChain]) -> list[Sums]:
        found = self.group_units.products(chains, self.type)
        return [[values[n : n + 4] for n in range(0, len(values), 4)] for values in found]
