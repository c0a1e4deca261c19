"""Program -> the LLVM IR text of its native entry point.

`emit_entry(program, interfaces)` gives `define i32 @entry(ptr %context)` and what it calls: one
`@run.kN` per kernel that the pool doesn't launch (see launch.py) and a fixed set of support functions
(see support.py). The context is laid out by call_context.py. The text refers to the kernels' symbols and to
libc, declares only libc functions, and goes into the same module as the kernels.

Steps become straight code; ForStep, WhileStep and SwitchStep become native loops and branches that
swap pointers in the slot table, so a whole training loop is one call. Very many simple steps after each other are rows
of a table (rows.py). A step that fails leaves its report in the context and returns its code at once.

Text, and not llvmlite.ir, whose builder takes 17 to 37 microseconds for an instruction (driver_tables.py and
pool_heaps.py were written both ways) where text takes less than 3: the entry of a net of 60 layers and its gradient
has 4,300 lines, so that as much time would go there as LLVM takes for the module, 0.14 s. LLVM's parser and verifier
check the types of text as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from loopgrad.codegen.program import (
    CopyStep,
    ForStep,
    LaunchStep,
    MatmulStep,
    PopStep,
    Program,
    PushStep,
    ReserveStep,
    RoutineStep,
    Step,
    SwitchStep,
    WhileStep,
)
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER, LOOP_LIMIT, ContextLayout, plan_layout, stack_stride
from loopgrad.codegen.targets.cpu.entry.launch import emit_runner, fill_pattern, plain, runner_word
from loopgrad.codegen.targets.cpu.entry.rows import Rows, row_functions
from loopgrad.codegen.targets.cpu.entry.support import ONCE, support_ir
from loopgrad.codegen.targets.cpu.entry.tables import LONG, table
from loopgrad.codegen.targets.cpu.interface import CpuKernelInterface
from loopgrad.codegen.targets.cpu.products.products_interface import EXPORTS as PRODUCTS
from loopgrad.codegen.targets.cpu.products.products_interface import shape_words
from loopgrad.graph.types import DType, TensorType

PART: Final = 64  # steps of one function, where there are many
MANY: Final = 64  # simple steps after each other that are rows of a table


def emit_entry(program: Program, interfaces: Sequence[CpuKernelInterface]) -> str:
    """The driver's part of the module text."""
    layout = plan_layout(program, interfaces)
    entry = EntryEmitter(program, layout, interfaces)
    text = entry.text()
    runners = [
        emit_runner(number, kernel, interface, layout.controls[number], entry.attributes)
        for number, (kernel, interface) in enumerate(zip(program.kernels, interfaces, strict=True))
        if entry.has_rows or not plain(interface)
    ]
    text = "\n".join([*runners, text])
    return support_ir(text) + text


def memory_type(dtype: DType) -> str:
    """The LLVM integer type that holds one element in memory."""
    return f"i{8 * dtype.itemsize}"


