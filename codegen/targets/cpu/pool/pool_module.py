"""The thread pool and the stack heaps of the CPU target, as one LLVM module shared by all Programs.

pool_interface.py says what it exports.

How a region runs. The caller publishes the job, opens the gate, bumps the epoch and wakes sleepers.
A worker that sees a new epoch enters the gate (adds one); inside an open gate it takes chunks from
an atomic counter until none is left, then leaves (subtracts one). The caller closes the gate when
the chunks have run out and waits until everybody inside has left: so nobody waits for a worker that
was too late to be of use. Workers spin for SPIN_NANOSECONDS before they sleep on a condition variable.

The module is text as a program's entry is (entry.py), which calls it and shares its structures. It is made once per
machine, so time wouldn't matter here; llvmlite.ir would take 66 lines for the 81 of pool_heaps.py.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

from loopgrad.codegen.targets.cpu.clock import clock_ir
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER
from loopgrad.codegen.targets.cpu.pool.heaps import HEAPS
from loopgrad.codegen.targets.cpu.pool.launches import launches_ir
from loopgrad.codegen.targets.cpu.pool.poll import POLL
from loopgrad.codegen.targets.cpu.pool.pool_interface import MAX_THREADS

SPIN_NANOSECONDS: Final = 40_000
WAKE_NANOSECONDS: Final = 30_000
GATE_OPEN: Final = 1 << 32
POLL_NANOSECONDS: Final = 50_000_000


def pool_ir() -> str:
    """The module's text for the machine that runs this."""
    darwin = sys.platform == "darwin"
    arm = platform.machine() in ("aarch64", "arm64")
    constants = {
        "MAX_THREADS": MAX_THREADS,
        "SPIN": SPIN_NANOSECONDS,
        "WAKE": WAKE_NANOSECONDS,
        "ALL": (1 << 63) - 1,
        "OPEN": GATE_OPEN,
        "MASK": ~GATE_OPEN,
        "PAUSE": "llvm.aarch64.hint(i32 1)" if arm else "llvm.x86.sse2.pause()",
        "PAUSE_TYPE": "llvm.aarch64.hint(i32)" if arm else "llvm.x86.sse2.pause()",
        "MAP_FLAGS": 0x1002 if darwin else 0x22,
        "HUGE_PAGES": 0 if darwin else 14,  # MADV_HUGEPAGE; no effect on small blocks
        "SIG_BLOCK": 1 if darwin else 0,
        "RAISED": HEADER["raised_type"],
        "POLLED": HEADER["polled"],
        "STOP": HEADER["stop"],
        "BEFORE_HEAP": -HEADER["heap_base"],
        "POLL": POLL_NANOSECONDS,
    }
    text = _GLOBALS + HEAPS + _WORK + clock_ir("now") + _WAIT + _WORKER + _REGION + POLL + launches_ir()
    for name, value in constants.items():
        text = text.replace(f"${name}$", str(value))
    return text


# Each contended word has cache lines of its own.
_GLOBALS: Final = """
%heap = type { ptr, i64 }
%job = type { ptr, ptr, ptr, i64, i64 }

@lock = internal global [32 x i32] zeroinitializer, align 128
@gate = internal global [16 x i64] zeroinitializer, align 128
@counter = internal global [16 x i64] zeroinitializer, align 128
@epoch = internal global [32 x i32] zeroinitializer, align 128
@sleepers = internal global [32 x i32] zeroinitializer, align 128
@current = internal global %job zeroinitializer, align 128
@threads = internal global i64 1, align 128
@workers = internal global i64 0
@prepared = internal global i32 0
@debt = internal global i64 0
@heaps = internal global [$MAX_THREADS$ x %heap] zeroinitializer, align 128
@mutex = internal global [128 x i8] zeroinitializer, align 128
@cond = internal global [128 x i8] zeroinitializer, align 128

declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare void @$PAUSE_TYPE$
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
"""

