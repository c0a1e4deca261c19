"""What a node of a block becomes in the schedule."""

from __future__ import annotations

from enum import Enum, auto

from loopgrad.graph.cached_property import cached_property


class Role(Enum):
    """Of the nodes of one block, each has one."""

    INLINE = auto()  # computed wherever it is needed
    LANES = auto()  # a region inside kernels
    REDUCE = auto()  # a reduction across lanes, ends a kernel
    SCATTER = auto()  # combines into memory, ends a kernel
    SCAN = auto()  # a running total along an axis, a kernel of its own lanes
    LIBRARY = auto()  # a call: a product of matrices, a sort
    PROGRAM = auto()  # a region, push or pop as steps
    MEMORY = auto()  # a constant array, an empty stack: nothing to do

    @cached_property
    def goes_on(self) -> bool:
        """Whether a kernel that computes it may use it at the same lane."""
        return self in (Role.INLINE, Role.LANES)

    @cached_property
    def is_step(self) -> bool:
        """Whether it is a step of its own, which reads memory and writes memory."""
        return self in (Role.LIBRARY, Role.PROGRAM)

    @cached_property
    def in_kernel(self) -> bool:
        """Whether a kernel computes it."""
        return self not in (Role.LIBRARY, Role.PROGRAM, Role.MEMORY)
