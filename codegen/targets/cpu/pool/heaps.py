"""The stack heaps of the thread pool, as a part of its LLVM module (see pool_module.py).

A heap is { ptr base, i64 size } of pages from the system; it grows before a launch, loses its contents
when it does, and is kept until `lg_pool_trim`.
"""

from __future__ import annotations

from typing import Final

# Doubling is tried first: pages that nobody touches cost nothing. Then the exact size. A heap is forgotten before its
# pages go and known after they came, so that a child forked meanwhile has none or a whole one.
HEAPS: Final = """
define i32 @lg_heap_ensure(ptr %heap, i64 %bytes) noinline optnone {
  %size_p = getelementptr %heap, ptr %heap, i32 0, i32 1
  %size = load i64, ptr %size_p
  %enough = icmp uge i64 %size, %bytes
  br i1 %enough, label %ok, label %grow
grow:
  call void @heap_free(ptr %heap)
  %twice = shl i64 %size, 1
  %wanted = call i64 @llvm.umax.i64(i64 %bytes, i64 %twice)
  %roomy = call i64 @llvm.umax.i64(i64 %wanted, i64 65536)
  %first = call i32 @heap_map(ptr %heap, i64 %roomy)
  %got = icmp eq i32 %first, 0
  br i1 %got, label %ok, label %exact
exact:
  %second = call i32 @heap_map(ptr %heap, i64 %bytes)
  ret i32 %second
ok:
  ret i32 0
}

define internal i32 @heap_map(ptr %heap, i64 %bytes) noinline optnone {
  %up = add i64 %bytes, 65535
  %rounded = and i64 %up, -65536
  %base = call ptr @mmap(ptr null, i64 %rounded, i32 3, i32 $MAP_FLAGS$, i32 -1, i64 0)
  %failed = icmp eq ptr %base, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %no, label %yes
yes:
  %size_p = getelementptr %heap, ptr %heap, i32 0, i32 1
  %advised = call i32 @madvise(ptr %base, i64 %rounded, i32 $HUGE_PAGES$)
  store ptr %base, ptr %heap
  store i64 %rounded, ptr %size_p
  ret i32 0
no:
  ret i32 1
}

define internal void @heap_free(ptr %heap) noinline optnone {
  %size_p = getelementptr %heap, ptr %heap, i32 0, i32 1
  %size = load i64, ptr %size_p
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %done, label %unmap
unmap:
  %base = load ptr, ptr %heap
  store i64 0, ptr %size_p
  store ptr null, ptr %heap
  %ignored = call i32 @munmap(ptr %base, i64 %size)
  br label %done
done:
  ret void
}

define i64 @lg_pool_heap_bytes() noinline optnone {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  %sum = phi i64 [ 0, %entry ], [ %more, %next ]
  %size_p = getelementptr [$MAX_THREADS$ x %heap], ptr @heaps, i64 0, i64 %i, i32 1
  %size = load i64, ptr %size_p
  %more = add i64 %sum, %size
  %j = add i64 %i, 1
  %last = icmp eq i64 %j, $MAX_THREADS$
  br i1 %last, label %done, label %next
done:
  ret i64 %more
}

define void @lg_pool_trim() noinline optnone {
entry:
  %held = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %free = extractvalue { i32, i1 } %held, 1
  br i1 %free, label %next, label %out
next:
  %i = phi i64 [ 0, %entry ], [ %j, %next ]
  %heap = getelementptr [$MAX_THREADS$ x %heap], ptr @heaps, i64 0, i64 %i
  call void @heap_free(ptr %heap)
  %j = add i64 %i, 1
  %last = icmp eq i64 %j, $MAX_THREADS$
  br i1 %last, label %done, label %next
done:
  store atomic i32 0, ptr @lock release, align 4
  br label %out
out:
  ret void
}
"""
