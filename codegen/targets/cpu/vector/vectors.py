"""Writing LLVM IR text for values that are vectors of lanes.

A group of lanes in flight is `groups` vectors of `width` lanes each: several vectors are interleaved
so that the latency of one hides behind the others. A varying `Vector` therefore has `groups` names, one
per vector; a uniform `Vector` has one name, a scalar; constants are literals and stay scalars until an
instruction wants a vector (then `splat (...)`).

Every method appends instructions to the current basic block. `memo` remembers pure results (splats,
range reductions shared by sin and cos); `scope` drops what was remembered inside a block, since it
doesn't dominate what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import count
from typing import Final, NamedTuple, TypeVar, cast

import numpy as np

from loopgrad.codegen.extents.extent import double_bits, integer_of
from loopgrad.graph.types import DType, bfloat16, float16, float32, float64, integer

T = TypeVar("T")
Combine = Callable[["FunctionText", tuple["Vector", ...], tuple["Vector", ...]], tuple["Vector", ...]]


class Vector(NamedTuple):
    """`type` is the LLVM type of one lane."""

    type: str
    names: tuple[str, ...]
    uniform: bool

    @property
    def name(self) -> str:
        assert self.uniform
        return self.names[0]


SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}

_ROUNDED: Final = {"half": float16, "bfloat": bfloat16, "float": float32, "double": float64}
_FLOAT: Final = {dtype: type for type, dtype in _ROUNDED.items()}


def llvm_type(dtype: DType) -> str:
    """The LLVM type of one lane's value (a bool is i1; in memory it takes a byte)."""
    return _FLOAT[dtype] if dtype.is_float else f"i{dtype.bits}"


def literal(type: str, value: float | int | bool) -> str:
    """The text of a constant of an LLVM type."""
    if type == "i1":
        return "true" if value else "false"
    if type not in _ROUNDED:
        return f"{integer(value):d}"
    if type in ("float", "double"):
        return f"0x{double_bits(value, _ROUNDED[type].bits):016X}"
    with np.errstate(over="ignore"):  # a number beyond the type's range is infinity
        exact = np.asarray(float(value)).astype(_ROUNDED[type].np)
    return f"0x{'H' if type == 'half' else 'R'}{int(exact.view(np.uint16)):04X}"