# `most` bounds the chunks that one call of @work runs.
# A worker whose heap can't be allocated leaves the chunks to the others; the caller has secured its own.
_WORK: Final = """
define internal i32 @work(i64 %id, i64 %most) {
entry:
  %heap = getelementptr [$MAX_THREADS$ x %heap], ptr @heaps, i64 0, i64 %id
  %fn = load ptr, ptr @current
  %params = load ptr, ptr getelementptr (%job, ptr @current, i32 0, i32 1)
  %control = load ptr, ptr getelementptr (%job, ptr @current, i32 0, i32 2)
  %chunks = load i64, ptr getelementptr (%job, ptr @current, i32 0, i32 3)
  %bytes = load i64, ptr getelementptr (%job, ptr @current, i32 0, i32 4)
  %failed = call i32 @lg_heap_ensure(ptr %heap, i64 %bytes)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %out, label %begin
begin:
  %worker = alloca { ptr, i64 }
  %base = load ptr, ptr %heap
  %id_p = getelementptr { ptr, i64 }, ptr %worker, i32 0, i32 1
  store ptr %base, ptr %worker
  store i64 %id, ptr %id_p
  br label %next
next:
  %done = phi i64 [ 0, %begin ], [ %done2, %run ]
  %may = icmp slt i64 %done, %most
  br i1 %may, label %take, label %out
take:
  %chunk = atomicrmw add ptr @counter, i64 1 monotonic
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %run, label %out
run:
  call void %fn(ptr %params, i64 %chunk, ptr %worker, ptr %control)
  %done2 = add i64 %done, 1
  br label %next
out:
  ret i32 %failed
}

define i32 @lg_serial_run(ptr %fn, ptr %params, ptr %control, i64 %chunks, i64 %bytes, ptr %heap) {
entry:
  %failed = call i32 @lg_heap_ensure(ptr %heap, i64 %bytes)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %out, label %begin
begin:
  %worker = alloca { ptr, i64 }
  %base = load ptr, ptr %heap
  %id_p = getelementptr { ptr, i64 }, ptr %worker, i32 0, i32 1
  store ptr %base, ptr %worker
  store i64 0, ptr %id_p
  br label %next
next:
  %chunk = phi i64 [ 0, %begin ], [ %after, %run ]
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %run, label %out
run:
  call void %fn(ptr %params, i64 %chunk, ptr %worker, ptr %control)
  %after = add i64 %chunk, 1
  br label %next
out:
  ret i32 %failed
}
"""

_WAIT: Final = """
define internal void @await_epoch(i32 %seen) {
entry:
  %start = call i64 @now()
  br label %spin
spin:
  %i = phi i32 [ 0, %entry ], [ %j, %again ], [ %j, %clock ]
  %epoch = load atomic i32, ptr @epoch acquire, align 4
  %new = icmp ne i32 %epoch, %seen
  br i1 %new, label %out, label %pause
pause:
  call void @$PAUSE$
  %j = add i32 %i, 1
  %low = and i32 %j, 31
  %due = icmp eq i32 %low, 0
  br i1 %due, label %clock, label %again
again:
  br label %spin
clock:
  %time = call i64 @now()
  %passed = sub i64 %time, %start
  %long = icmp sgt i64 %passed, $SPIN$
  br i1 %long, label %sleep, label %spin
sleep:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %s1 = atomicrmw add ptr @sleepers, i32 1 seq_cst
  br label %check
check:
  %epoch2 = load atomic i32, ptr @epoch seq_cst, align 4
  %new2 = icmp ne i32 %epoch2, %seen
  br i1 %new2, label %awake, label %wait
wait:
  %w = call i32 @pthread_cond_wait(ptr @cond, ptr @mutex)
  br label %check
awake:
  %s2 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %out
out:
  ret void
}

define internal void @wake(i64 %wanted) {
entry:
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %none = icmp eq i32 %asleep, 0
  br i1 %none, label %out, label %lock
lock:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %wide = zext i32 %asleep to i64
  %number = call i64 @llvm.umin.i64(i64 %wide, i64 %wanted)
  br label %next
next:
  %i = phi i64 [ 0, %lock ], [ %j, %signal ]
  %more = icmp ult i64 %i, %number
  br i1 %more, label %signal, label %unlock
signal:
  %c = call i32 @pthread_cond_signal(ptr @cond)
  %j = add i64 %i, 1
  br label %next
unlock:
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %out
out:
  ret void
}
"""

