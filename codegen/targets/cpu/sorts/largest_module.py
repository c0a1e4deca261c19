"""Where the few largest elements of rows are, as an LLVM module for keys of one kind.

Those of the elements that were looked at lie in order, with their positions; nearly every other element is less than
the last of them. Exported, all numbers i64: `lg_largest.<keys>(from, to, beside, rows, count, most, order)` writes
`most` positions of each row of `count` elements; `beside` is room for as many keys.
"""

from __future__ import annotations

from loopgrad.codegen.targets.cpu.ir_text import Index, IrText
from loopgrad.codegen.targets.cpu.sorts.sorts_interface import Keys
from loopgrad.codegen.targets.cpu.sorts.sorts_module import Sorts


def largest_ir(keys: Keys) -> str:
    """The module's text."""
    return FewLargest(keys).text()


class FewLargest:
    """The function for keys of one kind."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self.bits = Sorts(keys), f"i{keys.width}"

    def text(self) -> str:
        t = IrText()
        order = self.keys.order(t)
        with t.loop("%rows") as row:
            given, found = t.at(self.bits, "%from", t.mul(row, "%count")), t.at("i64", "%to", t.mul(row, "%most"))
            with t.loop("%most") as i:
                key, place = self.put_in(t, self.key(t, given, i, order), i, found, i)
                t.put(f"store {self.bits} {key}, ptr {t.at(self.bits, '%beside', i)}, align 1")
                t.put(f"store i64 {place}, ptr {t.at('i64', found, i)}, align 8")
            last = t.at(self.bits, "%beside", t.let("sub i64 %most, 1"))
            with t.loop("%count", start="%most") as i:
                key = self.key(t, given, i, order)
                larger = t.let(f"icmp ugt {self.bits} {key}, {t.load(self.bits, last)}")
                with t.first_of() as end, t.case(end, larger):
                    self.put_in(t, key, i, found, "%most")
        t.put("ret void")
        words = "i64 %rows, i64 %count, i64 %most, i64 %order"
        return t.function(
            f"void @lg_largest.{self.keys.suffix}(ptr noalias %from, ptr noalias %to, ptr noalias %beside, {words})"
        )

    def key(self, t: IrText, given: str, index: str, order: str) -> str:
        return self.keys.key(t, t.load(self.bits, given, index), order)

    def put_in(self, t: IrText, key: str, position: str, found: str, count: Index) -> tuple[str, str]:
        """An element behind those of the first `count` that are larger, or equal and earlier; what is left over."""
        left, place = t.variable(self.bits, key), t.variable("i64", position)
        with t.loop(count) as j:
            at, position_at = t.at(self.bits, "%beside", j), t.at("i64", found, j)
            mine, its = t.load(self.bits, left), t.load(self.bits, at)
            my_place, its_place = t.load("i64", place), t.load("i64", position_at)
            larger, equal = (t.let(f"icmp {how} {self.bits} {mine}, {its}") for how in ("ugt", "eq"))
            earlier = t.let(f"and i1 {equal}, {t.let(f'icmp ult i64 {my_place}, {its_place}')}")
            before = t.let(f"or i1 {larger}, {earlier}")
            for type, mine_is, its_is, kept, behind in (
                (self.bits, mine, its, at, left), ("i64", my_place, its_place, position_at, place)
            ):  # fmt: skip
                first = t.let(f"select i1 {before}, {type} {mine_is}, {type} {its_is}")
                second = t.let(f"select i1 {before}, {type} {its_is}, {type} {mine_is}")
                t.put(f"store {type} {first}, ptr {kept}, align 1")
                t.put(f"store {type} {second}, ptr {behind}, align 1")
        return t.load(self.bits, left), t.load("i64", place)