class FunctionText:
    """The text of one function."""

    def __init__(self, width: int, groups: int, prefix: str = "v") -> None:
        self.width = width
        self.groups = groups
        self.lines: list[str] = []
        self.label = "entry"
        self.memo: dict[Hashable, object] = {}
        self.outlined: dict[str, Callable[[], str]] = {}
        self._forms: dict[tuple[Hashable, ...], str] = {}  # instructions without their operands' names
        self._prefix = prefix
        self._numbers = count(1)

    def fresh(self) -> str:
        return f"%{self._prefix}{next(self._numbers)}"

    def fresh_label(self, stem: str) -> str:
        return f"{stem}{next(self._numbers)}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def start(self, label: str) -> None:
        """Begin a basic block; the one before must have ended with a terminator."""
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, rarely: bool = False) -> None:
        weights = ", !prof !0" if rarely else ""
        self.line(f"br i1 {condition}, label %{yes}, label %{no}{weights}")

    def reserve(self) -> int:
        """A place in the text to be filled in later (phis whose back edge isn't known yet)."""
        self.lines.append("")
        return len(self.lines) - 1

    @contextmanager
    def scope(self) -> Iterator[None]:
        saved = self.memo
        self.memo = dict(saved)
        try:
            yield
        finally:
            self.memo = saved

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """`make()`, or what it gave when the same key was asked for before in a dominating block."""
        if key not in self.memo:
            self.memo[key] = make()
        return cast(T, self.memo[key])

    # -- values

    def vector_type(self, type: str) -> str:
        return f"<{self.width} x {type}>"

    def const(self, type: str, value: float | int | bool) -> Vector:
        return Vector(type, (literal(type, value),), True)

    def named(self, type: str, name: str) -> Vector:
        return Vector(type, (name,), True)

    def scalar(self, type: str, text: str) -> Vector:
        """The result of one scalar instruction."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return Vector(type, (name,), True)

    def lanes(self, type: str, first: int = 0, step: int = 1) -> Vector:
        """The constant first + step * lane."""
        names = []
        for u in range(self.groups):
            values = [first + step * (u * self.width + i) for i in range(self.width)]
            names.append("<" + ", ".join(f"{type} {literal(type, v)}" for v in values) + ">")
        return Vector(type, tuple(names), False)

    def splat_name(self, v: Vector) -> str:
        """The name of one vector that holds a uniform value in all lanes."""
        name = v.names[0]
        if name[0] != "%":
            return f"splat ({v.type} {name})"
        return self.once(("splat", v), lambda: self._splat(v.type, name))

    def _splat(self, type: str, name: str) -> str:
        vt = self.vector_type(type)
        first, full = self.fresh(), self.fresh()
        self.line(f"{first} = insertelement {vt} poison, {type} {name}, i64 0")
        self.line(f"{full} = shufflevector {vt} {first}, {vt} poison, <{self.width} x i32> zeroinitializer")
        return full

    def vector(self, v: Vector) -> Vector:
        """`v` as a varying value."""
        if not v.uniform:
            return v
        return Vector(v.type, (self.splat_name(v),) * self.groups, False)

    def of_width(self, width: int, groups: int = 1) -> FunctionText:
        """The same text, in which a varying value is so many vectors of so many lanes."""
        other = copy(self)
        other.width, other.groups, other.memo = width, groups, {}
        return other

    def resize(self, x: Vector, type: str, signed: bool = True) -> Vector:
        """An integer in another width."""
        if x.type == type:
            return x
        grow = int(type[1:]) > int(x.type[1:])
        if x.uniform and x.name[0] != "%":
            value, half = integer_of(x.name), 1 << (int(type[1:]) - 1)
            value = value if signed else value % (1 << int(x.type[1:]))
            return self.const(type, value if grow else (value + half) % (2 * half) - half)
        what = ("sext" if signed else "zext") if grow else "trunc"
        return self.once((what, type, x), lambda: self.inst(type, what + " {t0} {a} to {r}", x))

    def inst(self, result: str, pattern: str, *operands: Vector, flags: str = "") -> Vector:
        """One instruction on scalars where all operands are uniform, else one per vector.

        In `pattern`, {t0} is the type of operand 0, {a} {b} {c} {d} are operand names, {r} is the
        result type and {s} the intrinsic suffix of the result, {s0} of operand 0; {f} are `flags`.
        """
        if all(v.uniform for v in operands):
            name = self._one(result, pattern, operands, [v.names[0] for v in operands], False, flags)
            return Vector(result, (name,), True)
        vectors = [v.names if not v.uniform else (self.splat_name(v),) * self.groups for v in operands]
        names = [self._one(result, pattern, operands, [v[u] for v in vectors], True, flags) for u in range(self.groups)]
        return Vector(result, tuple(names), False)

    def _one(
        self, result: str, pattern: str, operands: tuple[Vector, ...], names: list[str], vector: bool, flags: str
    ) -> str:
        key = (pattern, result, self.width if vector else 0, flags, *[v.type for v in operands])
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._form(result, pattern, operands, vector, flags)
        name = self.fresh()
        self.lines.append(f"  {name} = {form.format(*names)}")
        return name

    def _form(self, result: str, pattern: str, operands: tuple[Vector, ...], vector: bool, flags: str) -> str:
        """The pattern with everything filled in but the names of operands, which are {0} to {3} in it."""
        shape = self.vector_type if vector else str
        suffix = f"v{self.width}" if vector else ""
        fields = {"r": shape(result), "s": suffix + SUFFIX.get(result, result), "f": flags}
        for i, v in enumerate(operands):
            fields[f"t{i}"] = shape(v.type)
            fields[f"s{i}"] = suffix + SUFFIX.get(v.type, v.type)
        filled = {field: text.replace("{", "{{").replace("}", "}}") for field, text in fields.items()}
        names = {letter: f"{{{i}}}" for i, letter in enumerate("abcd")}
        return pattern.replace("{{", "{{{{").replace("}}", "}}}}").format(**names, **filled)

    def lane(self, v: Vector, number: int) -> Vector:
        """One lane of a single vector."""
        return self.scalar(v.type, f"extractelement {self.vector_type(v.type)} {v.names[0]}, i64 {number}")

    # -- masks

    def any(self, mask: Vector) -> str:
        """A scalar i1: whether the mask holds in any lane."""
        if mask.uniform:
            return mask.name
        whole = mask.names[0]
        for other in mask.names[1:]:
            merged = self.fresh()
            self.line(f"{merged} = or {self.vector_type('i1')} {whole}, {other}")
            whole = merged
        bits, answer = self.fresh(), self.fresh()
        self.line(f"{bits} = bitcast {self.vector_type('i1')} {whole} to i{self.width}")
        self.line(f"{answer} = icmp ne i{self.width} {bits}, 0")
        return answer

    def both(self, left: Vector | None, right: Vector | None) -> Vector | None:
        """The conjunction of two masks; None is the full mask."""
        if left is None or right is None:
            return left if right is None else right
        return self.inst("i1", "and {t0} {a}, {b}", left, right)

    def choose(self, mask: Vector | None, yes: Vector, no: Vector) -> Vector:
        """`yes` where the mask holds (everywhere for None)."""
        if mask is None or yes == no:
            return yes
        return self.inst(yes.type, "select {t0} {a}, {t1} {b}, {t2} {c}", mask, yes, no)

    def horizontal(self, parts: Sequence[Vector], combine: Combine) -> tuple[Vector, ...]:
        """All lanes of varying values of one type, which are combined together, by a fixed tree: vectors first, then
        halves. `combine(builder, a, b)` makes one of two, which are single vectors for that builder."""
        found = list(zip(*[[Vector(v.type, (name,), False) for name in v.names] for v in parts], strict=True))
        whole = self.of_width(self.width)
        while len(found) > 1:
            half = (len(found) + 1) // 2
            joined = [combine(whole, a, b) for a, b in zip(found[:half], found[half:], strict=False)]
            found = joined + found[len(joined) : half]
        (values,), size = found, self.width
        while size > 1:
            size //= 2
            low, high = (tuple([self._half(v, size, first) for v in values]) for first in (0, size))
            values = combine(self.of_width(size), low, high)
        return tuple([self.scalar(v.type, f"extractelement <1 x {v.type}> {v.names[0]}, i64 0") for v in values])

    def _half(self, v: Vector, size: int, first: int) -> Vector:
        wide, part = f"<{2 * size} x {v.type}>", self.fresh()
        picks = ", ".join(f"i32 {first + i}" for i in range(size))
        self.line(f"{part} = shufflevector {wide} {v.names[0]}, {wide} poison, <{size} x i32> <{picks}>")
        return Vector(v.type, (part,), False)
