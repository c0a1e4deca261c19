"""The part of the pool's module that launches kernels which neither have stacks nor need cleared memory.

`lg_launch` is what `@run.kN` of entry/launch.py is for other kernels: it runs the chunks, and reports memory that
couldn't be had, an interruption, or an error that a kernel noted. Being here, it is compiled once per machine, and
programs call it through their context.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.targets.cpu.entry.call_context import CHECK, CONTROL_TAIL, HEADER, HEAP_MEMORY, INTERRUPTED

REPORT: Final = {name: f"%{name}" for name in ("code", "where", "which", "lane", "detail")} | {
    "needed": "0",
    "allocated": "0",
}


def launches_ir() -> str:
    """The text, complete."""
    stored = []
    for name, value in REPORT.items():
        stored.append(f"  %{name}.p = getelementptr i64, ptr %context, i64 {HEADER[name]}")
        stored.append(f"  store i64 {value}, ptr %{name}.p")
    text = _LAUNCH.replace("$STORED$", "\n".join(stored))
    constants = {
        "HEAP": HEADER["heap_base"],
        "STOPPED": HEADER["stop"],
        "OWN": CONTROL_TAIL - 1,
        "HEAP_MEMORY": HEAP_MEMORY,
        "INTERRUPTED": INTERRUPTED,
        "CHECK": CHECK,
    }
    for name, number in constants.items():
        text = text.replace(f"${name}$", str(number))
    return text


# `way` is the word of the context that has the function which goes through chunks, `finish` null where there is none
_LAUNCH: Final = """
define i32 @lg_launch(ptr %context, ptr %params, ptr %kernel, i64 %chunks, i64 %where, i64 %word, i64 %way,
                      ptr %finish) {
entry:
  %control = getelementptr i64, ptr %context, i64 %word
  %heap = getelementptr i64, ptr %context, i64 $HEAP$
  %error.p = getelementptr i64, ptr %control, i64 1
  store i64 0, ptr %error.p
  %own.p = getelementptr i64, ptr %control, i64 $OWN$
  store ptr %context, ptr %own.p
  %run.p = getelementptr i64, ptr %context, i64 %way
  %run = load ptr, ptr %run.p
  %poor = call i32 %run(ptr %kernel, ptr %params, ptr %control, i64 %chunks, i64 0, ptr %heap)
  %stop.p = getelementptr i64, ptr %context, i64 $STOPPED$
  %stop = load atomic i64, ptr %stop.p monotonic, align 8
  %error = load i64, ptr %error.p
  %is.poor = icmp ne i32 %poor, 0
  %is.ended = icmp ne i64 %stop, 0
  %is.wrong = icmp ne i64 %error, 0
  %a = select i1 %is.wrong, i64 $CHECK$, i64 0
  %b = select i1 %is.ended, i64 $INTERRUPTED$, i64 %a
  %code = select i1 %is.poor, i64 $HEAP_MEMORY$, i64 %b
  %fine = icmp eq i64 %code, 0
  br i1 %fine, label %ran, label %failed
ran:
  %none = icmp eq ptr %finish, null
  br i1 %none, label %done, label %last
last:
  call void %finish(ptr %params)
  br label %done
done:
  ret i32 0
failed:
  %is.check = icmp eq i64 %code, $CHECK$
  %site = sub i64 %error, 1
  %error.lane.p = getelementptr i64, ptr %control, i64 2
  %error.lane = load i64, ptr %error.lane.p
  %error.detail.p = getelementptr i64, ptr %control, i64 3
  %error.detail = load i64, ptr %error.detail.p
  %which = select i1 %is.check, i64 %site, i64 0
  %lane = select i1 %is.check, i64 %error.lane, i64 0
  %detail = select i1 %is.check, i64 %error.detail, i64 0
$STORED$
  %result = trunc i64 %code to i32
  ret i32 %result
}
"""
