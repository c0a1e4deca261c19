"""What lanes can afford to do by themselves: registers and code for each element, or arrays and loops over these
(`codegen.lower.arrays`).

The first, as long as a lane holds little. Where it doesn't, a region may be rolled if its lanes factorise matrices that
are too large for that. Other regions are better off as steps, which write to carried arrays in place, and whose
products are those of a library; so are those whose lanes each have a part of a large product.
"""

from __future__ import annotations

from typing import Final

from loopgrad.codegen.lower.factorisations.table import ROUTINES
from loopgrad.codegen.schedule.lane_memory import kept_in_registers, memory_operand, most_bytes, scalars
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import LIBRARY, PRIMITIVES, REDUCTIONS, RUNNING_TOTALS, STACKS, Kind
from loopgrad.graph.primitives.factorisations import extents
from loopgrad.graph.regions import Loop, Region
from loopgrad.graph.types import TensorType

MAX_REGISTERS = 256  # scalars that a lane carries beyond one a carry
MAX_CARRIES = 4096
MAX_OPS = 6000  # operations of a body, unrolled, beyond one a node
MAX_UNROLL = 256  # elements of one value computed separately
FREE_WORK = 4096  # elements a lone lane may process per pass
WORK_PER_LANE = 256
LARGE_PRODUCT: Final = 1 << 24  # multiplications of a product that lanes share out among them,
MUCH_OF_IT: Final = 1 << 12  # each so many: made at once, its factors are read many times fewer
LARGEST: Final = 32  # rows of a matrix that a lane factorises
LONGEST: Final = 64  # terms of a product's elements, which are written out
CODE_OF_ROUTINE: Final = 200  # operations
MAX_WORK: Final = 1 << 22  # elements that each of several lanes may process per pass
BUSY_LANES: Final = 1 << 13  # that run side by side: so many keep a device at work
OF_A_LOOP, OF_CODE = 30, 2  # ns that a lane takes for an element, for an operation of its code (on an H200),
OF_A_KERNEL = 3000  # and that a step takes to begin and to end
KERNELS_OF_THEIR_OWN: Final = frozenset({*REDUCTIONS, *RUNNING_TOTALS, "matmul", "scatter"})


def unaffordable(node: Node, lanes: int) -> str | None:
    """Why lanes can't hold all values of a region in registers and have code for each element."""
    bill = _Bill(lanes, uniform=not Region.of(node).lanes)
    bill.region_node(node)
    return bill.verdict()


def unshared(node: Node, lanes: int) -> str | None:
    """Why lanes that run side by side, too few for a device, take longer for the trips of a counted loop than steps do,
    whose kernels have a lane for each element."""
    loop = Region.of(node)
    if not (isinstance(loop, Loop) and loop.count is not None) or loop.lanes or lanes >= BUSY_LANES:
        return None
    if any(inner.regions or inner.op in LIBRARY for inner in loop.body.nodes):
        return None
    bill = _Bill(lanes, uniform=True)
    for inner in loop.body.nodes:
        bill.node(inner)
    kernels = 2 + sum(inner.op in KERNELS_OF_THEIR_OWN for inner in loop.body.nodes)
    alone, shared = OF_A_LOOP * bill.work + OF_CODE * bill.ops, OF_A_KERNEL * kernels
    if alone <= 2 * shared:
        return None
    return f"{lanes} lanes would take about {alone // 1000} us a trip, kernels of all elements {shared // 1000}"


class _Bill:
    """What one lane does in one pass through all bodies, roughly. `uniform`: all lanes make the same trips."""

    def __init__(self, lanes: int, uniform: bool) -> None:
        self.lanes, self.uniform = lanes, uniform
        self.ops = 0
        self.nodes = 0
        self.work = 0
        self.reason: str | None = None

    def verdict(self) -> str | None:
        if self.reason is not None:
            return self.reason
        if self.ops > MAX_OPS + self.nodes:
            return f"its body unrolls to about {self.ops} operations per lane (limit {MAX_OPS + self.nodes})"
        limit = FREE_WORK + WORK_PER_LANE * (self.lanes - 1)
        if self.ops + self.work > limit:
            return f"each of {self.lanes} lanes would process about {self.ops + self.work} elements per pass"
        return None

    def scalars(self, value: Value) -> int:
        return scalars(value, self.lanes)

    def region_node(self, node: Node) -> None:
        region = Region.of(node)
        loop = region if isinstance(region, Loop) else None
        held = [r for j, r in enumerate(node.results) if j not in region.shared]
        if loop is not None:
            held = [r for r in held if memory_operand(loop, r.index) is None]
        count, carried = len(held), sum(self.scalars(r) for r in held if isinstance(r.type, TensorType))
        if loop is not None and any(self.scalars(v) > MAX_UNROLL for v in held):
            carried = count + MAX_REGISTERS + 1
        limit = min(count + MAX_REGISTERS, MAX_CARRIES)
        if carried > limit:
            self.reason = self.reason or f"each lane would hold {carried} scalars (limit {limit})"
        if loop is not None and loop.lanes and self.lanes == 1 and self.scalars(loop.decider) > 1:
            self.reason = self.reason or "its lanes differ from those of the loop around it"
        for graph in node.regions:
            for inner in graph.nodes:
                self.node(inner)

    def node(self, node: Node) -> None:
        if node.regions:
            self.region_node(node)
            return
        if node.op in LIBRARY or node.attrs.get("meets"):
            self.reason = self.reason or _not_in_a_lane(node)
            return
        self.nodes += 1
        count = max([self.scalars(r) for r in node.results], default=0)
        if PRIMITIVES[node.op].cost == 0:
            return
        if node.op == "scatter":
            self.spend(self.scalars(node.operands[-1]) * (1 if count > MAX_UNROLL else count))
        elif node.op == "matmul":
            self.product(count * node.operands[0].shape[-1])
        elif PRIMITIVES[node.op].kind is Kind.REDUCTION:
            self.spend(self.scalars(node.operands[0]))
        elif node.op in RUNNING_TOTALS:
            self.spend(count * 2)
        else:
            self.spend(count)

    def product(self, each: int) -> None:
        """`each`: a lane's multiplications."""
        if self.uniform and each >= MUCH_OF_IT and each * self.lanes >= LARGE_PRODUCT:
            self.reason = self.reason or f"each of {self.lanes} lanes would have {each} terms of a product to itself"
        self.spend(2 * each)

    def spend(self, elements: int) -> None:
        if elements <= MAX_UNROLL:
            self.ops += elements
        else:
            self.ops += 8
            self.work += elements


