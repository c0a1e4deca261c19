"""Steps as rows of a constant table, where a program has very many of them.

What a Python loop builds launches few kernels very often. Written out, each launch is thirty lines of LLVM IR, and
LLVM takes longer for them than for the kernels. A row is some 64-bit words: the function that does it (an index into
WAYS), how many words the row has, and

    launch   kernel, then slots and scratch (negative: ~offset in the arena) of the parameters
    move     target slot, source slot, bytes
    fill.*   target slot, elements, pattern
    product.* host call where no memory can be had, three slots, and the words of the shape
    host     host call

`@drv.rows` goes through them. Kernels that may have to be launched again, because their stacks grow, keep straight
code, as do loops and branches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from loopgrad.codegen.program import CopyStep, LaunchStep, MatmulStep, Program, RoutineStep, Step
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER, HEADER_WORDS
from loopgrad.codegen.targets.cpu.entry.launch import fill_pattern
from loopgrad.codegen.targets.cpu.products.products_interface import EXPORTS as PRODUCTS
from loopgrad.codegen.targets.cpu.products.products_interface import shape_words

WIDTHS: Final = (8, 16, 32, 64)
WAYS: Final = ("launch", "move", "host", *[f"fill.i{w}" for w in WIDTHS], *[f"product.{d}" for d in PRODUCTS])


@dataclass(frozen=True, slots=True)
class Rows:
    """What rows of a Program's steps need to know. `scratch[kernel]`: offsets in the arena."""

    program: Program
    scratch: Sequence[Sequence[int]]

    def has(self, step: Step) -> bool:
        """Whether the step can be rows."""
        slots = self.program.slots
        match step:
            case LaunchStep():
                filled = [slots[step.slots[p]].type.dtype for p, initial in step.initials if initial.source is None]
                growing = self.program.kernels[step.kernel].stacks
                return not growing and all(8 * dtype.itemsize in WIDTHS for dtype in filled)
            case CopyStep() | RoutineStep():
                return True
            case MatmulStep():
                return slots[step.out].type.dtype.name in PRODUCTS
        return False

    def words(self, step: Step, call: int) -> Iterator[int]:
        """The rows of one step, whose host call would be that one."""
        match step:
            case LaunchStep():
                yield from self._initials(step)
                scratch = [~offset for offset in self.scratch[step.kernel]]
                yield from _row("launch", step.kernel, *step.slots, *scratch)
            case CopyStep():
                yield from _row("move", step.target, step.source, self.program.slots[step.target].type.nbytes)
            case RoutineStep():
                yield from _row("host", call)
            case MatmulStep():
                way = f"product.{self.program.slots[step.out].type.dtype.name}"
                yield from _row(way, call, step.left, step.right, step.out, *shape_words(step))

    def _initials(self, step: LaunchStep) -> Iterator[int]:
        for position, initial in step.to_apply:
            target = step.slots[position]
            type = self.program.slots[target].type
            if initial.source is not None:
                yield from _row("move", target, initial.source, type.nbytes)
            else:
                pattern = fill_pattern(type.dtype, initial.value)
                signed = pattern - (1 << 64) if pattern >> 63 else pattern
                yield from _row(f"fill.i{8 * type.dtype.itemsize}", target, type.size, signed)


def _row(way: str, *words: int) -> tuple[int, ...]:
    return WAYS.index(way), 2 + len(words), *words


def row_functions(kernels: int) -> str:
    """`@drv.rows` and what it calls, beside support functions and the runners of that many kernels."""
    runners = ", ".join(f"ptr @run.k{number}" for number in range(kernels))
    ways = ", ".join(f"ptr @drv.row.{way}" for way in WAYS)
    functions = [_LAUNCH, _MOVE, _HOST, *map(_fill, WIDTHS), *map(_product, PRODUCTS)]
    return f"""
@drv.runners = private unnamed_addr constant [{kernels} x ptr] [{runners}]
@drv.ways = private unnamed_addr constant [{len(WAYS)} x ptr] [{ways}]
{_ROWS}{"".join(functions)}"""


