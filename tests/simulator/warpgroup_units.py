"""Matrix units of warpgroups for the simulator, element by element as PTX says; nothing is shared with
`nvptx/warpgroup_units.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from loopgrad.codegen.targets.gpu.assembler import WARP, WARPGROUP, PanelRows, Panels, ProductChain, Val
from tests.simulator.matrix_units import HostUnits

if TYPE_CHECKING:
    from tests.simulator.code import HostAssembler


class HostWarpgroupUnits:
    """Implements codegen.targets.gpu.assembler.WarpgroupUnits."""

    def __init__(self, units: HostUnits) -> None:
        self.units, self.b = units, units.b

    def products(self, chains: Sequence[ProductChain], type: str) -> list[list[Val]]:
        return [self._chain(chain, type) for chain in chains]

    def _chain(self, chain: ProductChain, type: str) -> list[Val]:
        u, right = self.units, chain.right
        array = self.b.place_of(right.array, u.i32(0))
        sums = list(chain.sums or [self.b.const("f32", 0.0)] * (right.columns // 2))
        for product in chain.products:
            left, held = product.left, isinstance(product.left, PanelRows)
            if isinstance(left, PanelRows):
                mine = [u.b.place_of(left.array, u.i32(0)), u.op("IAdd", left.start, left.at)]
            else:
                u.shown(left)
                mine = [u.b.place_of(u.words, u.cell(u.i32(0), 0)), u.i32(0)]
            first = u.op("IAdd", right.start, product.at)
            for n, total in enumerate(sums):
                given = [*mine, u.b.local_id(), total, array, first, u.i32(8 * (n // 4) + n % 2)]
                name = f"panel.{type}.{n % 4 // 2}.{right.apart if right.turned else 0}.{held}"
                (sums[n],) = self.b.outlined(name, given, partial(self._sum, type, n % 4 // 2, right, held))
        return sums

    def _sum(self, type: str, half: int, right: Panels, held: bool, given: Sequence[Val]) -> list[Val]:
        """total + one row of the left factor times one column of the right one."""
        u = self.units
        left, begin, member, total, array, first, column = given
        lane = u.op("BitwiseAnd", member, WARP - 1)
        warp = u.op("BitwiseAnd", u.op("UDiv", member, WARP), WARPGROUP - 1)
        row, quarter = u.op("UDiv", lane, 4), u.op("BitwiseAnd", lane, 3)
        column = u.op("IAdd", column, u.op("IMul", quarter, 2))
        together = 1 if type == "tf32" else 2  # numbers in a word
        panel = 32 * together
        line = u.op("IAdd", u.op("IAdd", u.op("IMul", warp, 16), row), 8 * half)
        for k in range(8 * together):
            whole, part = divmod(k, together)
            holder = u.op("IAdd", u.op("IMul", row, 4), whole % 4)
            cell = u.op("IAdd", u.op("IMul", holder, 8), half + 2 * (whole // 4))
            if held:
                mine = self._number(left, u.op("IAdd", begin, u.op("IAdd", u.op("IMul", line, panel), k)), type)
            else:
                mine = u.number(self._at(left, cell, 4, "i32"), part, type)
            other = self._number(array, u.op("IAdd", first, self._place(k, column, panel, right)), type)
            total = self.b.extended("Fma", "f32", mine, other, total)
        return [total]

    def _number(self, array: Val, place: Val, type: str) -> Val:
        """One of a panel's elements, by its place were chunks not permuted."""
        together = 1 if type == "tf32" else 2
        found = self._at(array, self._permuted(place, 32 * together), 4 // together, f"i{32 // together}")
        return self.units.number(self.b.inst("UConvert", "i32", found), 0, type)

    def _place(self, k: int, column: Val, panel: int, right: Panels) -> Val:
        """Of a right factor's element behind its first, were chunks not permuted."""
        u = self.units
        if not right.turned:
            return u.op("IAdd", u.op("IMul", column, panel), k)
        above, inside = u.op("UDiv", column, panel), u.op("BitwiseAnd", column, panel - 1)
        return u.op("IAdd", u.op("IAdd", u.op("IMul", above, right.apart), k * panel), inside)

    def _permuted(self, place: Val, panel: int) -> Val:
        u, chunk = self.units, panel // 8
        row = u.op("BitwiseAnd", u.op("UDiv", place, panel), 7)
        return u.op("BitwiseXor", place, u.op("IMul", row, chunk))

    def _at(self, base: Val, place: Val, size: int, type: str) -> Val:
        wide = self.b.inst("UConvert", "i64", self.units.op("IMul", place, size))
        return self.b.load(self.b.inst("IAdd", "i64", base, wide), type)

    def written(self) -> None:
        """Memory of a workgroup is one here."""

    def turns(self, number: Val) -> HostTurns:
        return HostTurns(self.b)


class HostTurns:
    """Implements codegen.targets.gpu.assembler.Turns: warpgroups go on together, since all meet in each product."""

    def __init__(self, b: HostAssembler) -> None:
        self.take = self.pass_on = b.barrier

    def begin(self) -> None:
        """Nobody waits for a turn."""

    end = begin
