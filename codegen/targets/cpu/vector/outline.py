"""Small functions that kernels call on rare or scalar paths, as LLVM IR text; one copy per module.

- accumulate: active lanes of a vector combine into memory, in lane order;
- sort: a counting sort of a tile's lanes by bucket, largest first (Knuth, TAOCP 3, 5.2);
- overflow, fail: record a stack overflow or a failed check in the control block.
"""

from __future__ import annotations

from loopgrad.codegen.scalar.elementwise import compute
from loopgrad.codegen.scalar.sort_key import BUCKETS
from loopgrad.codegen.targets.cpu.entry.call_context import HEADER, STOP_STARVED
from loopgrad.codegen.targets.cpu.vector.recipes import VectorOps, VectorScope
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector
from loopgrad.graph.types import DType, uint8

EXTREMES = {"min": "olt", "max": "ogt"}
BITS = {"float": "i32", "double": "i64"}
LOOKS = 1 << 16  # rows that don't fit between two looks at the memory that there is


def combine(b: FunctionText, kind: str, dtype: DType, x: Vector, y: Vector) -> Vector:
    """x kind y, as they lie in memory."""
    return compute(VectorOps(VectorScope(b)), kind, uint8 if dtype.kind == "b" else dtype, [x, y])


def accumulate_name(kind: str, dtype: DType, index: str, width: int) -> str:
    return f"lg.accumulate.{kind}.{dtype.name}.{index}.{width}"


def accumulate_function(name: str, kind: str, dtype: DType, type: str, index: str, width: int) -> str:
    """For each active lane in order: pointer[index] = pointer[index] kind x. Where all are, without a loop."""
    b = FunctionText(1, 1, "u")
    one = _one_lane(b, kind, dtype, type, index, "%lane", "")
    every = [line for i in range(width) for line in _one_lane(b, kind, dtype, type, index, str(i), f".{i}")]
    body, unrolled = ("\n".join([f"  {line}" for line in lines]) for lines in (one, every))
    return f"""
define internal void @{name}(ptr %p, <{width} x {index}> %indices, <{width} x {type}> %values, <{width} x i1> %mask) {{
entry:
  %ia = alloca <{width} x {index}>, align 64
  %xa = alloca <{width} x {type}>, align 64
  store <{width} x {index}> %indices, ptr %ia
  store <{width} x {type}> %values, ptr %xa
  %narrow = bitcast <{width} x i1> %mask to i{width}
  %bits0 = zext i{width} %narrow to i64
  %all = icmp eq i{width} %narrow, -1
  br i1 %all, label %every, label %some
every:
{unrolled}
  ret void
some:
  %none = icmp eq i64 %bits0, 0
  br i1 %none, label %done, label %loop
loop:
  %bits = phi i64 [ %bits0, %some ], [ %rest, %loop ]
  %lane = call i64 @llvm.cttz.i64(i64 %bits, i1 true)
{body}
  %less = sub i64 %bits, 1
  %rest = and i64 %bits, %less
  %end = icmp eq i64 %rest, 0
  br i1 %end, label %done, label %loop
done:
  ret void
}}
"""


def _one_lane(b: FunctionText, kind: str, dtype: DType, type: str, index: str, lane: str, suffix: str) -> list[str]:
    """The lines of one lane, whose number is `lane`; they end names with `suffix`."""
    old, new = Vector(type, (f"%old{suffix}",), True), Vector(type, (f"%x{suffix}",), True)
    b.lines.clear()
    if type in BITS and kind in EXTREMES:
        chosen = _extreme(kind, type, suffix)
    else:
        result = new if kind == "set" else combine(b, kind, dtype, old, new)
        chosen = [*b.lines, f"store {type} {result.name}, ptr %at{suffix}"]
    return [
        f"%ip{suffix} = getelementptr {index}, ptr %ia, i64 {lane}",
        f"%i{suffix} = load {index}, ptr %ip{suffix}",
        f"%xp{suffix} = getelementptr {type}, ptr %xa, i64 {lane}",
        f"%x{suffix} = load {type}, ptr %xp{suffix}",
        f"%at{suffix} = getelementptr {type}, ptr %p, {index} %i{suffix}",
        f"%old{suffix} = load {type}, ptr %at{suffix}",
        *chosen,
    ]


def _extreme(kind: str, type: str, suffix: str) -> list[str]:
    """Of two floats the smaller or larger one, NaN before all others, chosen as integers: LLVM makes a branch of a
    choice between single floats, which nobody can predict."""
    bits = BITS[type]
    return [
        f"%first{suffix} = fcmp {EXTREMES[kind]} {type} %old{suffix}, %x{suffix}",
        f"%nan{suffix} = fcmp uno {type} %old{suffix}, %old{suffix}",
        f"%keep{suffix} = or i1 %first{suffix}, %nan{suffix}",
        f"%oldbits{suffix} = load {bits}, ptr %at{suffix}",
        f"%xbits{suffix} = load {bits}, ptr %xp{suffix}",
        f"%chosen{suffix} = select i1 %keep{suffix}, {bits} %oldbits{suffix}, {bits} %xbits{suffix}",
        f"store {bits} %chosen{suffix}, ptr %at{suffix}",
    ]