# i32 (ptr context, ptr params, ptr row): 0, or the code of what failed
_ROWS: Final = """
define internal i32 @drv.rows(ptr %context, ptr %params, ptr %first, i64 %count) noinline {
entry:
  %end = getelementptr i64, ptr %first, i64 %count
  br label %next
next:
  %row = phi ptr [ %first, %entry ], [ %after, %fine ]
  %number = load i64, ptr %row
  %way.p = getelementptr ptr, ptr @drv.ways, i64 %number
  %way = load ptr, ptr %way.p
  %status = call i32 %way(ptr %context, ptr %params, ptr %row)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %done, label %fine
fine:
  %words.p = getelementptr i64, ptr %row, i64 1
  %words = load i64, ptr %words.p
  %after = getelementptr i64, ptr %row, i64 %words
  %all = icmp eq ptr %after, %end
  br i1 %all, label %done, label %next
done:
  ret i32 %status
}
"""

_LAUNCH: Final = f"""
define internal i32 @drv.row.launch(ptr %context, ptr %params, ptr %row) {{
entry:
  %words.p = getelementptr i64, ptr %row, i64 1
  %words = load i64, ptr %words.p
  %kernel.p = getelementptr i64, ptr %row, i64 2
  %kernel = load i64, ptr %kernel.p
  %runner.p = getelementptr ptr, ptr @drv.runners, i64 %kernel
  %runner = load ptr, ptr %runner.p
  %arena.p = getelementptr i64, ptr %context, i64 {HEADER["arena"]}
  %arena = load ptr, ptr %arena.p
  %slots = getelementptr i64, ptr %context, i64 {HEADER_WORDS}
  br label %next
next:
  %i = phi i64 [ 3, %entry ], [ %j, %taken ]
  %more = icmp slt i64 %i, %words
  br i1 %more, label %one, label %start
one:
  %word.p = getelementptr i64, ptr %row, i64 %i
  %word = load i64, ptr %word.p
  %is.scratch = icmp slt i64 %word, 0
  br i1 %is.scratch, label %scratch, label %slot
scratch:
  %offset = xor i64 %word, -1
  %own = getelementptr i8, ptr %arena, i64 %offset
  br label %taken
slot:
  %cell = getelementptr ptr, ptr %slots, i64 %word
  %held = load ptr, ptr %cell
  br label %taken
taken:
  %pointer = phi ptr [ %own, %scratch ], [ %held, %slot ]
  %at = sub i64 %i, 3
  %where = getelementptr ptr, ptr %params, i64 %at
  store ptr %pointer, ptr %where
  %j = add i64 %i, 1
  br label %next
start:
  %status = call i32 %runner(ptr %context, ptr %params)
  ret i32 %status
}}
"""


def _function(way: str, pointers: range, numbers: range, body: str) -> str:
    """The words of a row by their numbers: %p.. point to the slots in some, %w.. are others."""
    lines = [f"  %slots = getelementptr i64, ptr %context, i64 {HEADER_WORDS}"]
    for word in (*pointers, *numbers):
        lines += [f"  %a{word} = getelementptr i64, ptr %row, i64 {word}", f"  %w{word} = load i64, ptr %a{word}"]
    for word in pointers:
        lines += [f"  %c{word} = getelementptr ptr, ptr %slots, i64 %w{word}", f"  %p{word} = load ptr, ptr %c{word}"]
    head = f"define internal i32 @drv.row.{way}(ptr %context, ptr %params, ptr %row) {{"
    return "\n".join(["", head, *lines, body.strip("\n"), "}", ""])


_MOVE: Final = _function(
    "move",
    range(2, 4),
    range(4, 5),
    """
  %moved = call ptr @memmove(ptr %p2, ptr %p3, i64 %w4)
  ret i32 0
""",
)

_HOST: Final = _function(
    "host",
    range(0),
    range(2, 3),
    """
  %status = call i32 @drv.host(ptr %context, i64 %w2)
  ret i32 %status
""",
)


def _fill(width: int) -> str:
    bits = "  %bits = add i64 %w4, 0" if width == 64 else f"  %bits = trunc i64 %w4 to i{width}"
    call = f"  call void @drv.fill.i{width}(ptr %p2, i{width} %bits, i64 %w3)"
    return _function(f"fill.i{width}", range(2, 3), range(3, 5), f"{bits}\n{call}\n  ret i32 0")


def _product(dtype: str) -> str:
    body = f"""
  %shape = getelementptr i64, ptr %row, i64 6
  %status = call i32 @drv.product.{dtype}(ptr %context, ptr %p3, ptr %p4, ptr %p5, ptr %shape)
  %refused = icmp ne i32 %status, 0
  br i1 %refused, label %host, label %done
host:
  %result = call i32 @drv.host(ptr %context, i64 %w2)
  ret i32 %result
done:
  ret i32 0
"""
    return _function(f"product.{dtype}", range(3, 6), range(2, 3), body)
