"""The clock that the pool and programs' entries read: a function in LLVM IR for each module."""

from __future__ import annotations

import sys
from typing import Final

MONOTONIC: Final = 6 if sys.platform == "darwin" else 1

_CLOCK: Final = """
define internal i64 @$NAME$() {
  %time = alloca { i64, i64 }
  %ignored = call i32 @clock_gettime(i32 $CLOCK$, ptr %time)
  %s = load i64, ptr %time
  %ns_p = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %ns = load i64, ptr %ns_p
  %scaled = mul i64 %s, 1000000000
  %sum = add i64 %scaled, %ns
  ret i64 %sum
}
"""


def clock_ir(name: str) -> str:
    """A function of that name that gives nanoseconds of a clock that never goes back. The module declares
    `clock_gettime`."""
    return _CLOCK.replace("$NAME$", name).replace("$CLOCK$", str(MONOTONIC))
