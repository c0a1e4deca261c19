"""What a kernel expects of its launch: the seam between emission and runtime, the same on every GPU.

Six words (Vulkan: push constants; CUDA and HIP: arguments): u64 table, i64 across, i64 along, i64 first,
i64 end, i64 lanes. Invocation g runs the lanes g * across + p * along for p in [first, end), those below
`lanes`. Grid-stride: across 1, along the number of invocations. Kernels whose lanes must meet in order
(`copies` > 0): invocation g owns a stretch of lanes, across its length, along 1. A driver that stops long
loops gets several dispatches of few p.

`table` is the address of u64 words in a buffer, so that inputs, outputs and stacks can move without
recording commands again: the params in order, the scratch blocks, the control block, the address of the
void word, an opaque zero twice, the number of invocations, then per stack its address and its capacity in
rows. Stacks are [depth][invocation]. A bool takes a byte.

The control block is zeroed before the launch (offsets in bytes below). `void` is one u32 that a submission
shares: a stack that overflows sets it, and kernels that follow do nothing, since what they would read is
incomplete. needed[s] is 0, or the rows that stack s needed where that was more than its capacity. Rows are
counted in 32 bits: no stack has more than MOST_ROWS, and a need above that means more than anybody can count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from loopgrad.codegen.kernel.nodes import ErrorSite, StackSlot

PUSH_BYTES: Final = 48
ERROR_CODE: Final = 0  # u32: 0, or 1 + the index of the failed check
TRUNCATED: Final = 4  # u32, bits: the driver stopped a loop before its end; UNFINISHED
UNFINISHED: Final = 2  # lanes were left in the middle, to be continued by another launch
ERROR_LANE: Final = 8  # u64
ERROR_DETAIL: Final = 16  # i64
OVERFLOW_LANE: Final = 24  # u64
NEEDED: Final = 32  # u32 per stack
MOST_ROWS: Final = (1 << 31) - 1  # of a stack
UNCOUNTED: Final = (1 << 32) - 1  # as a need: more than MOST_ROWS, by a loop that was left since it pushed so many
TINY: Final = 16  # no side of a tiny product is longer
MANY_ELEMENTS: Final = 1 << 17  # of tiny products together

# how a dispatch names an array: a parameter of the kernel or a scratch block of the launch
PARAM, SCRATCH = "param", "scratch"


class MatrixShape(NamedTuple):
    """Sums of f32, rows x columns, of products of matrices of "f16" or "b16", rows x depth and depth x columns."""

    type: str
    rows: int
    columns: int
    depth: int


class SubgroupShapes(NamedTuple):
    """What subgroups of so many invocations multiply."""

    subgroup: int
    shapes: tuple[MatrixShape, ...]


NO_MATRICES: Final = SubgroupShapes(1, ())


def control_bytes(stacks: int) -> int:
    return (NEEDED + 4 * stacks + 7) // 8 * 8


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A module run on `lanes` lanes, or on `tiles` tiles where there are any; `arrays` are (PARAM or
    SCRATCH, position)."""

    module: int
    lanes: int
    arrays: tuple[tuple[str, int], ...]
    tiles: int = 0


@dataclass(frozen=True, slots=True)
class SupportLaunch:
    """A launch for a step that is no kernel of the program: of that module, on `lanes` lanes, or on `tiles` tiles where
    there are any; where these are `unlike`, each has a workgroup: the device starts one where another ends."""

    module: int
    lanes: int
    tiles: int = 0
    unlike: bool = False


@dataclass(frozen=True, slots=True)
class KernelInterface:
    """One kernel of a program, as it was compiled: `stacks` and `errors` are the Kernel's, `params` how many it has.
    `before` and `after` run around the kernel's own module: identities of private copies, folds of
    reductions. `tiles`: how many the kernel has; 0: its lanes are not in tiles. `streams`: its lanes only read, compute
    and write. `copies` invocations own a
    stretch of lanes each; 0: any lane anywhere. The kernel's own table lists the first `own_scratch` blocks;
    the others are of its folds. `loops`: the kernel has loops of its own. `resumable`: the kernel may be left
    UNFINISHED by that many invocations, whose state is its last own scratch block; 0: it can't. `held`: so
    many invocations, at most, have their arrays in that block; 0: in memory of their own."""

    name: str
    domain: tuple[int, ...]
    params: int
    module: int
    lanes: int
    copies: int
    loops: bool
    scratch: tuple[int, ...]
    own_scratch: int
    before: tuple[Dispatch, ...]
    after: tuple[Dispatch, ...]
    stacks: tuple[StackSlot, ...]
    errors: tuple[ErrorSite, ...]
    tiles: int = 0
    streams: bool = False
    resumable: int = 0
    held: int = 0


def tiny_products(batch: int, m: int, k: int, n: int) -> bool:
    """Whether there are so many products of so few elements that a lane for each element has the device busy: its
    neighbours read what it reads, and a workgroup that made one product would wait for most of its time. Neither
    tiles of workgroups nor a library make those: 65,536 of 12 x 12 take 74 us on an H200 so, 167 by cuBLAS; 32,768 of
    16 x 16 74 and 84."""
    return max(m, k, n) <= TINY and batch * m * n >= MANY_ELEMENTS
