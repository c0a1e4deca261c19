"""The functions that a Program's entry may call, as LLVM IR text. Only those that it uses are given.

drv.report   writes the report words and returns the code; code 0 writes nothing
drv.reserve  asks the runtime whether memory may be allocated
drv.host     calls back into Python for one host call
drv.tick     lets the runtime look around (interrupts) when a loop has run for a while
drv.room     makes room on a program stack for a known number of elements
drv.push     appends to a program stack: doubling, then an eighth more, then one more element
drv.pop      takes the top element: the slot's pointer is set to it
drv.fill.*   writes one value everywhere
drv.product.* batched products of floats, by the module of products
drv.matmul.* batched integer products
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from loopgrad.codegen.targets.cpu.clock import clock_ir
from loopgrad.codegen.targets.cpu.entry.call_context import (
    HEADER,
    HOST_CALL,
    INTERRUPTED,
    RESERVE_STACK,
    STACK_EMPTY,
    STACK_MEMORY,
)
from loopgrad.codegen.targets.cpu.entry.stack_capacities import STACK_CAPACITIES
from loopgrad.codegen.targets.cpu.entry.tables import TABLES
from loopgrad.codegen.targets.cpu.products.products_interface import SHAPE

ONCE: Final = "noinline optnone"
"""Of code that runs once a call, which LLVM would take longer to make better than it could ever save."""

POLL_NANOSECONDS: Final = 100_000_000
UNASKED_BYTES: Final = 1 << 20  # program stacks below this grow without asking
STACK_BYTES_LIMIT: Final = 1 << 62

_DEFINED: Final = re.compile(r"@([\w.]+)\(")
_USED: Final = re.compile(r"@(drv\.[\w.]+)\(")


def support_ir(user: str) -> str:
    """The declarations and those functions that the text `user` needs, for this operating system."""
    functions = {_DEFINED.findall(text)[0]: text for text in _functions()}
    needed: dict[str, str] = {}
    pending = _USED.findall(user)
    while pending:
        name = pending.pop()
        if name in functions and name not in needed:
            needed[name] = functions[name]
            pending += _USED.findall(functions[name])
    return "\n".join([_DECLARATIONS, *needed.values()])


@cache
def _functions() -> tuple[str, ...]:
    text = _REPORTS + clock_ir("drv.now") + _TICK + _STACKS + TABLES + STACK_CAPACITIES
    text += "".join(_FILL.replace("$T$", width) for width in ("i8", "i16", "i32", "i64", "i128"))
    for name, width in (("float32", "32"), ("float64", "64")):
        text += _PRODUCT.replace("$N$", name).replace("$W$", width)
    text += "".join(_MATMUL.replace("$T$", width) for width in ("i8", "i16", "i32", "i64"))
    constants = {
        "ONCE": ONCE,
        "POLL": POLL_NANOSECONDS,
        "HOST_CALL": HOST_CALL,
        "INTERRUPTED": INTERRUPTED,
        "STACK_EMPTY": STACK_EMPTY,
        "STACK_MEMORY": STACK_MEMORY,
        "RESERVE_STACK": RESERVE_STACK,
        "UNASKED": UNASKED_BYTES,
        "LIMIT": STACK_BYTES_LIMIT,
        **{f"H.{name}": word for name, word in HEADER.items()},
        **{f"S.{name}": word for name, word in SHAPE.items()},
    }
    for name, value in constants.items():
        text = text.replace(f"${name}$", str(value))
    return tuple("define" + body for body in text.split("\ndefine")[1:])


_DECLARATIONS: Final = """
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)
declare ptr @realloc(ptr, i64)
declare i32 @clock_gettime(i32, ptr)
"""

_REPORTS: Final = """
define internal i32 @drv.report(ptr %context, i32 %code, i64 %where, i64 %which, i64 %lane, i64 %detail,
                                i64 %needed, i64 %allocated) $ONCE$ {
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %out, label %write
write:
  %wide = sext i32 %code to i64
  %code_p = getelementptr i64, ptr %context, i64 $H.code$
  store i64 %wide, ptr %code_p
  %where_p = getelementptr i64, ptr %context, i64 $H.where$
  store i64 %where, ptr %where_p
  %which_p = getelementptr i64, ptr %context, i64 $H.which$
  store i64 %which, ptr %which_p
  %lane_p = getelementptr i64, ptr %context, i64 $H.lane$
  store i64 %lane, ptr %lane_p
  %detail_p = getelementptr i64, ptr %context, i64 $H.detail$
  store i64 %detail, ptr %detail_p
  %needed_p = getelementptr i64, ptr %context, i64 $H.needed$
  store i64 %needed, ptr %needed_p
  %allocated_p = getelementptr i64, ptr %context, i64 $H.allocated$
  store i64 %allocated, ptr %allocated_p
  br label %out
out:
  ret i32 %code
}

