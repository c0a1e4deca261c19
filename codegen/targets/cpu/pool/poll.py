"""Asking Python whether a signal arrived while native code runs: `lg_poll` and `lg_attend` of the pool's module."""

from __future__ import annotations

from typing import Final

# A callback in Python could not do this: a handler that raises before its first line is only printed.
POLL: Final = """
@gil_ensure = internal global ptr null
@gil_release = internal global ptr null
@check_signals = internal global ptr null
@fetch_error = internal global ptr null

define void @lg_poll_configure(ptr %ensure, ptr %release, ptr %check, ptr %fetch) noinline optnone {
  store ptr %ensure, ptr @gil_ensure
  store ptr %release, ptr @gil_release
  store ptr %check, ptr @check_signals
  store ptr %fetch, ptr @fetch_error
  ret void
}

define i32 @lg_poll(ptr %context) noinline optnone {
  %ensure = load ptr, ptr @gil_ensure
  %release = load ptr, ptr @gil_release
  %check = load ptr, ptr @check_signals
  %absent = icmp eq ptr %check, null
  br i1 %absent, label %never, label %ask
never:
  ret i32 0
ask:
  %state = call i32 %ensure()
  %status = call i32 %check()
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %keep, label %done
keep:
  %type_p = getelementptr i64, ptr %context, i64 $RAISED$
  %value_p = getelementptr i64, ptr %type_p, i64 1
  %traceback_p = getelementptr i64, ptr %type_p, i64 2
  %fetch = load ptr, ptr @fetch_error
  call void %fetch(ptr %type_p, ptr %value_p, ptr %traceback_p)
  br label %done
done:
  call void %release(i32 %state)
  %result = zext i1 %raised to i32
  ret i32 %result
}

define i32 @lg_attend(ptr %context) noinline optnone {
  %now = call i64 @now()
  %polled_p = getelementptr i64, ptr %context, i64 $POLLED$
  %polled = load i64, ptr %polled_p
  %passed = sub i64 %now, %polled
  %due = icmp sgt i64 %passed, $POLL$
  br i1 %due, label %poll, label %go_on
poll:
  store i64 %now, ptr %polled_p
  %raised = call i32 @lg_poll(ptr %context)
  %stop = icmp ne i32 %raised, 0
  br i1 %stop, label %end, label %go_on
end:
  %stop_p = getelementptr i64, ptr %context, i64 $STOP$
  store atomic i64 1, ptr %stop_p monotonic, align 8
  ret i32 1
go_on:
  ret i32 0
}
"""