SORT = """
define internal void @lg.sort.WIDTH(ptr noalias %buckets, ptr noalias %order, i64 %n) {
entry:
  %hist = alloca [BUCKETS x i32], align 64
  br label %most
most:
  %mi = phi i64 [ 0, %entry ], [ %mi2, %most ]
  %mv = phi <WIDTH x i16> [ zeroinitializer, %entry ], [ %mv2, %most ]
  %mp = getelementptr i16, ptr %buckets, i64 %mi
  %ml = load <WIDTH x i16>, ptr %mp, align 2
  %mv2 = call <WIDTH x i16> @llvm.umax.vWIDTHi16(<WIDTH x i16> %mv, <WIDTH x i16> %ml)
  %mi2 = add i64 %mi, WIDTH
  %mgo = icmp slt i64 %mi2, %n
  br i1 %mgo, label %most, label %clear
clear:
  %top16 = call i16 @llvm.vector.reduce.umax.vWIDTHi16(<WIDTH x i16> %mv2)
  %top = zext i16 %top16 to i64
  %used = add i64 %top, 1
  %bytes = shl i64 %used, 2
  call void @llvm.memset.p0.i64(ptr align 64 %hist, i8 0, i64 %bytes, i1 false)
  br label %count
count:
  %ci = phi i64 [ 0, %clear ], [ %ci2, %count ]
  %cp = getelementptr i16, ptr %buckets, i64 %ci
  %cb = load i16, ptr %cp
  %cz = zext i16 %cb to i64
  %ch = getelementptr i32, ptr %hist, i64 %cz
  %cv = load i32, ptr %ch
  %cv1 = add i32 %cv, 1
  store i32 %cv1, ptr %ch
  %ci2 = add i64 %ci, 1
  %cgo = icmp slt i64 %ci2, %n
  br i1 %cgo, label %count, label %prefix
prefix:
  %pi = phi i64 [ %top, %count ], [ %pi2, %prefix ]
  %sum = phi i32 [ 0, %count ], [ %sum2, %prefix ]
  %pp = getelementptr i32, ptr %hist, i64 %pi
  %pv = load i32, ptr %pp
  store i32 %sum, ptr %pp
  %sum2 = add i32 %sum, %pv
  %pi2 = sub i64 %pi, 1
  %pgo = icmp sge i64 %pi2, 0
  br i1 %pgo, label %prefix, label %place
place:
  %i = phi i64 [ 0, %prefix ], [ %i2, %place ]
  %bp = getelementptr i16, ptr %buckets, i64 %i
  %bv = load i16, ptr %bp
  %bz = zext i16 %bv to i64
  %hp = getelementptr i32, ptr %hist, i64 %bz
  %at = load i32, ptr %hp
  %at1 = add i32 %at, 1
  store i32 %at1, ptr %hp
  %atz = zext i32 %at to i64
  %op = getelementptr i16, ptr %order, i64 %atz
  %i16 = trunc i64 %i to i16
  store i16 %i16, ptr %op
  %i2 = add i64 %i, 1
  %go = icmp slt i64 %i2, %n
  br i1 %go, label %place, label %done
done:
  ret void
}
"""


def sort_function(width: int) -> str:
    """order[0..n) = lanes of a tile by falling bucket, ties in lane order (deterministic)."""
    return SORT.replace("WIDTH", str(width)).replace("BUCKETS", str(BUCKETS))


def overflow_function() -> str:
    """Stack rows beyond capacity: remember the need and a lane. Now and then: whether rows of so many bytes, in this
    stack and those that grow with it, are more than there is; then kernels shall end early."""
    return f"""
define internal void @lg.overflow(ptr %needed, i64 %rows, ptr %lane.out, i64 %lane, i64 %bytes, ptr %context)
    cold noinline optnone {{
  %old = atomicrmw umax ptr %needed, i64 %rows monotonic
  store atomic i64 %lane, ptr %lane.out monotonic, align 8
  %low = and i64 %rows, {LOOKS - 1}
  %due = icmp eq i64 %low, 0
  br i1 %due, label %look, label %done
look:
  %most_p = getelementptr i64, ptr %context, i64 {HEADER["heap_most"]}
  %most = load i64, ptr %most_p
  %all = mul i64 %rows, %bytes
  %starved = icmp ugt i64 %all, %most
  br i1 %starved, label %stop, label %done
stop:
  %stop_p = getelementptr i64, ptr %context, i64 {HEADER["stop"]}
  %told = cmpxchg ptr %stop_p, i64 0, i64 {STOP_STARVED} monotonic monotonic
  br label %done
done:
  ret void
}}
"""


def attend_function() -> str:
    """Whether a kernel shall end early; the thread that made the call asks the runtime. Nothing that kernels load
    is written here."""
    return f"""
define internal i1 @lg.attend(ptr %context, ptr %worker) cold noinline optnone
    memory(argmem: readwrite, inaccessiblemem: readwrite) {{
  %stop_p = getelementptr i64, ptr %context, i64 {HEADER["stop"]}
  %stop = load atomic i64, ptr %stop_p monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %end, label %go_on
end:
  ret i1 true
go_on:
  %thread_p = getelementptr i64, ptr %worker, i64 1
  %thread = load i64, ptr %thread_p
  %caller = icmp eq i64 %thread, 0
  br i1 %caller, label %ask, label %leave
ask:
  %attend_p = getelementptr i64, ptr %context, i64 {HEADER["attend"]}
  %attend = load ptr, ptr %attend_p
  %answer = call i32 %attend(ptr %context)
  %raised = icmp ne i32 %answer, 0
  ret i1 %raised
leave:
  ret i1 false
}}
"""


def fail_function() -> str:
    """A failed check: the first one to arrive is kept."""
    return """
define internal void @lg.fail(ptr %error, i64 %code, i64 %lane, i64 %detail) cold noinline optnone {
  %pair = cmpxchg ptr %error, i64 0, i64 %code monotonic monotonic
  %first = extractvalue { i64, i1 } %pair, 1
  br i1 %first, label %record, label %done
record:
  %lane.out = getelementptr i64, ptr %error, i64 1
  store i64 %lane, ptr %lane.out
  %detail.out = getelementptr i64, ptr %error, i64 2
  store i64 %detail, ptr %detail.out
  br label %done
done:
  ret void
}
"""
