"""What becomes of a finished element of a matrix product: it is stored, or goes through the product's epilogue.

An epilogue is the body of the kernel, in which the product is an array of one element: the one that is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from loopgrad.codegen.kernel.nodes import Block
from loopgrad.codegen.targets.gpu.assembler import Val
from loopgrad.codegen.targets.gpu.emit.context import Emitter
from loopgrad.codegen.targets.gpu.emit.memory_form import to_memory
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.tiles import digits

OUT: Final = 2  # the product's place among the parameters
DIRECT_WEIGHT: Final = 600  # of the epilogues of an invocation's elements, one after the other in code

EmitOps = Callable[[Emitter, Block], tuple[Val, ...]]


class StoredProduct:
    """Elements are stored, and that is all. `vectors`: several side by side may be finished at once."""

    vectors: ClassVar[bool] = True

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


class FinishedProduct(StoredProduct):
    """Elements go through an epilogue. `stored`: they are stored as well."""

    vectors = False

    def __init__(self, e: Emitter, stored: bool, emit_block: EmitOps) -> None:
        self.stored, self.emit_block, self.value = stored, emit_block, e.b.const("i32", 0)
        self.own = Emitter(e.kernel, e.b, e.fast, table=e.table, arrays={OUT: self})
        self.weight = weight(e.kernel)

    def direct(self, elements: int) -> bool:
        return elements * self.weight <= DIRECT_WEIGHT

    def finish(self, e: Emitter, element: Val, address: Val, *values: Val) -> None:
        if self.stored:
            super().finish(e, element, address, *values)
        (self.value,), body = values, e.kernel.body
        with self.own.nested():
            self.own.lane = element
            self.own.values.update(zip(body.arguments, digits(self.own, element, e.kernel.domain), strict=True))
            self.emit_block(self.own, body)

    # the product as an array (implements LaneArray)

    one = False

    def get(self, index: Val) -> Val:
        return self.value

    def set(self, index: Val, value: Val) -> None:
        raise AssertionError("an epilogue doesn't write the product")