define internal i32 @drv.reserve(ptr %context, i64 %kind, i64 %bytes) cold $ONCE$ {
  %ask_p = getelementptr i64, ptr %context, i64 $H.reserve$
  %ask = load ptr, ptr %ask_p
  %refused = call i32 %ask(ptr %context, i64 %kind, i64 %bytes)
  ret i32 %refused
}

define internal i32 @drv.host(ptr %context, i64 %number) $ONCE$ {
  %call_p = getelementptr i64, ptr %context, i64 $H.host_call$
  %call = load ptr, ptr %call_p
  %failed = call i32 %call(ptr %context, i64 %number)
  %bad = icmp ne i32 %failed, 0
  %code = select i1 %bad, i32 $HOST_CALL$, i32 0
  %result = call i32 @drv.report(ptr %context, i32 %code, i64 %number, i64 0, i64 0, i64 0, i64 0, i64 0)
  ret i32 %result
}

define internal void @drv.grew(ptr %context) $ONCE$ {
  %growths_p = getelementptr i64, ptr %context, i64 $H.growths$
  %growths = load i64, ptr %growths_p
  %more = add i64 %growths, 1
  store i64 %more, ptr %growths_p
  ret void
}
"""

_TICK: Final = """
define internal i32 @drv.tick(ptr %context) {
  %now = call i64 @drv.now()
  %polled_p = getelementptr i64, ptr %context, i64 $H.polled$
  %polled = load i64, ptr %polled_p
  %passed = sub i64 %now, %polled
  %due = icmp sgt i64 %passed, $POLL$
  br i1 %due, label %poll, label %out
poll:
  %poll_p = getelementptr i64, ptr %context, i64 $H.poll$
  %function = load ptr, ptr %poll_p
  %stop = call i32 %function(ptr %context)
  store i64 %now, ptr %polled_p
  %bad = icmp ne i32 %stop, 0
  %code = select i1 %bad, i32 $INTERRUPTED$, i32 0
  %result = call i32 @drv.report(ptr %context, i32 %code, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0)
  ret i32 %result
out:
  ret i32 0
}
"""

_STACKS: Final = """
define internal i1 @drv.enlarge(ptr %context, ptr %stack, i64 %number, i64 %capacity, i64 %stride) cold $ONCE$ {
  %most = udiv i64 $LIMIT$, %stride
  %absurd = icmp ugt i64 %capacity, %most
  br i1 %absurd, label %no, label %size
size:
  %bytes = mul i64 %capacity, %stride
  %small = icmp ule i64 %bytes, $UNASKED$
  br i1 %small, label %allocate, label %ask
ask:
  %kind = add i64 %number, $RESERVE_STACK$
  %refused = call i32 @drv.reserve(ptr %context, i64 %kind, i64 %bytes)
  %denied = icmp ne i32 %refused, 0
  br i1 %denied, label %no, label %allocate
allocate:
  %base = load ptr, ptr %stack
  %new = call ptr @realloc(ptr %base, i64 %bytes)
  %null = icmp eq ptr %new, null
  br i1 %null, label %no, label %yes
yes:
  store ptr %new, ptr %stack
  %capacity_p = getelementptr i64, ptr %stack, i64 2
  store i64 %capacity, ptr %capacity_p
  ret i1 true
no:
  ret i1 false
}

