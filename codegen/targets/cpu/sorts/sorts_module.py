"""Stable sorts by digits, from the lowest on, as an LLVM module: what is exported, sorts_interface.py says.

One look at a row counts all of its digits. Digits that all elements share are passed over. The others are a pass each
that reads elements in order and writes each one behind the last that had its digit (Knuth, "The Art of Computer
Programming", volume 3, section 5.2.5). Keys are made of bits whenever a digit is looked at, so that zeros with a sign
and NaN keep their bits and their order.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.targets.cpu.ir_text import Index, IrText
from loopgrad.codegen.targets.cpu.sorts.sorts_interface import ALL_KEYS, DIGIT, FORMS, MOVES, VALUES, Keys

POSITION_BIT: Final = 32  # of a record of one word: bits of the element are below


def sorts_ir() -> str:
    """The module's text."""
    head = "declare ptr @memset(ptr, i32, i64)\ndeclare ptr @memcpy(ptr, ptr, i64)\n"
    return head + "".join(Sorts(keys).text() for keys in ALL_KEYS)


class Sorts:
    """The functions for keys of one kind."""

    def __init__(self, keys: Keys) -> None:
        self.keys, self.bits, self.suffix = keys, f"i{keys.width}", keys.suffix
        self.wide = keys.width > POSITION_BIT  # records are of two words
        self.totals = keys.digits * VALUES

    def text(self) -> str:
        counts = [self.digits(), *[self.digit(form) for form in FORMS]]
        moves = [self.move(given, result) for given, result in MOVES]
        return "".join([*counts, *moves, self.values(), self.positions()])

    def named(self, name: str) -> str:
        return f"@lg_sort.{name}.{self.suffix}"

    # ---- elements

    def element(self, t: IrText, form: str, base: str, index: str) -> str:
        """Its bits."""
        if form == "raw":
            return t.load(self.bits, base, index)
        word = t.load("i64", base, t.mul(index, 2) if self.wide else index)
        return word if self.wide else t.let(f"trunc i64 {word} to {self.bits}")

    def position(self, t: IrText, form: str, base: str, index: str) -> str:
        if form == "raw":
            return t.add("%start", index)
        if self.wide:
            return t.load("i64", base, t.add(t.mul(index, 2), 1))
        return t.let(f"lshr i64 {t.load('i64', base, index)}, {POSITION_BIT}")

    def put(self, t: IrText, form: str, element: str, position: str, place: str) -> None:
        if form == "raw":
            t.put(f"store {self.bits} {element}, ptr {t.at(self.bits, '%to', place)}, align 1")
        elif form == "position":
            t.put(f"store i64 {position}, ptr {t.at('i64', '%to', place)}, align 1")
        elif self.wide:
            record = t.at("i64", "%to", t.mul(place, 2))
            t.put(f"store i64 {element}, ptr {record}, align 1")
            t.put(f"store i64 {position}, ptr {t.at('i64', record, 1)}, align 1")
        else:
            low, high = self.extended(t, element), t.let(f"shl i64 {position}, {POSITION_BIT}")
            t.put(f"store i64 {t.let(f'or i64 {low}, {high}')}, ptr {t.at('i64', '%to', place)}, align 1")

    def extended(self, t: IrText, bits: str) -> str:
        return bits if self.keys.width == 64 else t.let(f"zext {self.bits} {bits} to i64")

    def order(self, t: IrText) -> str:
        return "%order" if self.keys.width == 64 else t.let(f"trunc i64 %order to {self.bits}")

    def key(self, t: IrText, element: str, order: str) -> str:
        """Floats below 0 have all of their bits turned over, others that of their sign."""
        type, top = self.bits, -1 << (self.keys.width - 1)
        if not self.keys.real:
            return t.let(f"xor {type} {element}, {order}")
        negative = t.let(f"ashr {type} {element}, {self.keys.width - 1}")
        turned = t.let(f"xor {type} {element}, {t.let(f'or {type} {negative}, {top}')}")
        size = t.let(f"and {type} {element}, {~top}")
        zero, nan = t.let(f"icmp eq {type} {size}, 0"), t.let(f"icmp ugt {type} {size}, {order}")
        number = t.let(f"select i1 {zero}, {type} {top}, {type} {turned}")
        return t.let(f"select i1 {nan}, {type} -1, {type} {number}")

    def digit_at(self, t: IrText, key: str, shift: Index) -> str:
        moved = t.let(f"lshr {self.bits} {key}, {shift}")
        return t.let(f"and i64 {self.extended(t, moved)}, {VALUES - 1}")

    def shift(self, t: IrText) -> str:
        return "%shift" if self.keys.width == 64 else t.let(f"trunc i64 %shift to {self.bits}")

    # ---- passes

    def counted(self, t: IrText, base: str, index: str) -> str:
        """What was counted before."""
        place = t.at("i64", base, index)
        before = t.load("i64", place)
        t.put(f"store i64 {t.add(before, 1)}, ptr {place}, align 8")
        return before

    def digits(self) -> str:
        t = IrText()
        order = self.order(t)
        t.let(f"call ptr @memset(ptr %totals, i32 0, i64 {8 * self.totals})")
        with t.loop("%count") as i:
            key = self.key(t, self.element(t, "raw", "%from", i), order)
            for digit in range(self.keys.digits):
                self.counted(t, t.at("i64", "%totals", digit * VALUES), self.digit_at(t, key, digit * DIGIT))
        t.put("ret void")
        return t.function(f"void {self.named('digits')}(ptr %from, i64 %count, i64 %order, ptr %totals)")

    def digit(self, form: str) -> str:
        t = IrText()
        order, shift = self.order(t), self.shift(t)
        t.let(f"call ptr @memset(ptr %totals, i32 0, i64 {8 * VALUES})")
        with t.loop("%count") as i:
            key = self.key(t, self.element(t, form, "%from", i), order)
            self.counted(t, "%totals", self.digit_at(t, key, shift))
        t.put("ret void")
        arguments = "ptr %from, i64 %count, i64 %order, i64 %shift, ptr %totals"
        return t.function(f"void {self.named(f'digit.{form}')}({arguments})")

    def move(self, given: str, result: str) -> str:
        t = IrText()
        order, shift = self.order(t), self.shift(t)
        with t.loop("%count") as i:
            element, position = self.element(t, given, "%from", i), self.position(t, given, "%from", i)
            digit = self.digit_at(t, self.key(t, element, order), shift)
            self.put(t, result, element, position, self.counted(t, "%places", digit))
        t.put("ret void")
        arguments = "ptr %from, i64 %count, i64 %start, i64 %order, i64 %shift, ptr %places, ptr %to"
        return t.function(f"void {self.named(f'move.{given}.{result}')}({arguments}) noinline")

    # ---- rows

    def passes(self, t: IrText, row: str, totals: str) -> tuple[str, str]:
        """Counts digits; the number of those that are passes, and a variable with that. The totals of a digit that all
        elements share are told by that of the first one."""
        t.put(f"call void {self.named('digits')}(ptr {row}, i64 %count, i64 %order, ptr {totals})")
        left = t.variable("i64", 0)
        with t.loop(self.keys.digits) as digit:
            t.put(f"store i64 {t.add(t.load('i64', left), self.is_pass(t, row, totals, digit))}, ptr {left}")
        return t.load("i64", left), left

    def is_pass(self, t: IrText, row: str, totals: str, digit: str) -> str:
        """1 or 0."""
        shift = t.mul(digit, DIGIT)
        narrow = shift if self.keys.width == 64 else t.let(f"trunc i64 {shift} to {self.bits}")
        first = self.digit_at(t, self.key(t, self.element(t, "raw", row, "0"), self.order(t)), narrow)
        total = t.load("i64", t.at("i64", totals, t.add(t.mul(digit, VALUES), first)))
        return t.let(f"zext i1 {t.let(f'icmp ne i64 {total}, %count')} to i64")

    def placed(self, t: IrText, totals: str, digit: str) -> str:
        """Where the elements of each digit begin, in place of how many there are."""
        of_digit = t.at("i64", totals, t.mul(digit, VALUES))
        begin = t.variable("i64")
        t.put(f"store i64 0, ptr {begin}")
        with t.loop(VALUES) as value:
            place, before = t.at("i64", of_digit, value), t.load("i64", begin)
            t.put(f"store i64 {t.add(before, t.load('i64', place))}, ptr {begin}")
            t.put(f"store i64 {before}, ptr {place}")
        return of_digit

    def moved(self, t: IrText, forms: tuple[str, str], source: str, digit: str, places: str, to: str) -> None:
        shift = t.mul(digit, DIGIT)
        name = self.named(f"move.{forms[0]}.{forms[1]}")
        t.put(f"call void {name}(ptr {source}, i64 %count, i64 0, i64 %order, i64 {shift}, ptr {places}, ptr {to})")

    def values(self) -> str:
        """The last pass writes to the result, those before to it and to `beside` in turns."""
        t, size = IrText(), self.keys.width // 8
        totals = t.variable(f"[{self.totals} x i64]")
        given = t.variable("ptr")
        with t.loop("%rows") as number:
            row, to = (t.at(self.bits, base, t.mul(number, "%count")) for base in ("%from", "%to"))
            number_of, left = self.passes(t, row, totals)
            t.put(f"store ptr {row}, ptr {given}")
            with t.first_of() as done:
                with t.case(done, t.let(f"icmp eq i64 {number_of}, 0")):
                    t.let(f"call ptr @memcpy(ptr {to}, ptr {row}, i64 {t.mul('%count', size)})")
                with t.loop(self.keys.digits) as digit, t.first_of() as next_:
                    shared = t.let(f"icmp eq i64 {self.is_pass(t, row, totals, digit)}, 0")
                    with t.case(next_, shared):
                        pass
                    now = t.load("i64", left)
                    odd = t.let(f"trunc i64 {now} to i1")
                    target = t.let(f"select i1 {odd}, ptr {to}, ptr %beside")
                    places = self.placed(t, totals, digit)
                    self.moved(t, ("raw", "raw"), t.load("ptr", given), digit, places, target)
                    t.put(f"store ptr {target}, ptr {given}")
                    t.put(f"store i64 {t.add(now, -1)}, ptr {left}")
        t.put("ret void")
        arguments = "ptr %from, ptr %to, ptr %beside, i64 %rows, i64 %count, i64 %order"
        return t.function(f"void {self.named('values')}({arguments})")

    def positions(self) -> str:
        """The first pass reads elements, the last one writes positions, and what is between are records."""
        t = IrText()
        totals = t.variable(f"[{self.totals} x i64]")
        given = t.variable("ptr")
        with t.loop("%rows") as number:
            row = t.at(self.bits, "%from", t.mul(number, "%count"))
            to = t.at("i64", "%to", t.mul(number, "%count"))
            number_of, left = self.passes(t, row, totals)
            with t.first_of() as done:
                with t.case(done, t.let(f"icmp eq i64 {number_of}, 0")), t.loop("%count") as i:
                    t.put(f"store i64 {i}, ptr {t.at('i64', to, i)}, align 8")
                with t.loop(self.keys.digits) as digit, t.first_of() as next_:
                    shared = t.let(f"icmp eq i64 {self.is_pass(t, row, totals, digit)}, 0")
                    with t.case(next_, shared):
                        pass
                    self.position_pass(t, (row, to), (number_of, left), digit, self.placed(t, totals, digit), given)
        t.put("ret void")
        arguments = "ptr %from, ptr %to, ptr %beside, ptr %between, i64 %rows, i64 %count, i64 %order"
        return t.function(f"void {self.named('positions')}({arguments})")

    def position_pass(
        self, t: IrText, row: tuple[str, str], passes: tuple[str, str], digit: str, places: str, given: str
    ) -> None:
        """The records before the last pass lie in `beside`."""
        (source, to), now = row, t.load("i64", passes[1])
        first, last = t.let(f"icmp eq i64 {now}, {passes[0]}"), t.let(f"icmp eq i64 {now}, 1")
        odd = t.let(f"trunc i64 {now} to i1")
        target = t.let(f"select i1 {odd}, ptr %between, ptr %beside")
        with t.first_of() as end:
            with t.case(end, t.let(f"and i1 {first}, {last}")):
                self.moved(t, ("raw", "position"), source, digit, places, to)
            with t.case(end, first):
                self.moved(t, ("raw", "record"), source, digit, places, target)
            with t.case(end, last):
                self.moved(t, ("record", "position"), t.load("ptr", given), digit, places, to)
            self.moved(t, ("record", "record"), t.load("ptr", given), digit, places, target)
        t.put(f"store ptr {target}, ptr {given}")
        t.put(f"store i64 {t.add(now, -1)}, ptr {passes[1]}")