# Signals stay with Python's threads: a worker that took one would not interrupt a blocked main thread.
_WORKER: Final = """
define internal ptr @worker_main(ptr %argument) noinline optnone {
entry:
  %id = ptrtoint ptr %argument to i64
  %all = alloca [128 x i8], align 16
  %f = call i32 @sigfillset(ptr %all)
  %m = call i32 @pthread_sigmask(i32 $SIG_BLOCK$, ptr %all, ptr null)
  br label %enter
enter:
  %epoch = load atomic i32, ptr @epoch acquire, align 4
  %old = atomicrmw add ptr @gate, i64 1 acq_rel
  %bit = and i64 %old, $OPEN$
  %open = icmp ne i64 %bit, 0
  br i1 %open, label %take, label %leave
take:
  %ignored = call i32 @work(i64 %id, i64 $ALL$)
  br label %leave
leave:
  %left = atomicrmw sub ptr @gate, i64 1 acq_rel
  call void @await_epoch(i32 %epoch)
  br label %enter
}

define internal void @start_workers(i64 %wanted) noinline optnone {
entry:
  %thread = alloca ptr
  %prepared = load i32, ptr @prepared
  %ready = icmp ne i32 %prepared, 0
  br i1 %ready, label %next, label %prepare
prepare:
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @cond, ptr null)
  store i32 1, ptr @prepared
  br label %next
next:
  %running = load i64, ptr @workers
  %more = icmp slt i64 %running, %wanted
  br i1 %more, label %create, label %out
create:
  %id = add i64 %running, 1
  %argument = inttoptr i64 %id to ptr
  %status = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker_main, ptr %argument)
  %good = icmp eq i32 %status, 0
  br i1 %good, label %created, label %give_up
created:
  %handle = load ptr, ptr %thread
  %d = call i32 @pthread_detach(ptr %handle)
  store i64 %id, ptr @workers
  br label %next
give_up:
  %fewer = add i64 %running, 1
  store i64 %fewer, ptr @threads
  br label %out
out:
  ret void
}

define void @lg_pool_configure(i64 %threads) noinline optnone {
  %least = call i64 @llvm.umax.i64(i64 %threads, i64 1)
  %count = call i64 @llvm.umin.i64(i64 %least, i64 $MAX_THREADS$)
  store i64 %count, ptr @threads
  ret void
}

define void @lg_pool_after_fork() noinline optnone {
  store atomic i64 0, ptr @gate release, align 8
  store atomic i32 0, ptr @sleepers release, align 4
  store i64 0, ptr @workers
  store i32 0, ptr @prepared
  store atomic i32 0, ptr @lock release, align 4
  ret void
}
"""