define internal i32 @drv.room(ptr %context, ptr %stack, i64 %number, i64 %more, i64 %stride) {
  %depth_p = getelementptr i64, ptr %stack, i64 1
  %capacity_p = getelementptr i64, ptr %stack, i64 2
  %depth = load i64, ptr %depth_p
  %capacity = load i64, ptr %capacity_p
  %sum = add i64 %depth, %more
  %wrapped = icmp slt i64 %sum, %depth
  %some = icmp sgt i64 %more, 0
  %absurd = and i1 %wrapped, %some
  %wanted = select i1 %absurd, i64 $LIMIT$, i64 %sum
  %enough = icmp sle i64 %wanted, %capacity
  br i1 %enough, label %out, label %grow
grow:
  %ok = call i1 @drv.enlarge(ptr %context, ptr %stack, i64 %number, i64 %wanted, i64 %stride)
  br i1 %ok, label %out, label %fail
fail:
  %code = call i32 @drv.report(ptr %context, i32 $STACK_MEMORY$, i64 %number, i64 0, i64 0, i64 0, i64 %wanted,
                               i64 %capacity)
  ret i32 %code
out:
  ret i32 0
}

define internal i32 @drv.push(ptr %context, ptr %stack, i64 %number, ptr %source, i64 %bytes, i64 %stride) {
  %depth_p = getelementptr i64, ptr %stack, i64 1
  %capacity_p = getelementptr i64, ptr %stack, i64 2
  %peak_p = getelementptr i64, ptr %stack, i64 3
  %depth = load i64, ptr %depth_p
  %capacity = load i64, ptr %capacity_p
  %room = icmp slt i64 %depth, %capacity
  br i1 %room, label %copy, label %double
double:
  %inside = load ptr, ptr %stack
  %twice = shl i64 %capacity, 1
  %least = add i64 %twice, 4
  %ok1 = call i1 @drv.enlarge(ptr %context, ptr %stack, i64 %number, i64 %least, i64 %stride)
  br i1 %ok1, label %moved, label %eighth
eighth:
  %part = lshr i64 %capacity, 3
  %some = add i64 %capacity, %part
  %more = add i64 %some, 1
  %ok2 = call i1 @drv.enlarge(ptr %context, ptr %stack, i64 %number, i64 %more, i64 %stride)
  br i1 %ok2, label %moved, label %single
single:
  %one = add i64 %capacity, 1
  %ok3 = call i1 @drv.enlarge(ptr %context, ptr %stack, i64 %number, i64 %one, i64 %stride)
  br i1 %ok3, label %moved, label %fail
fail:
  %code = call i32 @drv.report(ptr %context, i32 $STACK_MEMORY$, i64 %number, i64 0, i64 0, i64 0, i64 %one,
                               i64 %capacity)
  ret i32 %code
moved:
  ; a source that was this stack's popped top moved along with it
  %new = load ptr, ptr %stack
  %source_i = ptrtoint ptr %source to i64
  %inside_i = ptrtoint ptr %inside to i64
  %offset = sub i64 %source_i, %inside_i
  %span = mul i64 %capacity, %stride
  %within = icmp ult i64 %offset, %span
  %followed = getelementptr i8, ptr %new, i64 %offset
  %from = select i1 %within, ptr %followed, ptr %source
  br label %copy
copy:
  %origin = phi ptr [ %source, %0 ], [ %from, %moved ]
  %base = load ptr, ptr %stack
  %at = mul i64 %depth, %stride
  %top = getelementptr i8, ptr %base, i64 %at
  %ignored = call ptr @memmove(ptr %top, ptr %origin, i64 %bytes)
  %deeper = add i64 %depth, 1
  store i64 %deeper, ptr %depth_p
  %peak = load i64, ptr %peak_p
  %higher = icmp sgt i64 %deeper, %peak
  %highest = select i1 %higher, i64 %deeper, i64 %peak
  store i64 %highest, ptr %peak_p
  ret i32 0
}