class EntryEmitter:
    """Writes `@entry`; one basic block is open at any time."""

    def __init__(self, program: Program, layout: ContextLayout, interfaces: Sequence[CpuKernelInterface]) -> None:
        self.program = program
        self.layout = layout
        self.interfaces = interfaces
        loops = any(isinstance(step, ForStep | WhileStep) for step in all_steps(program.steps))
        self.attributes = "" if loops else f" {ONCE}"
        self.allocas: list[str] = []
        self.tables: list[str] = []
        self.parts: list[str] = []  # functions of their own
        self.lines: list[str] = []
        self.names = 0
        self.loops = 0
        self.calls = 0
        self.has_rows = False
        blocks = zip(program.kernels, layout.arena.scratch, strict=True)
        self.rows = Rows(program, layout.arena.scratch)
        self.params = max((len(kernel.params) + len(scratch) for kernel, scratch in blocks), default=0)

    def text(self) -> str:
        """The whole function."""
        self.prologue()
        self.steps(self.program.steps)
        self.epilogue()
        head = [
            f"define i32 @entry(ptr %context){self.attributes} {{",
            "start:",
            f"  %params = alloca [{max(self.params, 1)} x ptr]",
        ]
        functions = [row_functions(len(self.program.kernels))] if self.has_rows else []
        return "\n".join([*self.tables, *functions, *self.parts, *head, *self.allocas, *self.lines, "}", ""])

    # writing

    def put(self, line: str) -> None:
        self.lines.append("  " + line)

    def let(self, expression: str) -> str:
        self.names += 1
        name = f"%v{self.names}"
        self.put(f"{name} = {expression}")
        return name

    def labels(self, *stems: str) -> tuple[str, ...]:
        self.names += 1
        return tuple(f"{stem}{self.names}" for stem in stems)

    def block(self, label: str) -> None:
        self.put(f"br label %{label}")
        self.lines.append(f"{label}:")

    def word(self, number: int) -> str:
        return self.let(f"getelementptr i64, ptr %context, i64 {number}")

    def load_word(self, name: str, type: str = "ptr") -> str:
        return self.let(f"load {type}, ptr {self.word(HEADER[name])}")

    def cell(self, slot: int) -> str:
        """The address of a slot's pointer."""
        return self.word(self.layout.slots + slot)

    def pointer(self, slot: int) -> str:
        return self.let(f"load ptr, ptr {self.cell(slot)}")

    def integer(self, slot: int) -> str:
        """The one integer or bool in a slot, as i64."""
        dtype = self.program.slots[slot].type.dtype
        value = self.let(f"load {memory_type(dtype)}, ptr {self.pointer(slot)}")
        if dtype.bits == 64:
            return value
        return self.let(f"{'sext' if dtype.kind == 'i' else 'zext'} {memory_type(dtype)} {value} to i64")

    def move(self, target: str, source: str, size: int) -> None:
        if size:
            self.let(f"call ptr @memmove(ptr {target}, ptr {source}, i64 {size})")

    def check(self, status: str) -> None:
        """Return `status` unless it is 0."""
        fail, fine = self.labels("fail", "fine")
        bad = self.let(f"icmp ne i32 {status}, 0")
        self.put(f"br i1 {bad}, label %{fail}, label %{fine}")
        self.lines += [f"{fail}:", f"  ret i32 {status}", f"{fine}:"]

    # beginning and end

    def prologue(self) -> None:
        base = self.load_word("arena")
        offsets = sorted(self.layout.arena.slots.items())
        if len(offsets) > LONG:
            places = self.table("{ i64, i64 }", [f"{{ i64, i64 }} {{ i64 {s}, i64 {o} }}" for s, o in offsets])
            self.put(f"call void @drv.place(ptr {self.cell(0)}, ptr {base}, ptr {places}, i64 {len(offsets)})")
        for slot, offset in offsets:
            if len(offsets) > LONG and self.program.slots[slot].kind == "temp":
                continue
            own = self.let(f"getelementptr i8, ptr {base}, i64 {offset}")
            self.put(f"store ptr {own}, ptr {self.cell(slot)}")
            if self.program.slots[slot].kind in ("input", "constant"):
                outside = self.let(f"load ptr, ptr {self.word(self.layout.shadowed[slot])}")
                self.move(own, outside, self.program.slots[slot].type.nbytes)
        for word in self.layout.stacks:
            self.put(f"store i64 0, ptr {self.word(word + 1)}")
        if any(isinstance(step, ForStep | WhileStep) for step in self.program.steps):
            now = self.let("call i64 @drv.now()")
            self.put(f"store i64 {now}, ptr {self.word(HEADER['polled'])}")
        self.put(f"store i64 0, ptr {self.word(HEADER['stop'])}")

    def epilogue(self) -> None:
        for slot, word in self.layout.shadowed.items():
            if self.program.slots[slot].kind == "output":
                outside = self.let(f"load ptr, ptr {self.word(word)}")
                self.move(outside, self.pointer(slot), self.program.slots[slot].type.nbytes)
        self.put("ret i32 0")

    # steps

    def steps(self, steps: Sequence[Step]) -> None:
        """Many simple steps are rows of a table; many others functions of PART each: LLVM's time isn't linear in the
        length of one."""
        if len(steps) > MANY:
            for simple, run in groupby(steps, self.rows.has):
                some = list(run)
                if simple and len(some) > MANY:
                    self.many(some)
                else:
                    self.few(some)
            return
        self.few(steps)

    def many(self, steps: Sequence[Step]) -> None:
        words: list[int] = []
        for step in steps:
            words += self.rows.words(step, self.calls)
            self.calls += isinstance(step, RoutineStep | MatmulStep)
        rows = self.table("i64", [f"i64 {word}" for word in words])
        self.check(self.let(f"call i32 @drv.rows(ptr %context, ptr %params, ptr {rows}, i64 {len(words)})"))
        self.has_rows = True

    def few(self, steps: Sequence[Step]) -> None:
        if len(steps) > 2 * PART:
            for first in range(0, len(steps), PART):
                self.part(steps[first : first + PART])
            return
        for step in steps:
            self.step(step)

    def part(self, steps: Sequence[Step]) -> None:
        lines, allocas = self.lines, self.allocas
        self.lines, self.allocas = [], []
        self.steps(steps)
        name = f"@part{len(self.parts)}"
        head = [f"define internal i32 {name}(ptr %context, ptr %params){self.attributes or ' noinline'} {{", "start:"]
        self.parts.append("\n".join([*head, *self.allocas, *self.lines, "  ret i32 0", "}", ""]))
        self.lines, self.allocas = lines, allocas
        self.check(self.let(f"call i32 {name}(ptr %context, ptr %params)"))

    def step(self, step: Step) -> None:
        match step:
            case LaunchStep():
                self.launch(step)
            case CopyStep():
                size = self.program.slots[step.target].type.nbytes
                self.move(self.pointer(step.target), self.pointer(step.source), size)
            case MatmulStep():
                self.matmul(step)
            case RoutineStep():
                self.host_call()
            case ReserveStep():
                self.reserve(step)
            case PushStep():
                self.push(step)
            case PopStep():
                self.pop(step)
            case ForStep():
                self.for_loop(step)
            case WhileStep():
                self.while_loop(step)
            case SwitchStep():
                self.switch(step)

    def launch(self, step: LaunchStep) -> None:
        again, after = self.labels("launch", "launched")
        self.block(again)
        for position, initial in step.to_apply:
            type = self.program.slots[step.slots[position]].type
            target = self.pointer(step.slots[position])
            if initial.source is not None:
                self.move(target, self.pointer(initial.source), type.nbytes)
            else:
                self.fill(target, type, initial.value)
        if len(step.slots) > LONG:
            taken = self.table("i32", [f"i32 {slot}" for slot in step.slots])
            self.put(f"call void @drv.take(ptr {self.cell(0)}, ptr %params, ptr {taken}, i64 {len(step.slots)})")
        for position, slot in enumerate(() if len(step.slots) > LONG else step.slots):
            self.put_param(position, self.pointer(slot))
        for block, offset in enumerate(self.layout.arena.scratch[step.kernel]):
            base = self.load_word("arena")
            own = self.let(f"getelementptr i8, ptr {base}, i64 {offset}")
            self.put_param(len(step.slots) + block, own)
        status = self.run(step.kernel)
        if self.program.kernels[step.kernel].stacks:
            retry = self.let(f"icmp slt i32 {status}, 0")
            self.put(f"br i1 {retry}, label %{again}, label %{after}")
            self.lines.append(f"{after}:")
        self.check(status)

    def run(self, kernel: int) -> str:
        """Its result."""
        interface = self.interfaces[kernel]
        if not plain(interface):
            return self.let(f"call i32 @run.k{kernel}(ptr %context, ptr %params)")
        finish = "null" if interface.finish is None else f"@{interface.finish}"
        return self.let(
            f"call i32 {self.load_word('launch')}(ptr %context, ptr %params, ptr @{interface.symbol}, "
            f"i64 {interface.chunks}, i64 {kernel}, i64 {self.layout.controls[kernel]}, "
            f"i64 {runner_word(self.program.kernels[kernel], interface)}, ptr {finish})"
        )

    def table(self, type: str, rows: Sequence[str]) -> str:
        """The name of a constant array of the module."""
        name = f"@drv.table{len(self.tables)}"
        self.tables.append(table(name, type, rows))
        return name

    def put_param(self, position: int, pointer: str) -> None:
        where = self.let(f"getelementptr ptr, ptr %params, i64 {position}")
        self.put(f"store ptr {pointer}, ptr {where}")

    def fill(self, target: str, type: TensorType, value: float | int | bool) -> None:
        pattern = fill_pattern(type.dtype, value)
        if pattern == 0:
            self.let(f"call ptr @memset(ptr {target}, i32 0, i64 {type.nbytes})")
        else:
            width = memory_type(type.dtype)
            self.put(f"call void @drv.fill.{width}(ptr {target}, {width} {pattern}, i64 {type.size})")

    def matmul(self, step: MatmulStep) -> None:
        dtype = self.program.slots[step.out].type.dtype
        if dtype.is_integer:
            self.integer_matmul(step, memory_type(dtype))
            return
        if dtype.name not in PRODUCTS:
            self.host_call()
            return
        words = shape_words(step)
        shape = f"@drv.shape{len(self.tables)}"
        self.tables.append(
            f"{shape} = private unnamed_addr constant [{len(words)} x i64] [{', '.join(f'i64 {w}' for w in words)}]"
        )
        arrays = ", ".join(f"ptr {self.pointer(slot)}" for slot in (step.left, step.right, step.out))
        status = self.let(f"call i32 @drv.product.{dtype.name}(ptr %context, {arrays}, ptr {shape})")
        refused = self.let(f"icmp ne i32 {status}, 0")
        host, done = self.labels("refused", "matmul")
        self.put(f"br i1 {refused}, label %{host}, label %{done}")
        self.lines.append(f"{host}:")
        self.host_call()
        self.block(done)

    def integer_matmul(self, step: MatmulStep, width: str) -> None:
        left = (1, step.m) if step.transpose_left else (step.k, 1)
        right = (1, step.k) if step.transpose_right else (step.n, 1)
        self.put(
            f"call void @drv.matmul.{width}(ptr {self.pointer(step.left)}, ptr {self.pointer(step.right)}, "
            f"ptr {self.pointer(step.out)}, i64 {step.batch}, i64 {step.m}, i64 {step.k}, i64 {step.n}, "
            f"i64 {left[0]}, i64 {left[1]}, i64 {right[0]}, i64 {right[1]})"
        )

    def host_call(self) -> None:
        status = self.let(f"call i32 @drv.host(ptr %context, i64 {self.calls})")
        self.calls += 1
        self.check(status)

    def reserve(self, step: ReserveStep) -> None:
        stride = stack_stride(self.program.stacks[step.stack].element)
        stack = self.word(self.layout.stacks[step.stack])
        depth = self.integer(step.depth)
        status = self.let(f"call i32 @drv.room(ptr %context, ptr {stack}, i64 {step.stack}, i64 {depth}, i64 {stride})")
        self.check(status)

    def push(self, step: PushStep) -> None:
        element = self.program.stacks[step.stack].element
        stack = self.word(self.layout.stacks[step.stack])
        source = self.pointer(step.slot)
        status = self.let(
            f"call i32 @drv.push(ptr %context, ptr {stack}, i64 {step.stack}, ptr {source}, "
            f"i64 {element.nbytes}, i64 {stack_stride(element)})"
        )
        self.check(status)

    def pop(self, step: PopStep) -> None:
        stride = stack_stride(self.program.stacks[step.stack].element)
        stack = self.word(self.layout.stacks[step.stack])
        cell = self.cell(step.slot)
        status = self.let(f"call i32 @drv.pop(ptr %context, ptr {stack}, i64 {step.stack}, ptr {cell}, i64 {stride})")
        self.check(status)

    def rotate(self, pairs: Sequence[tuple[int, int]]) -> None:
        for carry, new in pairs:
            first, second = self.cell(carry), self.cell(new)
            a, b = self.let(f"load ptr, ptr {first}"), self.let(f"load ptr, ptr {second}")
            self.put(f"store ptr {b}, ptr {first}")
            self.put(f"store ptr {a}, ptr {second}")

    def counter(self, start: str) -> str:
        self.names += 1
        name = f"%counter{self.names}"
        self.allocas.append(f"  {name} = alloca i64")
        self.put(f"store i64 {start}, ptr {name}")
        return name

    def for_loop(self, step: ForStep) -> None:
        self.loops += 1
        head, body, done = self.labels("for", "body", "done")
        count, trip = self.counter(self.integer(step.count)), self.counter("0")
        self.block(head)
        k, n = self.let(f"load i64, ptr {trip}"), self.let(f"load i64, ptr {count}")
        more = self.let(f"icmp slt i64 {k}, {n}")
        self.put(f"br i1 {more}, label %{body}, label %{done}")
        self.lines.append(f"{body}:")
        index = k
        if step.reverse:
            index = self.let(f"sub i64 {self.let(f'sub i64 {n}, 1')}, {k}")
        width = memory_type(self.program.slots[step.index].type.dtype)
        narrow = index if width == "i64" else self.let(f"trunc i64 {index} to {width}")
        self.put(f"store {width} {narrow}, ptr {self.pointer(step.index)}")
        self.steps(step.body)
        self.rotate(step.rotate)
        self.check(self.let("call i32 @drv.tick(ptr %context)"))
        passed = self.let(f"add i64 {k}, 1")
        self.put(f"store i64 {passed}, ptr {trip}")
        self.put(f"br label %{head}")
        self.lines.append(f"{done}:")

    def while_loop(self, step: WhileStep) -> None:
        number = self.loops
        self.loops += 1
        head, body, done = self.labels("while", "body", "done")
        trip = self.counter("0")
        self.block(head)
        self.steps(step.condition)
        more = self.let(f"icmp ne i64 {self.integer(step.pred)}, 0")
        self.put(f"br i1 {more}, label %{body}, label %{done}")
        self.lines.append(f"{body}:")
        made = self.let(f"load i64, ptr {trip}")
        if step.max_steps is not None:
            over = self.let(f"icmp sge i64 {made}, {step.max_steps}")
            code = self.let(f"select i1 {over}, i32 {LOOP_LIMIT}, i32 0")
            self.check(
                self.let(
                    f"call i32 @drv.report(ptr %context, i32 {code}, i64 {number}, i64 0, i64 0, i64 {made}, "
                    "i64 0, i64 0)"
                )
            )
        self.put(f"store i64 {self.let(f'add i64 {made}, 1')}, ptr {trip}")
        self.steps(step.body)
        self.rotate(step.rotate)
        self.check(self.let("call i32 @drv.tick(ptr %context)"))
        self.put(f"br label %{head}")
        self.lines.append(f"{done}:")

    def switch(self, step: SwitchStep) -> None:
        value = self.integer(step.index)
        last = len(step.branches) - 1
        low = self.let(f"select i1 {self.let(f'icmp slt i64 {value}, 0')}, i64 0, i64 {value}")
        clamped = self.let(f"select i1 {self.let(f'icmp sgt i64 {low}, {last}')}, i64 {last}, i64 {low}")
        (join,) = self.labels("join")
        branches = [self.labels("branch")[0] for _ in step.branches]
        cases = " ".join(f"i64 {i}, label %{label}" for i, label in enumerate(branches))
        self.put(f"switch i64 {clamped}, label %{branches[-1]} [ {cases} ]")
        for label, branch in zip(branches, step.branches, strict=True):
            self.lines.append(f"{label}:")
            self.steps(branch)
            self.put(f"br label %{join}")
        self.lines.append(f"{join}:")
