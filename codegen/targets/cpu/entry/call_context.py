"""The context: the block of 64-bit words through which the runtime and a Program's code talk.

    header          HEADER words, named below
    slots           one pointer per slot: what kernels are given
    externals       one pointer per input, output or constant that a loop rotates or a pop
                    redirects: there the runtime leaves the caller's memory, and `slots` holds
                    memory of the arena (copied in at entry, copied out at the end)
    controls        per kernel: capacity[s], needed[s], lane_of_overflow, error_code, error_lane,
                    error_detail (see interface.py), then the address of the context
    stacks          per program stack: base, depth, capacity, peak (depth), in elements

Everything but the pointers of inputs and outputs stays between calls, learned capacities included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.arena import Arena, plan_arena
from loopgrad.codegen.program import PopStep, Program
from loopgrad.codegen.steps import all_steps, rotated
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.graph.types import TensorType

HEADER: Final[dict[str, int]] = {
    name: word
    for word, name in enumerate(
        (
            "pool_run",
            "pool_run_short",
            "serial_run",
            "launch",  # see pool/launches.py
            "reserve",  # i32 (ptr context, i64 kind, i64 bytes): 0 where that much may be allocated
            "host_call",  # i32 (ptr context, i64 index)
            "poll",  # i32 (ptr context): 0 to go on; called now and then by long loops
            "attend",  # i32 (ptr context): the same for kernels: asks the clock first, and sets `stop`
            "product_f32",  # see products_interface.py
            "product_f64",
            "heap_base",  # the call's own stack heap, used where the pool is busy
            "heap_size",
            "heap_approved",  # bytes per worker that `reserve` has agreed to
            "arena",
            "forced_capacity",  # -1: none
            "code",
            "where",
            "which",
            "lane",
            "detail",
            "needed",
            "allocated",
            "growths",
            "polled",  # nanoseconds on the monotonic clock
            "heap_most",  # bytes per worker that stacks could have when that was last looked up
            "stop",  # not 0: kernels shall end early: STOP_INTERRUPTED, or STOP_STARVED
            "raised_type",  # what `poll` leaves when a signal handler raised: three owned references
            "raised_value",
            "raised_traceback",
        )
    )
}
HEADER_WORDS: Final = len(HEADER)

# results of entry, and what `where`, `which`, `needed`, `allocated` then mean
OK: Final = 0
STACK_CAPACITY: Final = 1  # kernel, stack, rows, rows (forced)
CHECK: Final = 2  # kernel, error site
HEAP_MEMORY: Final = 3  # kernel, 1 where the need was still growing, bytes per worker, bytes per worker
STACK_MEMORY: Final = 4  # program stack, -, elements, elements
LOOP_LIMIT: Final = 5  # loop, -, steps
HOST_CALL: Final = 6  # host call
INTERRUPTED: Final = 7
STACK_EMPTY: Final = 8  # program stack (a bug of the compiler)

STOP_INTERRUPTED: Final = 1
STOP_STARVED: Final = 2  # a stack needs more than `heap_most`: it isn't worth going on to count how much

CONTROL_TAIL: Final = 5
STACK_WORDS: Final = 4
INITIAL_CAPACITY: Final = 32
RESERVE_HEAP: Final = 0
RESERVE_STACK: Final = 1  # + number of the program stack


@dataclass(frozen=True, slots=True)
class ContextLayout:
    """Word numbers. `shadowed` maps a slot to the word of its external pointer."""

    slots: int
    shadowed: dict[int, int]
    controls: tuple[int, ...]
    stacks: tuple[int, ...]
    words: int
    arena: Arena
    redirected: frozenset[int]

    def word(self, slot: int) -> int:
        """Where the caller's pointer to a slot belongs."""
        return self.shadowed.get(slot, self.slots + slot)


def plan_layout(program: Program, interfaces: Sequence[CpuKernelInterface]) -> ContextLayout:
    """Where everything is in the context and in the arena of this Program."""
    rotated, popped = _redirected(program)
    redirected = rotated | popped
    external = [i for i, slot in enumerate(program.slots) if slot.kind != "temp"]
    owned = {i for i, slot in enumerate(program.slots) if slot.kind == "temp"} | rotated
    arena = plan_arena(program, [i.scratch for i in interfaces], frozenset(owned - (popped - rotated)))
    word = HEADER_WORDS + len(program.slots)
    shadowed = {}
    for slot in external:
        if slot in redirected:
            shadowed[slot] = word
            word += 1
    controls = []
    for interface in interfaces:
        controls.append(word)
        word += 2 * len(interface.stacks) + CONTROL_TAIL
    stacks = []
    for _ in program.stacks:
        stacks.append(word)
        word += STACK_WORDS
    return ContextLayout(HEADER_WORDS, shadowed, tuple(controls), tuple(stacks), word, arena, redirected)


def stack_stride(element: TensorType) -> int:
    """Bytes from one element of a program stack to the next."""
    size = max(element.nbytes, 1)
    return size if size < 64 else (size + 63) // 64 * 64


def _redirected(program: Program) -> tuple[frozenset[int], frozenset[int]]:
    """Slots whose pointers loops swap, and slots that pops point into a stack."""
    moved: set[int] = set()
    popped: set[int] = set()
    for step in all_steps(program.steps):
        moved.update(rotated(step))
        if isinstance(step, PopStep):
            popped.add(step.slot)
    return frozenset(moved), frozenset(popped)
