"""Fourier transforms as a device's library makes them: along several axes in one call, and along axes that aren't the
last without moving them there.

    %1 = dft(%x: (8, 64, 64, 2)) {norm="full"}            %1 = dft_along(%x) {axes=(1, 2)}
    %2 = transpose(%1) {perm=(0, 2, 1, 3)}       ->       %2 = mul(%1, 1 / 4096)
    %3 = dft(%2) {norm="full"}
    %4 = transpose(%3) {perm=(0, 2, 1, 3)}

A transform of a transposed array is the transposed transform along another axis; transforms along several axes, none of
which anything else reads, are one. Libraries multiply by nothing, so the factor is an operation, which is fused with
what comes after.

Enters: a Graph after the passes. Leaves: one that means the same, where the target calls a library for `dft_along`.
Only what is worth a call changes, of a graph without loops: those are recorded with own kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.primitives.fourier import ALONE, factor_of, transform_length
from loopgrad.graph.rebuild import GraphBuilder, rebuild
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType

NEEDED: Final = "dft_along"
WORTH_A_CALL: Final = 1 << 13  # numbers: fewer are one launch of ours, and its graph holds them
MOST_AXES: Final = 3
WIDE: Final = 8  # neighbours of which a transform along another axis reads the same numbers together


@dataclass(frozen=True, slots=True)
class Transformed:
    """`factor` times the transform of `base` along `axes` of it, as they follow each other. What stands for it in the
    graph is that transposed by `perm`. `half`: the axis of which half the spectrum is there, `base` is real then."""

    base: Value
    axes: tuple[int, ...]
    inverse: bool
    half: int | None
    factor: float
    perm: tuple[int, ...]

    def shape(self) -> tuple[int, ...]:
        """Of numbers, as the base has it."""
        return self.base.shape if self.half is not None else self.base.shape[:-1]

    def possible(self) -> bool:
        """Whether it is one call: all that isn't transformed lies before the axes, or behind them."""
        shape, first, last = self.shape(), self.axes[0], self.axes[-1]
        if self.axes != tuple(range(first, last + 1)) or len(self.axes) > MOST_AXES:
            return False
        behind = prod(shape[last + 1 :])
        return behind == 1 or (behind >= WIDE and prod(shape[:first]) == 1)


def rewrite_transforms(graph: Graph, library: frozenset[str]) -> Graph:
    """`library`: the routines that the target calls a library for."""
    if NEEDED not in library or not any(map(_worth_it, graph.nodes)) or any(map(_loops, graph.nodes)):
        return graph
    graph = rebuild(graph, _joined_first)
    top, rewriting = frozenset(graph.nodes), _TransformRewriting(graph)

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
    """Of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._uses = Counter(v for node in graph.nodes for v in node.operands)
        self._uses.update(graph.outputs)
        self._now: dict[Value, Value] = {v: v for v in graph.inputs}
        self._known: dict[Value, Transformed] = {}

    def results(self, old: Node, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        made = None
        if _worth_it(node):
            made = self._scaled(node, builder) if node.op == "hermitian_dft" else self._transform(old, node, builder)
        self._now.update(zip(old.results, made or node.results, strict=True))
        return made

    def _transform(self, old: Node, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        whole, alone = self._together(old), self._alone(old)
        self._known[old.results[0]] = whole or alone
        if whole is not None and whole.possible():
            return _emitted(whole, builder)
        moved = alone.axes[-1] < len(alone.shape()) - 1
        return _emitted(alone, builder) if moved and alone.possible() else self._scaled(node, builder)

    def _alone(self, old: Node) -> Transformed:
        """What the node makes of what was transposed before it."""
        real = old.op == "real_dft"
        value, perm = self._now[old.operands[0]], tuple(range(len(old.operands[0].shape)))
        while (step := _transposition(value)) is not None and (real or step.attrs["perm"][-1] == perm[-1]):
            value, perm = step.operands[0], _after(step.attrs["perm"], perm)
        axis = perm[-1 if real else -2]
        inverse = not real and bool(old.attrs["inverse"])
        found = (*perm, len(perm)) if real else perm
        return Transformed(value, (axis,), inverse, axis if real else None, _factor(old), found)

    def _together(self, old: Node) -> Transformed | None:
        """The same, if it transforms along another axis what nothing else reads."""
        if old.op != "dft":
            return None
        value, perm = old.operands[0], tuple(range(len(old.operands[0].shape)))
        while self._uses[value] == 1 and value not in self._known and (step := _transposition(value)) is not None:
            value, perm = step.operands[0], _after(step.attrs["perm"], perm)
        before = self._known.get(value)
        if before is None or self._uses[value] != 1 or before.inverse != old.attrs["inverse"]:
            return None
        perm = _after(before.perm, perm)
        axis, last = perm[-2:]
        if last != len(perm) - 1 or axis in before.axes or (before.half is not None and axis > before.half):
            return None
        axes = tuple(sorted((*before.axes, axis)))
        return replace(before, axes=axes, factor=before.factor * _factor(old), perm=perm)

    def _scaled(self, node: Node, builder: GraphBuilder) -> Sequence[Value] | None:
        """The same transform without a factor, which is an operation."""
        factor = _factor(node)
        if factor == 1:
            return None
        (made,) = builder.emit(node.op, node.operands, {**node.attrs, "norm": "none"})
        return [_times(made, factor, builder)]


def _emitted(t: Transformed, builder: GraphBuilder) -> Sequence[Value]:
    if t.half is None:
        (made,) = builder.emit("dft_along", (t.base,), {"axes": t.axes, "inverse": t.inverse})
    else:
        (made,) = builder.emit("real_dft_along", (t.base,), {"axes": t.axes})
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


def _loops(node: Node) -> bool:
    return bool(node.regions) and (
        isinstance(Region.of(node), Loop) or any(_loops(n) for region in node.regions for n in region.nodes)
    )


def _worth_it(node: Node) -> bool:
    if node.op not in ALONE:
        return False
    sizes = [v.type.size for v in (*node.operands, *node.results) if isinstance(v.type, TensorType)]
    return max(sizes) >= 2 * WORTH_A_CALL