# ---- rolled


def rolled_routine(node: Node) -> bool:
    """Whether a lane can do the factorisation in loops."""
    if node.op not in ROUTINES:
        return False
    sizes = [n for k in range(len(node.operands)) for n in extents(node, k)]
    return min(sizes) > 0 and max(sizes) <= LARGEST


def factorises(node: Node) -> bool:
    """Whether the region has factorisations that may be done in loops."""
    return any(inner.op in ROUTINES or factorises(inner) for graph in node.regions for inner in graph.nodes)


def unaffordable_rolled(node: Node, lanes: int, most: int) -> str | None:
    """Why lanes can't hold the values of a region in arrays, of so many bytes, and have loops over these."""
    bill = _RolledBill(lanes)
    bill.region_node(node)
    return bill.verdict(most_bytes(node, lanes), most)


class _RolledBill:
    """What one lane does in one pass through all bodies, roughly."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.code = self.work = 0
        self.reason: str | None = None

    def verdict(self, bytes: int, most: int) -> str | None:
        if self.reason is not None:
            return self.reason
        if bytes > most:
            return f"each lane would hold about {bytes} bytes in arrays (limit {most})"
        if self.code > MAX_OPS:
            return f"its code would be about {self.code} operations (limit {MAX_OPS})"
        limit = MAX_WORK + WORK_PER_LANE * (self.lanes - 1) if self.lanes > 1 else FREE_WORK
        if self.work > limit:
            return f"each of {self.lanes} lanes would process about {self.work} elements per pass"
        return None

    def region_node(self, node: Node) -> None:
        region = Region.of(node)
        if isinstance(region, Loop) and region.lanes and self.lanes == 1 and scalars(region.decider, 1) > 1:
            self.reason = self.reason or "its lanes differ from those of the loop around it"
        if kept_in_registers(node):
            self.reason = self.reason or unaffordable(node, self.lanes)
            self.code += sum(len(graph.nodes) for graph in node.regions)
            return
        for graph in node.regions:
            for inner in graph.nodes:
                self.node(inner)

    def node(self, node: Node) -> None:
        if node.regions:
            self.region_node(node)
            return
        count = max([scalars(r, self.lanes) for r in node.results], default=0)
        if node.attrs.get("meets"):
            self.reason = self.reason or _not_in_a_lane(node)
            return
        if node.op in LIBRARY:
            if not rolled_routine(node):
                self.reason = self.reason or _not_in_a_lane(node)
                return
            self.code += CODE_OF_ROUTINE
            self.work += count * max(extents(node, 0)) * ROUTINES[node.op].sweeps
            return
        if PRIMITIVES[node.op].cost == 0 or node.op in STACKS:
            return
        self.code += 2
        if node.op == "matmul":
            *_, m, depth = node.operands[0].shape
            if max(m, depth, node.results[0].shape[-1]) > LONGEST:
                self.reason = self.reason or f"{node.op} of {node.operands[0].type} isn't done inside a lane"
            self.code += 4 * depth
            self.work += 2 * count * depth
        elif node.op in REDUCTIONS:
            self.code += 2 * min(scalars(node.operands[0], self.lanes) // max(count, 1), LONGEST)
            self.work += scalars(node.operands[0], self.lanes)
        else:
            self.work += count * (scalars(node.operands[0], self.lanes) if node.op in RUNNING_TOTALS else 1)


def _not_in_a_lane(node: Node) -> str:
    if node.attrs.get("meets"):
        return "processes meet in it, where there are several"
    return f"{node.op} isn't done inside a lane"
