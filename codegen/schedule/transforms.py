"""Fourier transforms as a device makes them: along several axes in one step, and along axes that aren't the last
without moving them there.

    %1 = dft(%x: (8, 64, 64, 2)) {norm="full"}            %1 = dft_along(%x) {axes=(1, 2), norm="none"}
    %2 = transpose(%1) {perm=(0, 2, 1, 3)}       ->       %2 = mul(%1, 1 / 4096)
    %3 = dft(%2) {norm="full"}
    %4 = transpose(%3) {perm=(0, 2, 1, 3)}

A transform of a transposed array is the transposed transform along another axis; transforms along several axes, none of
which anything else reads, are one. What is one step depends on who does it:

- the host: any axes, with the factor;
- a vendor's library: neighbouring axes behind which there is nothing, or one before which there is nothing (along two
  axes of images that lie side by side cuFFT takes five times as long as with transposed ones), unless its columns are
  short: on an H200 own kernels took half of cuFFT's time along axes 0 and 2 of (128, 64, 128), and twice as long along
  axis 0 of (1024, 8192). Libraries multiply by nothing, so the factor is an operation, which is fused with what comes
  after. Only what is worth a call, of a graph without loops: those are recorded with own kernels;
- own kernels: one axis of a length that every workgroup holds, where neighbours are read together; with the factor.

Enters: a Graph after the passes. Leaves: one that means the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.fourier import ALONE, factor_of, transform_length
from loopgrad.graph.rebuild import GraphBuilder, map_regions, rebuild
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType

ANY_AXES: Final = "dft along any axes"  # among the routines of a target whose host does that
NEEDED: Final = "dft_along"
WORTH_A_CALL: Final = 1 << 13  # numbers: fewer are one launch of ours, and its graph holds them
MOST_AXES: Final = 3
WIDE: Final = 8  # neighbours of which a transform along another axis reads the same numbers together
HELD: Final = 4096  # bytes of the parts of one row that every workgroup holds several times
FEW: Final = 256  # numbers that are too few for a workgroup
SHORT: Final = 256  # numbers of columns for which own kernels take less time than a library
SMALL_PRIMES: Final = (2, 3, 5, 7, 11, 13)


@dataclass(frozen=True, slots=True)
class Transformed:
    """The transform of `base` along `axes` of it, by the primitive that does `op` along axes; `factor` is that of each
    `norm` together. What stands for it in the graph is that transposed by `perm`. `length`: of the reals of half a
    spectrum."""

    op: str
    base: Value
    axes: tuple[int, ...]
    inverse: bool
    norm: str
    factor: float
    perm: tuple[int, ...]
    length: int = 0

    def shape(self) -> tuple[int, ...]:
        """Of numbers, as the base has it, but of half a spectrum as if all were there."""
        if self.op == "real_dft":
            return self.base.shape
        shape = list(self.base.shape[:-1])
        if self.op == "hermitian_dft":
            shape[self.axes[-1]] = self.length
        return tuple(shape)


Rule = Callable[[Transformed], str]
"""The norm of the step that makes a transform; "" where it isn't one step."""


def by_host(t: Transformed) -> str:
    return t.norm


def by_library(t: Transformed) -> str:
    return "none" if of_library(t.shape(), t.axes) else ""


def by_kernels(t: Transformed) -> str:
    shape, (axis, *others) = t.shape(), t.axes
    held = shape[axis] * t.base.dtype.bits <= 8 * HELD
    return t.norm if not others and held and _in_columns(shape[axis], prod(shape[axis + 1 :])) else ""


