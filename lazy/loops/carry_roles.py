"""How the carries of a loop are held: per lane, shared by all lanes, or the same for every trip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopgrad.graph.accumulators import chain_from
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Graph, Value
from loopgrad.lazy.loops.traced_functions import LeafType
from loopgrad.lazy.tensor.core import wrap
from loopgrad.lazy.tensor.operands import Shape
from loopgrad.lazy.tensor.trees import Tree, leaf_names, unflatten


@dataclass(frozen=True, slots=True)
class CarryRoles:
    """Which of `count` carries stay carries (`varying`), which are the same for every trip and read in the loop
    (`invariant`), and which positions among the varying ones are shared accumulators."""

    count: int
    varying: tuple[int, ...]
    invariant: tuple[int, ...]
    shared: tuple[int, ...]

    def arrange(self, graph: Graph, skip: int, outputs: bool = True) -> Graph:
        """The region with its inputs in the order (extra, varying, invariant, captures)."""
        if len(self.varying) == self.count:
            return graph
        carries = graph.inputs[skip : skip + self.count]
        rest = graph.inputs[skip + len(carries) :]
        order = [carries[i] for i in (*self.varying, *self.invariant)]
        results = tuple([graph.outputs[i] for i in self.varying]) if outputs else graph.outputs
        return Graph((*graph.inputs[:skip], *order, *rest), graph.nodes, results)


def carry_roles(
    what: str,
    structure: Any,
    kinds: Sequence[LeafType],
    body: Graph,
    lanes: Shape,
    skip: int,
    cond: Graph | None = None,
) -> CarryRoles:
    """How the carries of a settled loop are held; refuses one that is neither per lane nor shared."""
    regions = [(body, skip)] if cond is None else [(body, skip), (cond, 0)]
    varying: list[int] = []
    invariant: list[int] = []
    shared: list[int] = []
    for i, kind in enumerate(kinds):
        if body.outputs[i] is body.inputs[skip + i]:
            if any(_reads(region, at + i, i) for region, at in regions):
                invariant.append(i)
            continue
        if not lanes:
            varying.append(i)
            continue
        per_lane = kind.type.shape[: len(lanes)] == lanes
        if _is_shared(body, skip + i, i, lanes, per_lane):
            shared.append(len(varying))
        elif not per_lane:
            name = leaf_names(structure, "carry")[i]
            fix = (
                "give every lane its own (stretch it to the lanes and return it so), or only update it at per-lane "
                "positions with .at[i].add and read it after the loop"
            )
            raise ShapeError(explained(what, f"{name} with a shape that starts with the lanes {lanes}", kind.type, fix))
        varying.append(i)
    return CarryRoles(len(kinds), tuple(varying), tuple(invariant), tuple(shared))


def _reads(region: Graph, argument: int, own: int) -> bool:
    """Whether a region does anything with an input but hand it on as its own result `own`."""
    value = region.inputs[argument]
    used = any(value in node.operands for node in region.nodes)
    return used or any(v is value and j != own for j, v in enumerate(region.outputs))


def _is_shared(graph: Graph, argument: int, output: int, lanes: Shape, per_lane: bool) -> bool:
    """Whether an input is only scattered into, at positions that each lane chooses."""
    chain = chain_from(graph, argument)
    if chain is None or chain.output != output or not chain.scatters or not chain.over(lanes):
        return False
    value = graph.inputs[argument]
    for node in graph.nodes:
        if not node.operands or node.operands[0] is not value or node.op != "scatter":
            continue
        indices = node.operands[1:-1]
        if per_lane and (node.attrs["kind"] == "set" or _own_row(indices, lanes)):
            return False
        value = node.results[0]
    return True


def _own_row(indices: Sequence[Value], lanes: Shape) -> bool:
    """Whether the leading indices are each lane's own position."""
    return len(indices) >= len(lanes) and all(
        v.node is not None and v.node.op == "iota" and v.node.attrs["axis"] == d
        for d, v in enumerate(indices[: len(lanes)])
    )


def final_carries(
    results: Sequence[Value], roles: CarryRoles, values: list[Value], kinds: list[LeafType], structure: Any
) -> Tree:
    """The tree of carries after a loop: what it made of the varying ones, beside the others."""
    final = list(values)
    for i, v in zip(roles.varying, results, strict=True):
        final[i] = v
    return unflatten(structure, [wrap(v, k.weak) for v, k in zip(final, kinds, strict=True)])
