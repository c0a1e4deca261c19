"""The Kernel IR on one screen.

A `Kernel` runs its body once per point ("lane") of `domain`. Every `KValue` is a scalar of one
lane. Control flow is structured: an operation with blocks (`for`, `while`, `if`) holds Blocks with
block arguments; there is no jump. A value defined in a block is visible in that block, after its
definition, and in blocks nested there.

Opcodes beside the elementwise primitives of the graph (same names, operands of one dtype):

    const        attrs value                          -> dtype
    cast         (x)                                  -> dtype
    select       (bool, a, b)                         -> a's dtype
    fma          (a, b, c) of float32 or float64      -> a*b + c, rounded once where the target can
    load         (i: int64) attrs param               -> param's dtype; i is a linear element index
    store        (i: int64, x) attrs param
    accumulate   (i: int64, x, pred: bool) attrs param, kind (add min max mul set), exclusive
                 combines x into param[i] where pred; exclusive: no other lane writes element i
    for          (count, *inits) attrs reverse; block (k, *carries) -> yields carries
                 runs max(count, 0) times; k counts up from 0, or down to 0 where reverse
    while        (*inits) attrs max_steps (int or None), error (index into Kernel.errors, where there is
                 a limit); blocks cond (*carries) -> (bool,), body (*carries) -> carries; a condition
                 that still holds after max_steps trips is that error, its detail the trips made
    if           (pred: bool); blocks then () -> results, else () -> results
    push         (x) attrs stack                      (index into Kernel.stacks)
    pop          () attrs stack                       -> the value
    array_load   (i: int64) attrs array               -> element i of the lane's Kernel.arrays[array], which was stored
    array_store  (i: int64, x) attrs array            before; i is in range
    reduce       (x) or (x, rest) attrs slot          contributes x to Kernel.reductions[slot], or x + rest, which
                 is a sum so far (see codegen.math.compensated); only in the top block, once per slot
    scan         (x, ...)                             the lane's term of Kernel.running; only in the top block, once
    check        (ok: bool, detail: int64) attrs error (index into Kernel.errors)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loopgrad.graph.nodes import NO_ATTRS, Location
from loopgrad.graph.scalar_functions import ScalarFunction
from loopgrad.graph.types import DType


class KValue:
    """One scalar SSA value; compared by identity. `op` is None for block arguments."""

    __slots__ = ("dtype", "index", "op")

    def __init__(self, dtype: DType, op: KOp | None = None, index: int = 0) -> None:
        self.dtype = dtype
        self.op = op
        self.index = index


class KOp:
    """One operation of a block."""

    __slots__ = ("attrs", "blocks", "opcode", "operands", "results")

    def __init__(
        self,
        opcode: str,
        operands: tuple[KValue, ...],
        dtypes: tuple[DType, ...],
        attrs: Mapping[str, Any] = NO_ATTRS,
        blocks: tuple[Block, ...] = (),
    ) -> None:
        self.opcode = opcode
        self.operands = operands
        self.attrs = attrs
        self.blocks = blocks
        if len(dtypes) == 1:  # nearly always
            self.results: tuple[KValue, ...] = (KValue(dtypes[0], self),)
        else:
            self.results = tuple([KValue(d, self, i) for i, d in enumerate(dtypes)])


@dataclass(slots=True, eq=False)
class Block:
    """Block arguments, operations in order, yielded values."""

    arguments: tuple[KValue, ...] = ()
    ops: list[KOp] = field(default_factory=list)
    yields: tuple[KValue, ...] = ()


@dataclass(frozen=True, slots=True)
class BufferParam:
    """One dense array the kernel touches. `access`: read, write (each lane its own elements) or
    accumulate (through `accumulate` only, element order not fixed)."""

    dtype: DType
    size: int
    access: str


@dataclass(frozen=True, slots=True)
class StackSlot:
    """A per-lane stack that lives and dies in this kernel. `depth_param` is the read parameter
    (one int64) that holds the depth known before the launch, None where it is measured. `residual`: the row of
    the program's saved values that it belongs to, `elements` scalars of it: pushed for each unit of depth."""

    dtype: DType
    depth_param: int | None
    name: str
    loc: Location | None
    residual: int = 0
    elements: int = 1

    @property
    def itemsize(self) -> int:
        """Bytes of one unit of depth."""
        return self.dtype.itemsize * self.elements


@dataclass(frozen=True, slots=True)
class OwnArray:
    """Memory of each lane by itself, `size` elements that may be looked up at a computed index. It begins undefined."""

    dtype: DType
    size: int


@dataclass(frozen=True, slots=True)
class Shards:
    """The attributes of the graph's `shard_reduce`, whose order this is."""

    extent: int
    roots: tuple[tuple[int, int], ...]
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """kind: add mul min max and or; over the last `rank` dims of the domain into `param`
    (one element per point of the leading dims). `shards`, where set: of lanes by shards, of which `param` has the
    result."""

    kind: str
    dtype: DType
    param: int
    rank: int
    shards: Shards | None = None


@dataclass(frozen=True, slots=True)
class RunningTotal:
    """The domain is `shape` = (outer, extent, inner), with boundaries between these three. Element i of `param` becomes
    what the terms of lane i and of those before it along the middle dim make (after it, where `reverse`), rounded
    where that has a narrower dtype. kind: add mul min max; or function, an associative one of elements: then a term is
    numbers of the dtypes `leaves`, and those of the results that are `taken` go to `param` and the parameters behind
    it, one each."""

    kind: str
    dtype: DType
    param: int
    shape: tuple[int, int, int]
    reverse: bool
    function: ScalarFunction | None = None
    leaves: tuple[DType, ...] = ()
    taken: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorSite:
    """What a failed `check` or an exceeded max_steps means: message template with {lane} {detail}."""

    kind: str  # max_steps | index
    message: str
    loc: Location | None


@dataclass(slots=True, eq=False)
class Kernel:
    """`body.arguments` are int64 indices, one per dim of `domain` (row-major, last fastest).

    `order_key`, where set, is a block over the same arguments that yields the lane's expected trip
    count (pure: loads and arithmetic only); targets may process the lanes of a tile in that order.
    `running`: the kernel does nothing but that; its body may run more than once for a lane.

    `stages`, where set, stand for the body, which is empty: kernels of the same rows, which are the first dim of the
    domain. All lanes of a row have gone through one before the next one begins. Their parameters are this kernel's,
    then arrays that live and die with a row, of which every lane touches its own element only. `columns`: these rows
    are columns of arrays, so neighbours begin side by side.
    """

    name: str
    domain: tuple[int, ...]
    params: tuple[BufferParam, ...]
    body: Block
    stacks: tuple[StackSlot, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    errors: tuple[ErrorSite, ...] = ()
    order_key: Block | None = None
    stages: tuple[Kernel, ...] = ()
    columns: bool = False
    running: RunningTotal | None = None
    arrays: tuple[OwnArray, ...] = ()


def walk(block: Block) -> Iterator[KOp]:
    """Every operation of a block and of the blocks in it."""
    for op in block.ops:
        yield op
        for inner in op.blocks:
            yield from walk(inner)