define internal i32 @drv.pop(ptr %context, ptr %stack, i64 %number, ptr %cell, i64 %stride) {
  %depth_p = getelementptr i64, ptr %stack, i64 1
  %depth = load i64, ptr %depth_p
  %empty = icmp sle i64 %depth, 0
  br i1 %empty, label %fail, label %take
fail:
  %code = call i32 @drv.report(ptr %context, i32 $STACK_EMPTY$, i64 %number, i64 0, i64 0, i64 0, i64 0, i64 0)
  ret i32 %code
take:
  %lower = sub i64 %depth, 1
  store i64 %lower, ptr %depth_p
  %base = load ptr, ptr %stack
  %at = mul i64 %lower, %stride
  %top = getelementptr i8, ptr %base, i64 %at
  store ptr %top, ptr %cell
  ret i32 0
}
"""

_FILL: Final = """
define internal void @drv.fill.$T$(ptr %target, $T$ %value, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %j, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %out
body:
  %p = getelementptr $T$, ptr %target, i64 %i
  store $T$ %value, ptr %p, align 1
  %j = add i64 %i, 1
  br label %head
out:
  ret void
}
"""

_PRODUCT: Final = """
define internal i32 @drv.product.$N$(ptr %context, ptr %left, ptr %right, ptr %out, ptr %shape) {
  %short_p = getelementptr i64, ptr %shape, i64 $S.short$
  %short_w = load i64, ptr %short_p
  %short = icmp ne i64 %short_w, 0
  %word = select i1 %short, i64 $H.pool_run_short$, i64 $H.pool_run$
  %run_p = getelementptr i64, ptr %context, i64 %word
  %run = load ptr, ptr %run_p
  %heap = getelementptr i64, ptr %context, i64 $H.heap_base$
  %product_p = getelementptr i64, ptr %context, i64 $H.product_f$W$$
  %product = load ptr, ptr %product_p
  %status = call i32 %product(ptr %run, ptr %heap, ptr %left, ptr %right, ptr %out, ptr %shape)
  ret i32 %status
}
"""

_MATMUL: Final = """
define internal void @drv.matmul.$T$(ptr noalias %left, ptr noalias %right, ptr noalias %out, i64 %batch, i64 %m,
                                     i64 %k, i64 %n, i64 %left_row, i64 %left_column, i64 %right_row,
                                     i64 %right_column) {
entry:
  %rows = mul i64 %batch, %m
  %left_step = mul i64 %m, %k
  %right_step = mul i64 %k, %n
  br label %row
row:
  %r = phi i64 [ 0, %entry ], [ %r2, %row_end ]
  %row_more = icmp slt i64 %r, %rows
  br i1 %row_more, label %clear, label %done
clear:
  %b = udiv i64 %r, %m
  %i = urem i64 %r, %m
  %out_at = mul i64 %r, %n
  %out_p = getelementptr $T$, ptr %out, i64 %out_at
  call void @drv.fill.$T$(ptr %out_p, $T$ 0, i64 %n)
  %left_b = mul i64 %b, %left_step
  %left_i = mul i64 %i, %left_row
  %left_at = add i64 %left_b, %left_i
  %right_at = mul i64 %b, %right_step
  br label %inner
inner:
  %q = phi i64 [ 0, %clear ], [ %q2, %inner_end ]
  %inner_more = icmp slt i64 %q, %k
  br i1 %inner_more, label %factor, label %row_end
factor:
  %left_q = mul i64 %q, %left_column
  %left_iq = add i64 %left_at, %left_q
  %left_p = getelementptr $T$, ptr %left, i64 %left_iq
  %x = load $T$, ptr %left_p, align 1
  %right_q = mul i64 %q, %right_row
  %right_base = add i64 %right_at, %right_q
  br label %column
column:
  %j = phi i64 [ 0, %factor ], [ %j2, %multiply ]
  %column_more = icmp slt i64 %j, %n
  br i1 %column_more, label %multiply, label %inner_end
multiply:
  %right_j = mul i64 %j, %right_column
  %right_qj = add i64 %right_base, %right_j
  %right_p = getelementptr $T$, ptr %right, i64 %right_qj
  %y = load $T$, ptr %right_p, align 1
  %xy = mul $T$ %x, %y
  %sum_p = getelementptr $T$, ptr %out_p, i64 %j
  %sum = load $T$, ptr %sum_p, align 1
  %sum2 = add $T$ %sum, %xy
  store $T$ %sum2, ptr %sum_p, align 1
  %j2 = add i64 %j, 1
  br label %column
inner_end:
  %q2 = add i64 %q, 1
  br label %inner
row_end:
  %r2 = add i64 %r, 1
  br label %row
done:
  ret void
}
"""
