"""What a launch does with the stacks of its kernel, as LLVM IR text: loops over a table, as there may be hundreds.

A row of the table is { bytes of one level of depth, number of the parameter that says how deep, or -1 }; a control
block holds capacity[s], needed[s], ... (interface.py).

drv.capacities   chooses and writes capacities, needed = 0; the bytes of all stacks
drv.drop         forgets what was learned, so that the next call starts small
drv.over         the last stack that needed more than it had, or -1
drv.wanted       the bytes that were needed, at least
drv.vast         the bytes that stacks of unknown depth need, where one pushed more than `most` rows, or -1
drv.grow         capacities for the next try: the need just measured, with a little room while that is cheap
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.codegen.targets.cpu.entry.call_context import HEADER
from loopgrad.codegen.targets.cpu.entry.tables import table
from loopgrad.codegen.targets.cpu.interface import StackInterface

ROWS_LIMIT: Final = 1 << 40  # more can't be allocated; keeps byte counts far from 64 bits
ROOM_BYTES: Final = 1 << 26  # above this a stack grows to the exact need


def stack_table(name: str, stacks: Sequence[StackInterface]) -> str:
    """The rows of one kernel's stacks."""
    depths = [-1 if stack.depth_param is None else stack.depth_param for stack in stacks]
    rows = [f"{{ i64, i64 }} {{ i64 {s.row_bytes}, i64 {depth} }}" for s, depth in zip(stacks, depths, strict=True)]
    return table(name, "{ i64, i64 }", rows)


def _each(head: str, start: str, body: str, result: str, before: str = "") -> str:
    """A function that goes through all stacks: %s is the number of one, %cap.p and %need.p are its words, %bytes and
    %depth its row; `%next`, which starts as `start`, is carried in %was."""
    return f"""
define internal {head} $ONCE$ {{
entry:
  %none = icmp eq i64 %count, 0
{before}  br i1 %none, label %done, label %stack
stack:
  %s = phi i64 [ 0, %entry ], [ %s.next, %after ]
  %was = phi i64 [ {start}, %entry ], [ %next, %after ]
  %row = getelementptr {{ i64, i64 }}, ptr %table, i64 %s
  %bytes = load i64, ptr %row
  %depth.c = getelementptr {{ i64, i64 }}, ptr %row, i64 0, i32 1
  %depth = load i64, ptr %depth.c
  %cap.p = getelementptr i64, ptr %control, i64 %s
  %need.n = add i64 %s, %count
  %need.p = getelementptr i64, ptr %control, i64 %need.n
{body}  br label %after
after:
  %s.next = add i64 %s, 1
  %all = icmp eq i64 %s.next, %count
  br i1 %all, label %done, label %stack
done:
  %last = phi i64 [ {start}, %entry ], [ %next, %after ]
{result}}}
"""


_CAPACITIES: Final = _each(
    "i64 @drv.capacities(ptr %context, ptr %params, ptr %control, ptr %table, i64 %count)",
    "0",
    f"""  %old = load i64, ptr %cap.p
  %known = icmp sge i64 %depth, 0
  br i1 %known, label %deep, label %chosen
deep:
  %depth.pp = getelementptr ptr, ptr %params, i64 %depth
  %depth.p = load ptr, ptr %depth.pp
  %rows = load i64, ptr %depth.p
  %deeper = call i64 @llvm.smax.i64(i64 %rows, i64 %old)
  br label %chosen
chosen:
  %learned = phi i64 [ %old, %stack ], [ %deeper, %deep ]
  %wanted = select i1 %is.forced, i64 %forced, i64 %learned
  %cap = call i64 @llvm.smin.i64(i64 %wanted, i64 {ROWS_LIMIT})
  store i64 %cap, ptr %cap.p
  store i64 0, ptr %need.p
  %raw = mul i64 %cap, %bytes
  %up = add i64 %raw, 63
  %size = and i64 %up, -64
  %next = add i64 %was, %size
""",
    "  ret i64 %last\n",
    f"""  %forced.p = getelementptr i64, ptr %context, i64 {HEADER["forced_capacity"]}
  %forced = load i64, ptr %forced.p
  %is.forced = icmp sge i64 %forced, 0
""",
)

_DROP: Final = _each(
    "void @drv.drop(ptr %control, ptr %table, i64 %count)",
    "0",
    """  store i64 0, ptr %cap.p
  %next = add i64 %was, 0
""",
    "  ret void\n",
)

_LOADED: Final = """  %need = load i64, ptr %need.p
  %cap = load i64, ptr %cap.p
"""

_OVER: Final = _each(
    "i64 @drv.over(ptr %control, ptr %table, i64 %count)",
    "-1",
    f"""{_LOADED}  %over = icmp sgt i64 %need, %cap
  %next = select i1 %over, i64 %s, i64 %was
""",
    "  ret i64 %last\n",
)

_WANTED: Final = _each(
    "i64 @drv.wanted(ptr %control, ptr %table, i64 %count)",
    "0",
    f"""{_LOADED}  %most = call i64 @llvm.smax.i64(i64 %need, i64 %cap)
  %size = mul i64 %most, %bytes
  %next = add i64 %was, %size
""",
    "  ret i64 %last\n",
)

_VAST: Final = _each(
    "i64 @drv.vast(ptr %control, ptr %table, i64 %count, i64 %most)",
    "0",
    f"""{_LOADED}  %unknown = icmp slt i64 %depth, 0
  %vast = icmp sgt i64 %need, %most
  %both = and i1 %unknown, %vast
  %told = load i1, ptr %any
  %tell = or i1 %told, %both
  store i1 %tell, ptr %any
  %rows = call i64 @llvm.smin.i64(i64 %need, i64 {ROWS_LIMIT})
  %size = mul i64 %rows, %bytes
  %sum = add i64 %was, %size
  %next = select i1 %unknown, i64 %sum, i64 %was
""",
    """  %found = load i1, ptr %any
  %result = select i1 %found, i64 %last, i64 -1
  ret i64 %result
""",
    "  %any = alloca i1\n  store i1 false, ptr %any\n",
)

_GROW: Final = _each(
    "void @drv.grow(ptr %control, ptr %table, i64 %count)",
    "0",
    f"""{_LOADED}  %over = icmp sgt i64 %need, %cap
  %exact = call i64 @llvm.smin.i64(i64 %need, i64 {ROWS_LIMIT})
  %quarter = lshr i64 %exact, 2
  %roomy = add i64 %exact, %quarter
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %fits = udiv i64 {ROOM_BYTES}, %some
  %least = call i64 @llvm.umax.i64(i64 %fits, i64 1)
  %cheap = icmp slt i64 %roomy, %least
  %goal = select i1 %cheap, i64 %roomy, i64 %exact
  %new = select i1 %over, i64 %goal, i64 %cap
  store i64 %new, ptr %cap.p
  %next = add i64 %was, 0
""",
    "  ret void\n",
)

STACK_CAPACITIES: Final = _CAPACITIES + _DROP + _OVER + _WANTED + _VAST + _GROW
