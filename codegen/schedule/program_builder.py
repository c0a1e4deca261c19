"""A Program under construction: buffers (slots to be), kernels, constants, stacks, notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopgrad.codegen.options import LANE_BYTES, Options, OwnProducts
from loopgrad.codegen.program import ProgramStack, Residual
from loopgrad.codegen.schedule.deep_products import own_slices, slices_beside_library
from loopgrad.codegen.schedule.residuals import residual
from loopgrad.codegen.schedule.shared_terms import has_few_terms, is_narrow, outpaces_library
from loopgrad.codegen.schedule.sharing import KnownKernels
from loopgrad.graph.nodes import Graph, Node
from loopgrad.graph.rebuild import readers_of
from loopgrad.graph.types import TensorType


@dataclass(slots=True, eq=False)
class ProgramBuffer:
    """kind: input, output, temp or constant. `popped`: a pop points it into a stack. Steps refer to
    `number` until slots are assigned."""

    type: TensorType
    kind: str
    number: int
    constant: bytes | None = None
    popped: bool = False
    exact: bool = False  # a library call reads its shape from the slot


@dataclass(slots=True)
class ProgramBuilder:
    """Shared by the blocks of one Program. `in_order`, `wide_products`, `lane_bytes`, `own_products`: as of
    `schedule`; `long_columns`: see `columns`."""

    options: Options
    in_order: bool = False
    wide_products: bool = False
    lane_bytes: int = LANE_BYTES
    own_products: OwnProducts = OwnProducts.NONE
    long_columns: bool = False
    buffers: list[ProgramBuffer] = field(default_factory=list)
    stacks: list[ProgramStack] = field(default_factory=list)
    residuals: dict[Node, tuple[int, Residual]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    constants: dict[tuple[bytes, TensorType], ProgramBuffer] = field(default_factory=dict)
    known: KnownKernels = field(init=False)

    def __post_init__(self) -> None:
        self.known = KnownKernels(self.splat, self.constant)

    def buffer(self, type: TensorType, kind: str = "temp") -> ProgramBuffer:
        made = ProgramBuffer(type, kind, len(self.buffers))
        self.buffers.append(made)
        return made

    def constant(self, data: bytes, type: TensorType) -> ProgramBuffer:
        """A buffer of known elements; equal ones are shared."""
        key = (data, type)
        known = self.constants.get(key)
        if known is None:
            known = self.constants[key] = self.buffer(type, "constant")
            known.constant = data
        return known

    def splat(self, value: Any, type: TensorType) -> ProgramBuffer:
        """A constant buffer of equal elements."""
        with np.errstate(all="ignore"):
            return self.constant(np.full(type.shape, value, type.dtype.np).tobytes(), type)

    def multiplies(self, straight: bool) -> bool:
        """Whether own kernels make a block's products. `straight`: of a program without steps that are loops or
        branches."""
        return self.own_products is OwnProducts.ALL or (self.own_products is OwnProducts.IN_LOOPS and not straight)

    def sums_products(self, graph: Graph, straight: bool) -> Callable[[Node], bool]:
        """Which products of a block lanes of the target add up."""
        if self.own_products is OwnProducts.NONE:
            return lambda _: False
        if self.multiplies(straight):
            return lambda node: has_few_terms(node) or is_narrow(node)
        again = {v for v, readers in readers_of(graph).items() if len(readers) > 1}
        return lambda node: has_few_terms(node) or outpaces_library(node, again)

    def slices_products(self, straight: bool) -> Callable[[Node], int]:
        """In how many slices kernels of our own make a product of a block; 0: as a whole, or by a library."""
        if self.multiplies(straight):
            return own_slices
        return slices_beside_library if self.own_products is OwnProducts.IN_LOOPS else lambda _: 0

    def note(self, text: str) -> None:
        self.notes[text] = None

    def stack(self, node: Node) -> int:
        """The number of a new program stack for a `stack_new` node."""
        name, row = node.attrs.get("name") or "stack", self.residual(node)
        self.stacks.append(ProgramStack(node.attrs["element"], name, node.loc, row))
        return len(self.stacks) - 1

    def residual(self, node: Node, graph: Graph | None = None, place: str = "kernel") -> int:
        """The number of a `stack_new` node's row; `graph` is the one whose inputs have names."""
        if node not in self.residuals:
            self.residuals[node] = (len(self.residuals), residual(node, graph, place))
        return self.residuals[node][0]

    def mark(self) -> tuple[int, int, int, int]:
        """What has been made so far."""
        return len(self.buffers), len(self.known.kernels), len(self.stacks), len(self.residuals)

    def rewind(self, mark: tuple[int, int, int, int]) -> None:
        """Forget what was made since."""
        del self.buffers[mark[0] :]
        self.known.rewind(mark[1])
        del self.stacks[mark[2] :]
        self.residuals = {n: row for n, row in self.residuals.items() if row[0] < mark[3]}
        self.constants = {k: b for k, b in self.constants.items() if b.number < mark[0]}
