"""Math recipes as functions of their own, where a kernel uses one so often that its size matters.

LLVM's time grows with the size of a function; a kernel with hundreds of sines is mostly copies of one recipe.
Where all copies have more than MOST_LINES, a recipe becomes an internal function of the lanes in flight
(their vectors, and the mask of active lanes, which only says whether a rare branch is worth taking). The
function has the same instructions as a copy, so results have the same bits.

sin, cos and tan of one value share the larger part of their work; that part is their function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Final

from loopgrad.codegen.kernel.nodes import Kernel, walk
from loopgrad.codegen.math import trigonometric
from loopgrad.codegen.math.table import RECIPES, SINE_COSINE, outlined_part
from loopgrad.codegen.targets.cpu.vector.context import VectorEmitter
from loopgrad.codegen.targets.cpu.vector.recipes import VectorOps, VectorScope
from loopgrad.codegen.targets.cpu.vector.vectors import FunctionText, Vector, llvm_type

MOST_LINES: Final = 3200  # as 64 sines: a call of one costs a kernel of short vectors up to a fifth of its speed
FEW: Final = 4  # copies that are always worth it

Recipe = Callable[..., Sequence[Vector]]


def crowded(kernel: Kernel) -> frozenset[tuple[str, str]]:
    """(recipe, LLVM type) of what shall be functions in this kernel."""
    uses: Counter[tuple[str, str, int]] = Counter()
    for op in walk(kernel.body):
        if op.opcode in RECIPES and op.operands[0].dtype.is_float:
            type = "double" if llvm_type(op.operands[0].dtype) == "double" else "float"  # halves compute in float
            uses[op.opcode, type, len(op.operands)] += 1
    lines: Counter[tuple[str, str]] = Counter()
    for (name, type, operands), count in uses.items():
        lines[outlined_part(name), type] += count * recipe_lines(name, type, operands) if count > FEW else 0
    return frozenset([key for key, total in lines.items() if total > MOST_LINES])


@cache
def recipe_lines(name: str, type: str, operands: int) -> int:
    """How long the text of one copy is."""
    b = FunctionText(1, 1, "u")
    VectorOps(VectorScope(b)).recipe(name, [Vector(type, (f"%x{i}",), True) for i in range(operands)])
    return len(b.lines)


class KernelOps(VectorOps):
    """VectorOps in a kernel, whose recipes may be functions."""

    def __init__(self, e: VectorEmitter) -> None:
        super().__init__(e)
        self.emitter = e

    def recipe(self, name: str, operands: Sequence[Vector], /) -> Vector:
        """By its instructions or by a call."""
        e = self.emitter
        if (outlined_part(name), operands[0].type) not in e.crowded:
            return super().recipe(name, operands)
        if name in trigonometric.RECIPES:
            return _CallingOps(e).recipe(name, operands)
        (result,) = _call(e, name, lambda m, *values: (RECIPES[name](m, *values),), operands)
        return result


class _CallingOps(VectorOps):
    """VectorOps for which the shared part of sin, cos and tan is a function."""

    def __init__(self, e: VectorEmitter) -> None:
        super().__init__(e)
        self.emitter = e

    def once(self, key: Hashable, make: Callable[[], tuple[Vector, ...]], /) -> tuple[Vector, ...]:
        assert isinstance(key, tuple)
        assert key[0] == SINE_COSINE
        emitter = self.emitter
        return self.b.once(key, lambda: _call(emitter, SINE_COSINE, trigonometric.shared, key[1:]))


def _call(e: VectorEmitter, name: str, recipe: Recipe, operands: Sequence[Vector]) -> tuple[Vector, ...]:
    b = e.b
    varying = any(not v.uniform for v in operands)
    mask = (b.vector(b.const("i1", True)) if e.mask is None else b.vector(e.mask)) if varying else None
    given = [*operands, *([] if mask is None else [mask])]
    shape = "".join("s" if v.uniform else "v" for v in operands)
    symbol = f"lg.math.{name}.{operands[0].type}.{shape}.{b.groups}x{b.width}"
    if symbol not in e.math_functions:
        text, results = _function(e, symbol, recipe, operands, mask)
        e.math_functions[symbol] = results
        b.outlined[symbol] = lambda: text
    results = e.math_functions[symbol]
    types = [t for r in results for t in _types(b, r)]
    arguments = ", ".join(f"{t} {n}" for v in given for t, n in zip(_types(b, v), v.names, strict=True))
    call = b.fresh()
    b.line(f"{call} = call {_returned(types)} @{symbol}({arguments})")
    names = [call]
    if len(types) > 1:
        names = [b.fresh() for _ in types]
        for i, part in enumerate(names):
            b.line(f"{part} = extractvalue {_returned(types)} {call}, {i}")
    rest = iter(names)
    return tuple([Vector(r.type, tuple([next(rest) for _ in r.names]), r.uniform) for r in results])


def _function(
    e: VectorEmitter, symbol: str, recipe: Recipe, operands: Sequence[Vector], mask: Vector | None
) -> tuple[str, list[Vector]]:
    """The function's text, and its results as named inside."""
    b = FunctionText(e.b.width, e.b.groups, "m")
    inner = [
        Vector(v.type, tuple([f"%x{i}.{u}" for u in range(len(v.names))]), v.uniform) for i, v in enumerate(operands)
    ]
    active = None if mask is None else Vector("i1", tuple([f"%mask.{u}" for u in range(b.groups)]), False)
    results = list(recipe(VectorOps(VectorScope(b, e.machine, active, e.fast)), *inner))
    given = [*inner, *([] if active is None else [active])]
    parameters = ", ".join(f"{t} {n}" for v in given for t, n in zip(_types(b, v), v.names, strict=True))
    types = [t for r in results for t in _types(b, r)]
    whole, packed = _returned(types), "poison"
    if len(types) == 1:
        packed = results[0].names[0]
    else:
        for i, (t, n) in enumerate(zip(types, [n for r in results for n in r.names], strict=True)):
            following = b.fresh()
            b.line(f"{following} = insertvalue {whole} {packed}, {t} {n}, {i}")
            packed = following
    body = "\n".join(b.lines)
    e.b.outlined.update(b.outlined)
    text = (
        f"define internal {whole} @{symbol}({parameters}) noinline #0 {{\nentry:\n{body}\n  ret {whole} {packed}\n}}\n"
    )
    return text, results


def _types(b: FunctionText, v: Vector) -> list[str]:
    return [v.type if v.uniform else b.vector_type(v.type)] * len(v.names)


def _returned(types: Sequence[str]) -> str:
    return types[0] if len(types) == 1 else "{ " + ", ".join(types) + " }"
