"""Long lists in constant tables: what `@entry` does many times in the same way is a loop over a table.

    drv.place   slots[table[i].slot] = base + table[i].offset     temporaries in the arena, at entry
    drv.take    params[i] = slots[table[i]]                       the parameters of a launch

Straight code of thousands of lines takes LLVM seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LONG: Final = 16  # shorter lists are written out

TABLES: Final = """
define internal void @drv.place(ptr %slots, ptr %base, ptr %table, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  %row = getelementptr { i64, i64 }, ptr %table, i64 %i
  %slot = load i64, ptr %row
  %offset_p = getelementptr { i64, i64 }, ptr %row, i64 0, i32 1
  %offset = load i64, ptr %offset_p
  %own = getelementptr i8, ptr %base, i64 %offset
  %cell = getelementptr ptr, ptr %slots, i64 %slot
  store ptr %own, ptr %cell
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %count
  br i1 %more, label %next, label %done
done:
  ret void
}

define internal void @drv.take(ptr %slots, ptr %params, ptr %table, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  %row = getelementptr i32, ptr %table, i64 %i
  %slot = load i32, ptr %row
  %wide = zext i32 %slot to i64
  %cell = getelementptr ptr, ptr %slots, i64 %wide
  %pointer = load ptr, ptr %cell
  %where = getelementptr ptr, ptr %params, i64 %i
  store ptr %pointer, ptr %where
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %count
  br i1 %more, label %next, label %done
done:
  ret void
}
"""


def table(name: str, type: str, rows: Sequence[str]) -> str:
    """The text of a constant array."""
    return f"{name} = private unnamed_addr constant [{len(rows)} x {type}] [{', '.join(rows)}]"
