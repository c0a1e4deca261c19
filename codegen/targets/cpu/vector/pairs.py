"""Lanes that read or write pairs of neighbours, elements 2i and 2i + 1 of one array: the parts of complex numbers.

    load 2i, load 2i + 1            two vectors at one address, of which these are the even and the odd elements
    store 2i, a; store 2i + 1, b    two vectors at one address, that hold the elements of a and b in turns

A gather or scatter takes an access for each lane. A store waits for the other one of its block (`paired_stores`).
"""

from __future__ import annotations

from collections.abc import Iterable

from loopgrad.codegen.kernel.nodes import KValue
from loopgrad.codegen.targets.cpu.vector.context import Strided, VectorEmitter
from loopgrad.codegen.targets.cpu.vector.paired_stores import Place, pair_of
from loopgrad.codegen.targets.cpu.vector.vectors import SUFFIX, Vector


def place(e: VectorEmitter, index: KValue, backwards: bool = False) -> Place | None:
    """What an index is that counts two elements a lane, from the last pair to the first one where that may be."""
    known = e.strided(index)
    if known is None or known.step not in ((2, -2) if backwards else (2,)):
        return None
    return pair_of(index, e.analysis.ranges)


def _inside(e: VectorEmitter, first: KValue, size: int) -> bool:
    """Whether both of each pair are elements of an array."""
    low, high = e.analysis.ranges.of(first)
    return low >= 0 and high + 1 < size


def load(e: VectorEmitter, pointer: str, type: str, where: Place, size: int, constant: bool) -> Vector | None:
    """The vector of one side of the pairs; None where a pair isn't inside the array."""
    first, side = where
    if not _inside(e, first, size):
        return None
    known = e.strided(first)
    assert known is not None
    if not constant:
        return _loaded(e, pointer, type, known)[side]
    return e.b.once(("pairs", pointer, first, e.mask), lambda: _loaded(e, pointer, type, known))[side]


def _loaded(e: VectorEmitter, pointer: str, type: str, known: Strided) -> tuple[Vector, Vector]:
    b, width = e.b, e.layout.width
    vt, backwards = b.vector_type(type), known.step < 0
    even: list[str] = []
    odd: list[str] = []
    for u, address in enumerate(_addresses(e, pointer, type, known)):
        masks = None if e.mask is None else turns(e, "i1", e.mask.names[u], e.mask.names[u], backwards)
        halves = []
        for half in range(2):
            at, name = _moved(e, type, address, half * width), b.fresh()
            if masks is None:
                b.line(f"{name} = load {vt}, ptr {at}, align {_bytes(type)}")
            else:
                suffix = f"v{width}{SUFFIX.get(type, type)}"
                b.line(
                    f"{name} = call {vt} @llvm.masked.load.{suffix}.p0(ptr align {_bytes(type)} {at}, "
                    f"{b.vector_type('i1')} {masks[half]}, {vt} zeroinitializer)"
                )
            halves.append(name)
        for names, start in ((even, 0), (odd, 1)):
            picks = range(start, 2 * width, 2)
            names.append(_shuffled(e, type, halves[0], halves[1], reversed(picks) if backwards else picks))
    return Vector(type, tuple(even), False), Vector(type, tuple(odd), False)


def store(e: VectorEmitter, pointer: str, type: str, first: KValue, values: tuple[Vector, Vector]) -> None:
    """Both sides of the pairs."""
    b, width = e.b, e.layout.width
    known = e.strided(first)
    assert known is not None
    vt, (even, odd) = b.vector_type(type), [b.vector(v) for v in values]
    for u, address in enumerate(_addresses(e, pointer, type, known)):
        masks = None if e.mask is None else turns(e, "i1", e.mask.names[u], e.mask.names[u])
        for half, name in enumerate(turns(e, type, even.names[u], odd.names[u])):
            at = _moved(e, type, address, half * width)
            if masks is None:
                b.line(f"store {vt} {name}, ptr {at}, align {_bytes(type)}")
            else:
                suffix = f"v{width}{SUFFIX.get(type, type)}"
                b.line(
                    f"call void @llvm.masked.store.{suffix}.p0({vt} {name}, ptr align {_bytes(type)} {at}, "
                    f"{b.vector_type('i1')} {masks[half]})"
                )


def turns(e: VectorEmitter, type: str, even: str, odd: str, backwards: bool = False) -> tuple[str, str]:
    """Two vectors of the elements of both in turns, from the last lane on where `backwards`."""
    width = e.layout.width
    lanes = [width - 1 - i if backwards else i for i in range(width)]
    order = [lanes[i // 2] + width * (i % 2) for i in range(2 * width)]
    return _shuffled(e, type, even, odd, order[:width]), _shuffled(e, type, even, odd, order[width:])


def _shuffled(e: VectorEmitter, type: str, first: str, second: str, picks: Iterable[int]) -> str:
    vt, name = e.b.vector_type(type), e.b.fresh()
    chosen = ", ".join(f"i32 {i}" for i in picks)
    e.b.line(f"{name} = shufflevector {vt} {first}, {vt} {second}, <{e.layout.width} x i32> <{chosen}>")
    return name


def _addresses(e: VectorEmitter, pointer: str, type: str, known: Strided) -> list[str]:
    """Where the pairs of each vector of lanes begin, in memory."""
    first, size = e.b.fresh(), 2 * e.layout.width
    e.b.line(f"{first} = getelementptr {type}, ptr {pointer}, {known.start.type} {known.start.name}")
    return [_moved(e, type, first, u * size if known.step > 0 else 2 - (u + 1) * size) for u in range(e.layout.groups)]


def _moved(e: VectorEmitter, type: str, address: str, by: int) -> str:
    if not by:
        return address
    name = e.b.fresh()
    e.b.line(f"{name} = getelementptr {type}, ptr {address}, i64 {by}")
    return name


def _bytes(type: str) -> int:
    return {"half": 2, "bfloat": 2, "float": 4, "double": 8}.get(type) or max(int(type[1:]) // 8, 1)
