"""How a kernel's lanes and shared elements are laid out for launches; everything by shape alone.

Accumulations whose bits depend on their order (float sums, `set`) get private copies of the parameter, one
per invocation that owns a stretch of lanes, combined in order afterwards; where a copy is large there are
few, down to one invocation for all lanes, which is announced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel
from loopgrad.codegen.targets.spirv.context import SIZE, memory_type
from loopgrad.codegen.targets.spirv.interface import PARAM, SCRATCH, Dispatch, KernelInterface
from loopgrad.codegen.targets.spirv.kernel import shared_params, walk
from loopgrad.codegen.targets.spirv.memory import atomic_name
from loopgrad.codegen.targets.spirv.support import (
    combine_kernel,
    copy_kernel,
    fill_kernel,
    identity,
    tree_kernel,
    tree_widths,
)

COPY_ELEMENTS: Final = 1 << 22
MOST_COPIES: Final = 4096
FEW_COPIES: Final = 64  # fewer invocations than this for more lanes are announced

AddModule = Callable[[Kernel], int]


@dataclass(frozen=True, slots=True)
class Sharing:
    """`copies` invocations in order, 0 where any order will do; `copied` parameters have private copies."""

    copies: int
    copied: tuple[int, ...]


def sharing(kernel: Kernel) -> Sharing:
    """How lanes of this kernel may meet."""
    wanted = {
        param: kinds
        for param, kinds in shared_params(kernel).items()
        if len(kinds) > 1 or any(atomic_name(kind, kernel.params[param].dtype) is None for kind in kinds)
    }
    if not wanted:
        return Sharing(0, ())
    lanes = prod(kernel.domain)
    if any(len(kinds) > 1 or "set" in kinds for kinds in wanted.values()):
        return Sharing(1, ())
    elements = sum(kernel.params[p].size for p in shared_params(kernel))
    copies = max(min(COPY_ELEMENTS // max(elements, 1), MOST_COPIES, lanes), 1)
    return Sharing(copies, tuple(sorted(shared_params(kernel))) if copies > 1 else ())


def interface(kernel: Kernel, module: int, shared: Sharing, add: AddModule) -> KernelInterface:
    """What surrounds the kernel's own module; `add` gives the number of a support kernel's module."""
    lanes = prod(kernel.domain)
    scratch: list[int] = [max(lanes * SIZE[memory_type(r.dtype)], 8) for r in kernel.reductions]
    before: list[Dispatch] = []
    after: list[Dispatch] = []
    for param in shared.copied:
        described = kernel.params[param]
        (kind,) = shared_params(kernel)[param]
        position, size = len(scratch), described.size
        scratch.append(max(size * shared.copies * SIZE[memory_type(described.dtype)], 8))
        fill = add(fill_kernel(described.dtype, identity(kind, described.dtype)))
        before.append(Dispatch(fill, size * shared.copies, ((SCRATCH, position),)))
        merge = add(combine_kernel(kind, described.dtype, size, shared.copies))
        after.append(Dispatch(merge, size, ((SCRATCH, position), (PARAM, param))))
    for i in range(len(kernel.reductions)):
        after += trees(kernel, i, scratch, add)
    return KernelInterface(
        module=module,
        lanes=lanes,
        copies=shared.copies,
        loops=any(op.opcode in ("for", "while") for op in walk(kernel.body)),
        scratch=tuple(scratch),
        own_scratch=len(kernel.reductions) + len(shared.copied),
        before=tuple(before),
        after=tuple(after),
        stacks=tuple([SIZE[memory_type(s.dtype)] for s in kernel.stacks]),
        notes=notes(kernel, shared, lanes),
    )


def trees(kernel: Kernel, number: int, scratch: list[int], add: AddModule) -> list[Dispatch]:
    """Passes from the lanes' contributions down to one element per segment."""
    r = kernel.reductions[number]
    rows = prod(kernel.domain[: len(kernel.domain) - r.rank])
    length = prod(kernel.domain[len(kernel.domain) - r.rank :])
    if not rows:
        return []
    if not length:
        return [Dispatch(add(fill_kernel(r.dtype, identity(r.kind, r.dtype))), rows, ((PARAM, r.param),))]
    source, passes = (SCRATCH, number), []
    if length == 1:
        copy = add(copy_kernel(SIZE[memory_type(r.dtype)]))
        return [Dispatch(copy, rows, (source, (PARAM, r.param)))]
    for width in tree_widths(length):
        target = (PARAM, r.param)
        if width > 1:
            target = (SCRATCH, len(scratch))
            scratch.append(rows * width * SIZE[memory_type(r.dtype)])
        passes.append(Dispatch(add(tree_kernel(r.kind, r.dtype, rows, length, width)), rows * width, (source, target)))
        source, length = target, width
    return passes


def notes(kernel: Kernel, shared: Sharing, lanes: int) -> tuple[str, ...]:
    if not shared.copies or shared.copies >= min(lanes, FEW_COPIES):
        return ()
    how = "one invocation" if shared.copies == 1 else f"{shared.copies} invocations"
    return (
        f"kernel {kernel.name}: {lanes:,} lanes accumulate in a fixed order, so {how} of the device run it; "
        "sums of integers don't need that",
    )
