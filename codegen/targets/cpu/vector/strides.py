"""Lanes that read backwards, or every few elements of an array: `x[::-1]`, `x[:, 1::3]`.

    load start + 3 * lane      three vectors, which hold all elements from the first lane's to the last one's, and
                               shuffles that pick each lane's

The last vector ends with the last lane's element, so nothing is read that no lane has asked for. A gather takes an
access for each lane, and machines have none for elements of one or two bytes. What lies further apart takes as many
accesses in any case: loads and stores of single elements, whose memory processors fetch ahead, as they don't for
gathers (rows of 30 float32 that come from memory: 0.43 ns an element, by gathers 1.5; an EPYC of 2024).
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.targets.cpu.vector.context import Strided, VectorEmitter
from loopgrad.codegen.targets.cpu.vector.vectors import Vector

FURTHEST: Final = 8  # elements from lane to lane: beyond, vectors are mostly what nobody wants


def load_every(e: VectorEmitter, pointer: str, type: str, known: Strided, align: int, tag: str) -> Vector | None:
    """The lanes' elements; None where a gather is better."""
    width, apart = e.layout.width, abs(known.step)
    if e.mask is not None or width == 1 or not known.step:
        return None
    if apart > min(FURTHEST, width):
        return _one_by_one(e, pointer, type, known, align, tag)
    names = []
    for u in range(e.layout.groups):
        first = known.step * width * u + (known.step * (width - 1) if known.step < 0 else 0)
        starts = [first + m * width for m in range(apart - 1)] + [first + (width - 1) * (apart - 1)]
        parts = [_loaded(e, pointer, type, known, at, align, tag) for at in starts]
        names.append(_picked(e, type, parts, backwards=known.step < 0))
    return Vector(type, tuple(names), False)


def _one_by_one(e: VectorEmitter, pointer: str, type: str, known: Strided, align: int, tag: str) -> Vector:
    """An access for each lane, as a gather has: but processors see these come, and fetch what follows in time."""
    b, width, names = e.b, e.layout.width, []
    first = b.scalar("ptr", f"getelementptr {type}, ptr {pointer}, {known.start.type} {known.start.name}")
    for u in range(e.layout.groups):
        held = "poison"
        for lane in range(width):
            at = b.scalar("ptr", f"getelementptr {type}, ptr {first.name}, i64 {known.step * (u * width + lane)}")
            x = b.scalar(type, f"load {type}, ptr {at.name}, align {align}{tag}")
            held = b.scalar(type, f"insertelement {b.vector_type(type)} {held}, {type} {x.name}, i64 {lane}").name
        names.append(held)
    return Vector(type, tuple(names), False)


def store_every(e: VectorEmitter, first: str, type: str, step: int, value: Vector, align: int) -> None:
    """The lanes' elements, so many elements from each other, the first lane's at an address."""
    b, width = e.b, e.layout.width
    for u, name in enumerate(value.names):
        for lane in range(width):
            at = b.scalar("ptr", f"getelementptr {type}, ptr {first}, i64 {step * (u * width + lane)}").name
            x = b.scalar(type, f"extractelement {b.vector_type(type)} {name}, i64 {lane}").name
            b.line(f"store {type} {x}, ptr {at}, align {align}")


def _loaded(e: VectorEmitter, pointer: str, type: str, known: Strided, offset: int, align: int, tag: str) -> str:
    """A vector from so many elements behind the first lane's."""
    b = e.b
    first, address, name = b.fresh(), b.fresh(), b.fresh()
    b.line(f"{first} = getelementptr {type}, ptr {pointer}, {known.start.type} {known.start.name}")
    b.line(f"{address} = getelementptr {type}, ptr {first}, i64 {offset}")
    b.line(f"{name} = load {b.vector_type(type)}, ptr {address}, align {align}{tag}")
    return name


def _picked(e: VectorEmitter, type: str, parts: list[str], backwards: bool) -> str:
    """Every len(parts)-th element of vectors that lie behind each other, of which the last one is moved up."""
    b, width, apart = e.b, e.layout.width, len(parts)
    vt, places = b.vector_type(type), []
    for lane in range(width):
        at = apart * (width - 1 - lane if backwards else lane)
        part = min(at // width, apart - 1)
        places.append((part, at - (part * width if part < apart - 1 else (width - 1) * (apart - 1))))
    held = parts[0]
    for m in range(min(1, apart - 1), apart):
        picks = []
        for lane, (part, offset) in enumerate(places):
            if part == m:
                picks.append(offset + (width if m else 0))
            else:  # what an earlier shuffle has put there, the first vector's own before that
                picks.append(offset if part == 0 and m <= 1 else lane)
        name = b.fresh()
        chosen = ", ".join([f"i32 {i}" for i in picks])
        b.line(f"{name} = shufflevector {vt} {held}, {vt} {parts[m]}, <{width} x i32> <{chosen}>")
        held = name
    return held