def of_library(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether transforms of numbers that lie so, along these axes, are worth a call, and a library has a good plan."""
    first, last = axes[0], axes[-1]
    if prod(shape) < WORTH_A_CALL or tuple(axes) != tuple(range(first, last + 1)) or len(axes) > MOST_AXES:
        return False
    behind, n = prod(shape[last + 1 :]), shape[last]
    if behind == 1:
        return True
    short = n <= SHORT and _in_columns(n, behind)
    return behind >= WIDE and len(axes) == 1 and prod(shape[:first]) == 1 and not short


def _in_columns(n: int, behind: int) -> bool:
    """Whether own kernels are good at transforms of length n of so many columns side by side, if a workgroup holds
    some."""
    return behind >= WIDE and n * min(behind, 2 * WIDE) >= FEW and n * behind <= 1 << 30 and _smooth(n)


def _smooth(n: int) -> bool:
    for prime in SMALL_PRIMES:
        while n % prime == 0:
            n //= prime
    return n == 1


def rewrite_transforms(graph: Graph, library: frozenset[str]) -> Graph:
    """`library`: the routines that the target calls a library for, with `ANY_AXES` where that is the host."""
    if not _some(graph):
        return graph
    if ANY_AXES in library:
        return _rewritten(graph, (by_host,))
    called = NEEDED in library and not any(map(_loops, graph.nodes))
    return _rewritten(graph, (by_library, by_kernels) if called else (by_kernels,))


def _rewritten(graph: Graph, rules: tuple[Rule, ...]) -> Graph:
    graph = map_regions(graph, partial(_rewritten, rules=rules))
    if not any(node.op in ALONE for node in graph.nodes):
        return graph
    graph = rebuild(graph, _joined_first)
    top, rewriting = frozenset(graph.nodes), _TransformRewriting(graph, rules)

    def rewrite(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        old = builder.original
        return rewriting.results(old, node, builder) if old is not None and old in top else None

    return rebuild(graph, rewrite)


def _joined_first(node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
    """Pairs of two transposed arrays as transposed pairs."""
    parts = [v.node for v in node.operands] if node.op == "concat" and len(node.operands) == 2 else []
    moved = [p.operands[0].node if p is not None and p.op == "reshape" else None for p in parts]
    found = [m for m in moved if m is not None and m.op == "transpose"]
    if len(found) < 2 or found[0].attrs["perm"] != found[1].attrs["perm"]:
        return None
    perm, shape = found[0].attrs["perm"], node.results[0].shape
    if node.attrs["axis"] != len(perm) or any(v.shape != (*shape[:-1], 1) for v in node.operands):
        return None
    parts_before = [m.operands[0] for m in found]
    columns = [builder.value("reshape", v, shape=(*v.shape, 1)) for v in parts_before]
    (joined,) = builder.emit("concat", columns, node.attrs)
    return [builder.value("transpose", joined, perm=(*perm, len(perm)))]


class _TransformRewriting:
    """Of one graph, without its regions."""

    def __init__(self, graph: Graph, rules: tuple[Rule, ...]) -> None:
        self._uses = Counter(v for node in graph.nodes for v in node.operands)
        self._uses.update(graph.outputs)
        self._now: dict[Value, Value] = {}
        self._known: dict[Value, Transformed] = {}
        self._rules = rules

    def results(self, old: Node, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        made = self._transform(old, node, builder) if node.op in ALONE else None
        self._now.update(zip(old.results, made or node.results, strict=True))
        return made

    def _transform(self, old: Node, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        whole, alone = self._together(old), self._alone(old)
        self._known[old.results[0]] = whole or alone
        if whole is not None and (norm := self._norm(whole)):
            return _emitted(whole, norm, builder)
        if alone.axes[-1] < len(alone.shape()) - 1 and (norm := self._norm(alone)):
            return _emitted(alone, norm, builder)
        return self._scaled(node, builder)

    def _norm(self, t: Transformed) -> str:
        return next(filter(None, [rule(t) for rule in self._rules]), "")

    def _alone(self, old: Node) -> Transformed:
        """What the node makes of what was transposed before it."""
        real, given = old.op == "real_dft", old.operands[0]
        value, perm = self._now.get(given, given), tuple(range(len(given.shape)))
        while (step := _transposition(value)) is not None and (real or step.attrs["perm"][-1] == perm[-1]):
            value, perm = step.operands[0], _after(step.attrs["perm"], perm)
        axis = perm[-1 if real else -2]
        inverse = bool(old.attrs["inverse"]) if old.op == "dft" else not real
        found = (*perm, len(perm)) if real else perm if old.op == "dft" else perm[:-1]
        length = old.attrs.get("length", 0)
        return Transformed(old.op, value, (axis,), inverse, old.attrs["norm"], _factor(old), found, length)

    def _together(self, old: Node) -> Transformed | None:
        """The same, if it transforms along another axis what nothing else reads."""
        value, perm = old.operands[0], tuple(range(len(old.operands[0].shape)))
        while self._uses[value] == 1 and value not in self._known and (step := _transposition(value)) is not None:
            value, perm = step.operands[0], _after(step.attrs["perm"], perm)
        before = self._known.get(value)
        if before is None or self._uses[value] != 1 or before.norm != old.attrs["norm"]:
            return None
        perm = _after(before.perm, perm)
        axis, last = perm[-2:]
        if old.op == "real_dft" or last != len(perm) - 1 or axis in before.axes:
            return None
        factor = before.factor * _factor(old)
        if old.op == "hermitian_dft":
            if before.op != "dft" or not before.inverse:
                return None
            axes, length = (*before.axes, axis), old.attrs["length"]
            return Transformed(old.op, before.base, axes, True, before.norm, factor, perm[:-1], length)
        if before.op == "hermitian_dft" or before.inverse != old.attrs["inverse"]:
            return None
        half = before.axes[-1:] if before.op == "real_dft" else ()
        others = before.axes[: len(before.axes) - len(half)]
        return replace(before, axes=(*sorted((*others, axis)), *half), factor=factor, perm=perm)

    def _scaled(self, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        """The same transform without a factor, which is an operation, where a library is called; of half a spectrum
        that is copied before the call, and scaled on that way."""
        factor = _factor(node)
        if factor == 1 or by_library not in self._rules or not _worth_a_call(node) or node.op == "hermitian_dft":
            return None
        (made,) = builder.emit(node.op, node.operands, {**node.attrs, "norm": "none"})
        return [_times(made, factor, builder)]


def _emitted(t: Transformed, norm: str, builder: GraphBuilder) -> Sequence[Value]:
    attrs: dict[str, object] = {"axes": t.axes, "norm": norm}
    if t.op == "dft":
        attrs["inverse"] = t.inverse
    elif t.op == "hermitian_dft":
        attrs.update(length=t.length, norm=t.norm)  # its copy before a call is scaled
    (made,) = builder.emit(f"{t.op}_along", (t.base,), attrs)
    if attrs["norm"] != t.norm:
        made = _times(made, t.factor, builder)
    if t.perm == tuple(range(len(t.perm))):
        return [made]
    return [builder.value("transpose", made, perm=t.perm)]


def _times(v: Value, factor: float, builder: GraphBuilder) -> Value:
    assert isinstance(v.type, TensorType)
    return v if factor == 1 else builder.value("mul", v, builder.const(factor, v.type))


def _factor(node: Node) -> float:
    operand = node.operands[0].type
    assert isinstance(operand, TensorType)
    return factor_of(node.attrs["norm"], transform_length(node.op, node.attrs, operand))


def _after(first: Sequence[int], then: Sequence[int]) -> tuple[int, ...]:
    """The transposition that stands for two."""
    return tuple([first[d] for d in then])


def _transposition(value: Value) -> Node | None:
    """The node, of a transposed value."""
    return value.node if value.node is not None and value.node.op == "transpose" else None


def _some(graph: Graph) -> bool:
    return any(node.op in ALONE or any(map(_some, node.regions)) for node in graph.nodes)


def _loops(node: Node) -> bool:
    return bool(node.regions) and (
        isinstance(Region.of(node), Loop) or any(_loops(n) for region in node.regions for n in region.nodes)
    )


def _worth_a_call(node: Node) -> bool:
    sizes = [v.type.size for v in (*node.operands, *node.results) if isinstance(v.type, TensorType)]
    return max(sizes) >= 2 * WORTH_A_CALL