# Waking a sleeper costs microseconds and takes effect tens of microseconds later. So the caller runs
# one chunk first, and wakes the others where that much work remains, here and in recent regions that
# were too short each.
_REGION: Final = """
define internal void @wake_if_worth(i64 %chunks) {
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %none = icmp eq i32 %asleep, 0
  br i1 %none, label %out, label %try
try:
  %start = call i64 @now()
  %w = call i32 @work(i64 0, i64 1)
  %stop = call i64 @now()
  %each = sub i64 %stop, %start
  %rest = sub i64 %chunks, 1
  %left = mul i64 %each, %rest
  %owed = load i64, ptr @debt
  %sum = add i64 %left, %owed
  %worth = icmp sgt i64 %sum, $WAKE$
  %kept = select i1 %worth, i64 0, i64 %sum
  store i64 %kept, ptr @debt
  br i1 %worth, label %wake, label %out
wake:
  call void @wake(i64 %rest)
  br label %out
out:
  ret void
}

define i32 @lg_pool_run(ptr %fn, ptr %params, ptr %control, i64 %chunks, i64 %bytes, ptr %heap) {
  %r = call i32 @region(ptr %fn, ptr %params, ptr %control, i64 %chunks, i64 %bytes, ptr %heap, i1 false)
  ret i32 %r
}

define i32 @lg_pool_run_short(ptr %fn, ptr %params, ptr %control, i64 %chunks, i64 %bytes, ptr %heap) {
  %r = call i32 @region(ptr %fn, ptr %params, ptr %control, i64 %chunks, i64 %bytes, ptr %heap, i1 true)
  ret i32 %r
}

define internal i32 @region(ptr %fn, ptr %params, ptr %control, i64 %chunks, i64 %bytes, ptr %heap, i1 %short) {
entry:
  %threads = load i64, ptr @threads
  %single = icmp eq i64 %threads, 1
  %little = icmp slt i64 %chunks, 2
  %alone = or i1 %single, %little
  br i1 %alone, label %serial, label %try
try:
  %held = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %free = extractvalue { i32, i1 } %held, 1
  br i1 %free, label %prepare, label %serial
serial:
  %status = call i32 @lg_serial_run(ptr %fn, ptr %params, ptr %control, i64 %chunks, i64 %bytes, ptr %heap)
  ret i32 %status
prepare:
  %others = sub i64 %threads, 1
  %running = load i64, ptr @workers
  %missing = icmp slt i64 %running, %others
  br i1 %missing, label %start, label %secure
start:
  call void @start_workers(i64 %others)
  br label %secure
secure:
  %own = call i32 @lg_heap_ensure(ptr @heaps, i64 %bytes)
  %poor = icmp ne i32 %own, 0
  br i1 %poor, label %unlock, label %publish
publish:
  store ptr %fn, ptr @current
  store ptr %params, ptr getelementptr (%job, ptr @current, i32 0, i32 1)
  store ptr %control, ptr getelementptr (%job, ptr @current, i32 0, i32 2)
  store i64 %chunks, ptr getelementptr (%job, ptr @current, i32 0, i32 3)
  store i64 %bytes, ptr getelementptr (%job, ptr @current, i32 0, i32 4)
  store atomic i64 0, ptr @counter monotonic, align 8
  %o = atomicrmw or ptr @gate, i64 $OPEN$ acq_rel
  %e = atomicrmw add ptr @epoch, i32 1 seq_cst
  br i1 %short, label %measure, label %rouse
measure:
  call void @wake_if_worth(i64 %chunks)
  br label %share
rouse:
  %rest = sub i64 %chunks, 1
  call void @wake(i64 %rest)
  br label %share
share:
  %w = call i32 @work(i64 0, i64 $ALL$)
  %c = atomicrmw and ptr @gate, i64 $MASK$ acq_rel
  br label %join
join:
  %spins = phi i32 [ 0, %share ], [ %spins2, %pause ], [ 0, %yield ]
  %inside = load atomic i64, ptr @gate acquire, align 8
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %unlock, label %linger
linger:
  %spins2 = add i32 %spins, 1
  %tired = icmp ugt i32 %spins2, 2000
  br i1 %tired, label %yield, label %pause
pause:
  call void @$PAUSE$
  br label %join
yield:
  %y = call i32 @sched_yield()
  %context = getelementptr i64, ptr %heap, i64 $BEFORE_HEAP$
  %a = call i32 @lg_attend(ptr %context)
  br label %join
unlock:
  %result = phi i32 [ %own, %secure ], [ 0, %join ]
  store atomic i32 0, ptr @lock release, align 4
  ret i32 %result
}
"""
