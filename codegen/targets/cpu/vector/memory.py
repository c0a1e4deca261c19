"""Loads, stores and accumulations.

The index's form picks the instruction: uniform: a scalar; lane * 1: a vector at a scalar address; pairs, every few
elements, or whole short rows: several of them (`pairs`, `strides`, `patterns`); else a gather or scatter (32-bit
offsets where they fit). A bool takes a byte in memory.

`accumulate` on shared elements adds into this chunk's private copy of the parameter (or, in a serial
kernel, into the parameter itself), lane after lane, so that the result doesn't depend on threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from loopgrad.codegen.kernel.nodes import KOp, KValue
from loopgrad.codegen.targets.cpu.vector import pairs
from loopgrad.codegen.targets.cpu.vector.context import Strided, VectorEmitter, memory_type
from loopgrad.codegen.targets.cpu.vector.copies import widened
from loopgrad.codegen.targets.cpu.vector.far_rows import ask_ahead
from loopgrad.codegen.targets.cpu.vector.lanes import copied_dtype
from loopgrad.codegen.targets.cpu.vector.outline import accumulate_function, accumulate_name, combine
from loopgrad.codegen.targets.cpu.vector.patterns import load_pattern
from loopgrad.codegen.targets.cpu.vector.strides import load_every, store_every
from loopgrad.codegen.targets.cpu.vector.vectors import SUFFIX, Vector
from loopgrad.graph.types import DType

T = TypeVar("T")


def from_memory(e: VectorEmitter, x: Vector, dtype: DType) -> Vector:
    """A loaded byte as a bool."""
    return e.b.inst("i1", "icmp ne {t0} {a}, {b}", x, e.b.const("i8", 0)) if dtype.kind == "b" else x


def to_memory(e: VectorEmitter, x: Vector, dtype: DType) -> Vector:
    return e.b.inst("i8", "zext {t0} {a} to {r}", x) if dtype.kind == "b" else x


def suffix(e: VectorEmitter, type: str) -> str:
    return f"v{e.layout.width}{SUFFIX.get(type, type)}"


def element(e: VectorEmitter, pointer: str, type: str, index: Vector) -> str:
    """The address of one element, index a scalar."""
    name = e.b.fresh()
    e.b.line(f"{name} = getelementptr {type}, ptr {pointer}, {index.type} {index.name}")
    return name


def offsets(e: VectorEmitter, index: KValue, size: int) -> Vector:
    """The vector of element indices, in 32 bits where every valid one fits."""
    v = e.vec(index)
    return e.b.resize(v, "i32") if v.type == "i64" and size < 1 << 31 else v


def addresses(e: VectorEmitter, pointer: str, type: str, index: Vector) -> tuple[str, ...]:
    names = []
    for lane in index.names:
        name = e.b.fresh()
        e.b.line(f"{name} = getelementptr {type}, ptr {pointer}, {e.b.vector_type(index.type)} {lane}")
        names.append(name)
    return tuple(names)


def all_true(e: VectorEmitter) -> Vector:
    return e.b.vector(e.b.const("i1", True))


# -- loads


def emit_load(e: VectorEmitter, op: KOp) -> Vector:
    param = op.attrs["param"]
    pointer, described = e.param_names[param], e.kernel.params[param]
    result = load_at(
        e, pointer, memory_type(described.dtype), op.operands[0], described.size, described.access == "read"
    )
    if op in e.far_loads:
        ask_ahead(e, op)
    return from_memory(e, result, described.dtype)


def load_at(e: VectorEmitter, pointer: str, type: str, index: KValue, size: int, constant: bool = False) -> Vector:
    known = e.strided(index)
    tag = ", !invariant.load !1" if constant else ""
    if known is not None and known.step == 0:
        address = element(e, pointer, type, known.start)
        return e.b.scalar(type, f"load {type}, ptr {address}{tag}")
    if known is not None and known.step == 1:
        return load_vector(e, pointer, type, known, tag)
    if (where := pairs.place(e, index, backwards=True)) is not None:
        found = pairs.load(e, pointer, type, where, size, constant)
        if found is not None:
            return found
    if known is not None and (every := load_every(e, pointer, type, known, itemsize(type), tag)) is not None:
        return every
    if (found := load_pattern(e, pointer, type, index, itemsize(type), tag)) is not None:
        return found
    at = offsets(e, index, size)
    if e.mask is None and e.looks_for_neighbours and e.layout.width > 1:
        return neighbours_or_gather(e, pointer, type, at, tag)
    return gather(e, pointer, type, at)


def neighbours_or_gather(e: VectorEmitter, pointer: str, type: str, where: Vector, tag: str) -> Vector:
    """Elements at positions that nobody knows, which often lie side by side all the same (an array with its edges
    around it, rows in another order): a vector where they do. Looking costs little beside a gather."""
    b = e.b
    first = b.lane(where, 0)
    row = b.inst(where.type, "add {t0} {a}, {b}", b.vector(first), b.lanes(where.type))
    apart = b.any(b.inst("i1", "icmp ne {t0} {a}, {b}", where, row))
    ways = (
        ("alone", lambda: gather(e, pointer, type, where).names),
        ("beside", lambda: load_vector(e, pointer, type, Strided(first, 1), tag).names),
    )
    return joined(e, type, two_ways(e, apart, *ways))


def load_vector(e: VectorEmitter, pointer: str, type: str, known: Strided, tag: str = "") -> Vector:
    b, vt, places = e.b, e.b.vector_type(type), side_by_side(e, type, element(e, pointer, type, known.start))

    def plainly() -> list[str]:
        return [b.scalar(vt, f"load {vt}, ptr {at}, align {itemsize(type)}{tag}").name for at in places]

    def masked() -> list[str]:
        assert e.mask is not None
        call, masks = f"call {vt} @llvm.masked.load.{suffix(e, type)}.p0", b.vector_type("i1")
        return [
            b.scalar(vt, f"{call}(ptr align {itemsize(type)} {at}, {masks} {lanes}, {vt} zeroinitializer)").name
            for at, lanes in zip(places, e.mask.names, strict=True)
        ]

    if e.mask is None:
        return Vector(type, tuple(plainly()), False)
    if e.machine.masked(itemsize(type)):
        return Vector(type, tuple(masked()), False)
    return joined(e, type, two_ways(e, some_missing(e, e.mask), ("part", masked), ("whole", plainly)))


def side_by_side(e: VectorEmitter, type: str, first: str) -> list[str]:
    """The addresses of vectors side by side."""
    places = [first]
    for u in range(1, e.layout.groups):
        places.append(e.b.fresh())
        e.b.line(f"{places[u]} = getelementptr {type}, ptr {first}, i64 {u * e.layout.width}")
    return places


def some_missing(e: VectorEmitter, mask: Vector) -> str:
    """Whether the mask hasn't all lanes: mostly it has, away from the ends of rows."""
    return e.b.any(e.b.inst("i1", "xor {t0} {a}, {b}", mask, all_true(e)))


