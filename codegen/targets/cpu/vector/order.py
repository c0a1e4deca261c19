"""Lane order within a tile: longest first, so that the lanes of a vector finish together.

Per tile the kernel's order key is evaluated with vectors and turned into a bucket (see codegen.scalar.sort_key).
A counting sort (outline.sort_function) gives the permutation; the body then runs on the lanes
`order[g], order[g + 1], ...`, with gathers and scatters where it would have loaded side by side.
"""

from __future__ import annotations

from loopgrad.codegen.scalar import sort_key
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter
from loopgrad.codegen.targets.cpu.vector.control import emit_block
from loopgrad.codegen.targets.cpu.vector.math_calls import KernelOps
from loopgrad.codegen.targets.cpu.vector.memory import store_vector
from loopgrad.codegen.targets.cpu.vector.outline import sort_function
from loopgrad.codegen.targets.cpu.vector.vectors import Vector


def declare_order(e: VectorEmitter) -> None:
    assert e.layout.sort_tile is not None
    room = e.layout.sort_tile + e.layout.flight
    e.slot(f"[{room} x i16]", "buckets")
    e.slot(f"[{room} x i16]", "order")


def emit_order(e: VectorEmitter, tile: Vector, count: Vector) -> None:
    """Fill %order for the lanes [tile, tile + count) of the row."""
    b, key_block = e.b, e.kernel.order_key
    assert key_block is not None

    def vectors(g: Vector) -> None:
        e.lane_start = b.scalar("i64", f"add nsw i64 {tile.name}, {g.name}")
        inside = lanes_below(e, g, count)
        with e.under(inside):
            for argument in key_block.arguments:
                e.env[argument] = e.arguments[argument_position(key_block.arguments, argument)]
            emit_block(e, key_block)
            buckets = bucket(e, e.vec(key_block.yields[0]))
            full = b.choose(inside, buckets, b.const("i16", 0))
        at = b.scalar("ptr", f"getelementptr i16, ptr %buckets, i64 {g.name}")
        store_vector(e, at.name, full, None)

    e.counted(b.const("i64", 0), count, e.layout.flight, vectors)
    width = min(e.layout.flight, 16)  # divides the lanes in flight: the tail it reads is filled
    b.outlined.setdefault(f"lg.sort.{width}", lambda: sort_function(width))
    b.line(f"call void @lg.sort.{width}(ptr %buckets, ptr %order, i64 {count.name})")


def argument_position(arguments: tuple[object, ...], argument: object) -> int:
    return next(i for i, a in enumerate(arguments) if a is argument)


def lanes_below(e: VectorEmitter, first: Vector, count: Vector) -> Vector:
    """The lanes in flight whose number first + lane is below count (both i64 scalars)."""
    b = e.b
    left = b.scalar("i64", f"sub nsw i64 {count.name}, {first.name}")
    capped = b.scalar("i64", f"call i64 @llvm.smin.i64(i64 {left.name}, i64 {e.layout.flight})")
    short = b.scalar("i32", f"trunc i64 {capped.name} to i32")
    return b.inst("i1", "icmp slt {t0} {a}, {b}", b.lanes("i32"), short)


def bucket(e: VectorEmitter, key: Vector) -> Vector:
    """0 .. BUCKETS - 1, rising with the key."""
    m = KernelOps(e)
    top = sort_key.bucket(m, key)
    return m.b.inst("i16", "trunc {t0} {a} to {r}", m.isub(top, m.const(top, sort_key.FIRST)))


def ordered_lanes(e: VectorEmitter, tile: Vector, g: Vector) -> Vector:
    """The lane indices, within the row, of the lanes in flight at position g of the order."""
    b, width = e.b, e.layout.width
    names = []
    for u in range(b.groups):
        at = b.scalar("i64", f"add nuw nsw i64 {g.name}, {u * width}")
        place = b.scalar("ptr", f"getelementptr i16, ptr %order, i64 {at.name}")
        vt = b.vector_type("i16")
        names.append(b.scalar(vt, f"load {vt}, ptr {place.name}, align 2").name)
    offsets = b.inst("i32", "zext {t0} {a} to {r}", Vector("i16", tuple(names), False))
    return b.inst("i32", "add {t0} {a}, {b}", offsets, e.b.resize(tile, "i32"))
