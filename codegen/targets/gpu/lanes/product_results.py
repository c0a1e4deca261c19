"""What becomes of a finished element of a matrix product: it is stored, or goes through the product's epilogue.

An epilogue is the body of the kernel, in which the product is an array of the elements that are finished at once: they
lie side by side, so what else it reads and writes does too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from loopgrad.codegen.kernel.nodes import Block
from loopgrad.codegen.targets.gpu.assembler import VECTOR_BYTES, Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.memory_form import to_memory
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.side_by_side import element_size, side_by_side
from loopgrad.codegen.targets.gpu.lanes.tiles import digits, emit_together

OUT: Final = 2  # the product's place among the parameters
DIRECT_WEIGHT: Final = 600  # of the epilogues of an invocation's elements, one after the other in code

EmitOps = Callable[[Emitter, Block], tuple[Val, ...]]


class StoredProduct:
    """Elements are stored, and that is all."""

    def direct(self, elements: int) -> bool:
        """Whether so many elements of an invocation may be finished in code of their own, from registers."""
        return True

    def finish(self, e: Emitter, element: Val, address: Val, *values: Val) -> None:
        """The elements from that number and address on."""
        stored = [to_memory(e, value, e.kernel.params[OUT].dtype) for value in values]
        if len(stored) > 1:
            e.b.store_vector(address, stored)
        else:
            e.b.store(address, *stored)

    def finish_apart(self, e: Emitter, places: Sequence[tuple[Val, Val]], values: Sequence[Val]) -> None:
        """Elements that don't lie side by side, by their numbers and addresses."""
        for (element, address), value in zip(places, values, strict=True):
            self.finish(e, element, address, value)


class FinishedProduct(StoredProduct):
    """Elements go through an epilogue. `stored`: they are stored as well."""

    def __init__(self, e: Emitter, stored: bool, emit_block: EmitOps) -> None:
        self.stored, self.emit_block = stored, emit_block
        self.values: dict[Val, Val] = {}  # of elements that are finished at once, by their places among them
        self.own = Emitter(e.kernel, e.b, e.fast, table=e.table, arrays={OUT: self})
        self.weight = weight(e.kernel)

    def direct(self, elements: int) -> bool:
        return elements * self.weight <= DIRECT_WEIGHT

    def finish(self, e: Emitter, element: Val, address: Val, *values: Val) -> None:
        if self.stored:
            super().finish(e, element, address, *values)
        self.values = {e.b.const("i32", i): value for i, value in enumerate(values)}
        enter = [partial(self._enter, element, i, place) for i, place in enumerate(self.values)]
        with self.own.nested():
            emit_together(self.own, enter, e.kernel.body, self.emit_block, self._side(len(values)))

    def finish_apart(self, e: Emitter, places: Sequence[tuple[Val, Val]], values: Sequence[Val]) -> None:
        """Together, so that what else they read is under way for all of them."""
        if self.stored:
            for (element, address), value in zip(places, values, strict=True):
                super().finish(e, element, address, value)
        self.values = {e.b.const("i32", i): value for i, value in enumerate(values)}
        elements = [element for element, _ in places]
        enter = [partial(self._enter, element, 0, place) for element, place in zip(elements, self.values, strict=True)]
        with self.own.nested():
            emit_together(self.own, enter, e.kernel.body, self.emit_block)

    def _enter(self, first: Val, number: int, place: Val) -> None:
        """The lane of an element that lies so many behind the first one."""
        e = self.own
        e.lane, e.position = first, place
        if number:
            e.lane = e.b.inst("IAdd", first.type, first, e.b.const(first.type, number))
        e.values.update(zip(e.kernel.body.arguments, digits(e, e.lane, e.kernel.domain), strict=True))

    def _side(self, count: int) -> int:
        """How many elements of arrays that the epilogue touches fill a vector at most."""
        kernel = self.own.kernel
        touched = [element_size(kernel, op) for op in side_by_side(kernel, count) if op.attrs["param"] != OUT]
        return min(count, VECTOR_BYTES // max(touched, default=1))

    # the product as an array (implements LaneArray)

    one = False

    def get(self, index: Val) -> Val:
        return self.values[index]

    def set(self, index: Val, value: Val) -> None:
        raise AssertionError("an epilogue doesn't write the product")