def two_ways(
    e: VectorEmitter, condition: str, yes: tuple[str, Callable[[], T]], no: tuple[str, Callable[[], T]]
) -> list[tuple[str, T]]:
    """What one way gives where the condition holds, and the other one elsewhere, each with the block it ends in."""
    b, made = e.b, []
    labels, end = [b.fresh_label(stem) for stem, _ in (yes, no)], b.fresh_label("join")
    b.branch(condition, labels[0], labels[1])
    for label, (_, way) in zip(labels, (yes, no), strict=True):
        b.start(label)
        with b.scope():
            result = way()
            made.append((b.label, result))
        b.jump(end)
    b.start(end)
    return made


def joined(e: VectorEmitter, type: str, made: Sequence[tuple[str, Sequence[str]]]) -> Vector:
    """The vectors of whichever way was taken."""
    vt, (one, other) = e.b.vector_type(type), [[f"[ {name}, %{label} ]" for name in names] for label, names in made]
    return Vector(
        type, tuple([e.b.scalar(vt, f"phi {vt} {x}, {y}").name for x, y in zip(one, other, strict=True)]), False
    )


def itemsize(type: str) -> int:
    return {"half": 2, "bfloat": 2, "float": 4, "double": 8}.get(type) or max(int(type[1:]) // 8, 1)


def gather(e: VectorEmitter, pointer: str, type: str, index: Vector) -> Vector:
    """Elements at a vector of indices; where the machine has no such gather, inactive lanes read
    element 0 so that no branch is needed."""
    native = e.machine.gathers and itemsize(type) >= 4
    mask = e.mask if e.mask is not None else all_true(e)
    if e.mask is not None and not native:
        index = e.b.choose(e.mask, index, e.b.const(index.type, 0))
        mask = all_true(e)
    vt, names = e.b.vector_type(type), []
    for address, lanes in zip(addresses(e, pointer, type, index), mask.names, strict=True):
        name = e.b.fresh()
        e.b.line(
            f"{name} = call {vt} @llvm.masked.gather.{suffix(e, type)}.v{e.layout.width}p0(<{e.layout.width} x ptr> "
            f"align {itemsize(type)} {address}, {e.b.vector_type('i1')} {lanes}, {vt} zeroinitializer)"
        )
        names.append(name)
    return Vector(type, tuple(names), False)


# -- stores


def emit_store(e: VectorEmitter, op: KOp) -> None:
    param = op.attrs["param"]
    described = e.kernel.params[param]
    value = to_memory(e, e.wide(op.operands[1]), described.dtype)
    if e.paired_stores.is_first(op) and not e.layout.single and pairs.place(e, op.operands[0]) is not None:
        e.paired_stores.wait(op, value)
        return
    if (first := e.paired_stores.before(op)) is not None:
        where = pairs.place(e, op.operands[0])
        assert where is not None
        pairs.store(e, e.param_names[param], memory_type(described.dtype), where[0], (first, value))
        return
    store_at(e, e.param_names[param], memory_type(described.dtype), op.operands[0], value, described.size)


def store_at(e: VectorEmitter, pointer: str, type: str, index: KValue, value: Vector, size: int) -> None:
    known = e.strided(index)
    if e.layout.single and known is not None:
        e.b.line(f"store {type} {value.name}, ptr {element(e, pointer, type, known.start)}")
    elif known is not None and known.step == 1:
        store_vector(e, element(e, pointer, type, known.start), e.b.vector(value), e.mask)
    elif known is not None and known.step and e.mask is None:
        store_every(e, element(e, pointer, type, known.start), type, known.step, e.b.vector(value), itemsize(type))
    else:
        scatter(e, pointer, type, offsets(e, index, size), e.b.vector(value), e.mask)


def store_vector(e: VectorEmitter, first: str, value: Vector, mask: Vector | None) -> None:
    """Lanes side by side from one address."""
    vt, size, places = e.b.vector_type(value.type), itemsize(value.type), side_by_side(e, value.type, first)

    def plainly() -> None:
        for at, name in zip(places, value.names, strict=True):
            e.b.line(f"store {vt} {name}, ptr {at}, align {size}")

    def masked() -> None:
        assert mask is not None
        call, masks = f"call void @llvm.masked.store.{suffix(e, value.type)}.p0", e.b.vector_type("i1")
        for at, name, lanes in zip(places, value.names, mask.names, strict=True):
            e.b.line(f"{call}({vt} {name}, ptr align {size} {at}, {masks} {lanes})")

    if mask is None:
        plainly()
    elif e.machine.masked(size):
        masked()
    else:
        two_ways(e, some_missing(e, mask), ("part", masked), ("whole", plainly))


def scatter(e: VectorEmitter, pointer: str, type: str, index: Vector, value: Vector, mask: Vector | None) -> None:
    mask = mask if mask is not None else all_true(e)
    for address, name, lanes in zip(addresses(e, pointer, type, index), value.names, mask.names, strict=True):
        e.b.line(
            f"call void @llvm.masked.scatter.{suffix(e, type)}.v{e.layout.width}p0({e.b.vector_type(type)} {name}, "
            f"<{e.layout.width} x ptr> align {itemsize(type)} {address}, {e.b.vector_type('i1')} {lanes})"
        )


# -- accumulations


def emit_accumulate(e: VectorEmitter, op: KOp) -> None:
    index, x, pred = op.operands
    param, kind = op.attrs["param"], op.attrs["kind"]
    described = e.kernel.params[param]
    dtype, pointer = described.dtype, e.copy_names.get(param, e.param_names[param])
    type, value = memory_type(dtype), to_memory(e, e.wide(x), dtype)
    condition = e.get(pred)
    if param in e.copy_names:
        dtype = copied_dtype(dtype, kind)
        type = memory_type(dtype)
        value = widened(e.b, value, dtype)
    if e.layout.single:
        address = element(e, pointer, type, e.b.resize(e.get(index), "i64"))
        single_accumulate(e, kind, dtype, address, value, condition)
        return
    mask = e.b.both(e.mask, None if condition.uniform and condition.name == "true" else e.b.vector(condition))
    known = e.strided(index)
    if known is not None and known.step == 1:  # even where lanes may meet: these are one beside the other
        exclusive_vector(e, element(e, pointer, type, known.start), kind, dtype, value, mask)
    elif op.attrs["exclusive"] and not (known is not None and known.step == 0):
        with e.under(mask):
            where = offsets(e, index, described.size)
            old = gather(e, pointer, type, where)
            scatter(e, pointer, type, where, e.b.vector(merged(e, kind, described.dtype, old, value)), mask)
    else:
        shared_accumulate(e, pointer, kind, dtype, offsets(e, index, described.size), value, mask)


def merged(e: VectorEmitter, kind: str, dtype: DType, old: Vector, new: Vector) -> Vector:
    return new if kind == "set" else combine(e.b, kind, dtype, old, new)


def single_accumulate(
    e: VectorEmitter, kind: str, dtype: DType, address: str, value: Vector, condition: Vector
) -> None:
    b = e.b
    do, done = b.fresh_label("combine"), b.fresh_label("combined")
    b.branch(condition.name, do, done)
    b.start(do)
    with b.scope():
        old = b.scalar(value.type, f"load {value.type}, ptr {address}")
        b.line(f"store {value.type} {merged(e, kind, dtype, old, value).name}, ptr {address}")
    b.jump(done)
    b.start(done)


def exclusive_vector(
    e: VectorEmitter, address: str, kind: str, dtype: DType, value: Vector, mask: Vector | None
) -> None:
    with e.under(mask):
        old = load_vector(e, address, value.type, Strided(e.b.const("i64", 0), 1))
        store_vector(e, address, e.b.vector(merged(e, kind, dtype, old, value)), mask)


def shared_accumulate(
    e: VectorEmitter, pointer: str, kind: str, dtype: DType, index: Vector, value: Vector, mask: Vector | None
) -> None:
    """One call per vector; the outlined function applies active lanes in order."""
    b, width = e.b, e.layout.width
    index = e.b.resize(index, "i64") if index.type not in ("i32", "i64") else index
    type = value.type
    name = accumulate_name(kind, dtype, index.type, width)
    b.outlined.setdefault(name, lambda: accumulate_function(name, kind, dtype, type, index.type, width))
    value, mask = b.vector(value), mask if mask is not None else all_true(e)
    for where, x, lanes in zip(index.names, value.names, mask.names, strict=True):
        b.line(
            f"call void @{name}(ptr {pointer}, <{width} x {index.type}> {where}, <{width} x {type}> {x}, "
            f"<{width} x i1> {lanes})"
        )
