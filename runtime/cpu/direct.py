"""Programs that nobody has seen before run at once, one operation after the other, to the bits of compiled code.

An operation whose bits are settled by what it means (`Primitive.exact`) has them from NumPy. What our code generator
decides as well follows generated code: a function that it expands (exp, pow, erf ...) is a program of its own
(`expanded`), short sums of floats are added up in its order (`in_order`), and what works on whole arrays is done by who
does it for compiled programs (`direct_routines`: products, factorisations, Fourier transforms). Bodies of loops and
branches are programs of their own (`direct_regions`). What else there is (long sums, stacks, sums of floats beside
loops, which kernels add up in other orders there) is compiled.

Passes over the graph change no bits of exact operations. Of the others they decide what is left: `x ** 2` is a product,
a function of constants is a constant. Where all of those work on what surely is no constant, each is brought into the
form that is scheduled by itself, once for all programs; otherwise the whole graph is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.codegen.options import DEFAULT_OPTIONS, Options
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.graph import region_flow
from loopgrad.graph.build import unbound
from loopgrad.graph.cached_property import cached_property
from loopgrad.graph.key import encode_attrs
from loopgrad.graph.lift import slots
from loopgrad.graph.nodes import NO_ATTRS, Graph, Node, Value
from loopgrad.graph.primitives import (
    BARE,
    BY_HOST,
    INDEXING,
    KEEPING_SPLATS,
    NULLARY,
    PRIMITIVES,
    Kind,
    factorisations,
    fourier,
)
from loopgrad.graph.primitives.primitive import Attrs
from loopgrad.graph.structure import MOST_NODES
from loopgrad.graph.types import TensorType, bfloat16
from loopgrad.runtime.cpu import direct_routines
from loopgrad.runtime.cpu.direct_constants import KEPT, held_elements, is_done_now
from loopgrad.runtime.cpu.direct_program import (
    Bodies,
    CpuDirectProgram,
    OpenNumber,
    Operation,
    Outputs,
    RegionalProgram,
    own_numbers,
    sparing,
)
from loopgrad.runtime.cpu.direct_regions import PASS, RegionOperation
from loopgrad.runtime.cpu.expanded import Expanded
from loopgrad.runtime.cpu.left_by_passes import FOLDED, may_be_contracted, note_varying, turned_factors
from loopgrad.runtime.cpu.native_pool import NativePool
from loopgrad.runtime.cpu.scheduling import await_scheduling

MOST_TERMS: Final = 1 << 16
"""Elements of an operand of a sum of floats, or of a product. Compiled code spreads more over threads."""

MOST_ELEMENTS: Final = 1 << 20
"""Of a value. Beyond, memory and threads make up for the time that compiling takes."""

MANY_PIECES: Final = 16
"""Of a list that are worth computing as one array, where they are alike."""

MOST_ALONE: Final = 1 << 12  # operations that are remembered
STEP: Final = 2_000  # nanoseconds of an operation, however few elements it has
ELEMENT: Final = 0.5  # of an element, for each unit of an operation's cost
CALL: Final = 8_000  # of one that is a program of its own
ORDERED: Final = 20_000  # of one in the order of generated code
TERM: Final = 1_500  # of what is added up there, for all elements of a result at once


class NotDirect(Exception):
    """The graph has to be compiled."""


class NotPrepared(Exception):
    """The graph has to be brought into the form that is scheduled first."""


Planned = tuple[Callable[..., Any], Attrs | None, Sequence[Value]]
"""Function and attributes as in an Operation, and the operands."""


class DirectPrograms:
    """Makes them, for one device; remembers what graphs share."""

    def __init__(self, expanded: Expanded, pool: Callable[[], NativePool]) -> None:
        self.expanded = expanded
        self.pool = pool
        self.alike: dict[Hashable, tuple[Callable[..., Any], int]] = {}  # exact operations, and their work
        self._alone: dict[Hashable, CpuDirectProgram | None] = {}

    def program(self, graph: Graph, options: Options) -> CpuDirectProgram | None:
        """The graph as a program that needs no compilation; None where it has to be compiled."""
        if options.fast_math:
            return None
        given, joined = graph, False
        if any(node.op == "call" or len(node.operands) >= MANY_PIECES for node in graph.nodes):
            graph, joined = _lightened(unbound(graph))  # passes look at what made a value
        with np.errstate(all="ignore"), suppress(NotDirect):
            try:
                planner = Planner(self, graph, options, prepared=False)
                program = planner.planned()
                if len(given.nodes) <= MOST_NODES and not joined:  # no longer one is kept for other numbers
                    program.open = own_numbers(planner.open_numbers(), given)
                return program
            except NotPrepared:
                if any(node.regions for node in graph.nodes):
                    return None
                return Planner(self, _prepared(unbound(graph)), options, prepared=True).planned()
        return None

    def remember(self, key: Hashable, function: Callable[..., Any], work: int) -> None:
        """What computes an exact operation without attributes, of these dtypes and so many elements."""
        if len(self.alike) >= MOST_ALONE:
            self.alike.clear()
        self.alike[key] = function, work

    def alone(self, node: Node, exponent: float | None = None) -> CpuDirectProgram:
        """One operation in the form that is scheduled; a power with an exponent that is known has one operand."""
        key = node.op, tuple([v.type for v in node.operands]), encode_attrs(node.attrs), repr(exponent)
        if key not in self._alone:
            if len(self._alone) >= MOST_ALONE:
                self._alone.clear()
            types = [v.type for v in node.operands]
            inputs = [Value(t) for t in types]
            nodes = []
            if exponent is not None:
                attrs = {"value": exponent, "type": types[1]}
                nodes.append(Node("const", (), (types[1],), attrs))
                inputs[1] = nodes[0].results[0]
            nodes.append(Node(node.op, tuple(inputs), (node.results[0].type,), node.attrs))
            taken = inputs if exponent is None else inputs[:1]
            graph = _prepared(Graph(tuple(taken), tuple(nodes), nodes[-1].results))
            try:
                self._alone[key] = Planner(self, graph, DEFAULT_OPTIONS, prepared=True).planned()
            except NotDirect:
                self._alone[key] = None
        program = self._alone[key]
        if program is None:
            raise NotDirect
        return program


def _lightened(graph: Graph) -> tuple[Graph, bool]:
    from loopgrad.codegen.light_passes import lightened  # late: short programs need no pass

    return lightened(graph)


def _prepared(graph: Graph) -> Graph:
    await_scheduling()
    from loopgrad.codegen.schedule.canonical import prepare, rewrite_block  # late: exact operations need neither
    from loopgrad.codegen.schedule.transforms import ANY_AXES  # late, as above

    library = frozenset((*BY_HOST, ANY_AXES))
    return rewrite_block(prepare(graph, library, wide_products=True, in_order=True), in_order=True, wide_products=True)


class Inside(NamedTuple):
    """Of a region: its inputs that surely are no constants, and the programs of all regions so far."""

    varying: set[Value]
    bodies: Bodies


class Planner:
    """One walk over a graph. `prepared`: it is in the form that is scheduled."""

    def __init__(
        self, programs: DirectPrograms, graph: Graph, options: Options, prepared: bool, inside: Inside | None = None,
    ) -> None:  # fmt: skip
        self.programs = programs
        self.graph = graph
        self.options = options
        self.checks = options.check_indices
        self.prepared = prepared
        self.bodies: Bodies | None = None
        if inside is not None or any(node.regions for node in graph.nodes):
            self.varying, self.bodies = (set(graph.inputs), {}) if inside is None else inside
        self.work = self.shared = 0
        self.held: dict[Node, int] = {}  # constants of the program
        self.settled = False  # whether the plan depends on numbers
        self.segments: set[tuple[int, int]] = set()  # of reductions across lanes: lanes of the kernel, elements of one
        self.loops = False  # inside a lane

    def planned(self) -> CpuDirectProgram:
        """The program. Raises NotDirect, NotPrepared."""
        graph, operations = self.graph, []
        places = {v: i for i, v in enumerate(graph.inputs)}
        constants, computed = self._constants(places)
        place = len(graph.inputs) + len(constants)
        for node, type in computed:
            if node.regions:
                function, attrs, operands = self._regions(node)
            else:
                function, attrs, operands = self._operation(node, type.size if type.shape else 1)
                if self.bodies is not None:
                    note_varying(node, self.varying)
            operations.append(Operation(function, attrs, tuple([places[v] for v in operands])))
            for result in node.results:
                places[result] = place
                place += 1
        if self.segments and (self.loops or len({lanes for lanes, _ in self.segments}) < len(self.segments)):
            raise NotDirect  # one kernel may hold both, and has another order then
        outputs = [(places[v], v.type) for v in graph.outputs if isinstance(v.type, TensorType)]
        program = self._program(constants, operations, outputs)
        single = all(len(node.results) == 1 for node, _ in computed)
        if self.bodies is None and single and any(type.size > KEPT for _, type in computed):
            program.large = sparing(program, [type for _, type in computed])
        program.segments, program.loops = self.segments, self.loops
        return program

    def _constants(self, places: dict[Value, int]) -> tuple[list[Any], list[tuple[Node, TensorType]]]:
        """What a program holds, of which the places are noted, and the other nodes: exact operations on numbers that
        scripts don't change are done now. In long programs, which are never run with other numbers, equal numbers of
        one type are one."""
        constants: list[Any] = []
        computed: list[tuple[Node, TensorType]] = []
        nodes, first = self.graph.nodes, len(places)
        equal: dict[Hashable, int] | None = {} if len(nodes) > MOST_NODES else None
        fixed: set[Value] = set()  # what is the same with other numbers
        sizes: dict[int, int] = {}  # by the identities of types, of which most are the same object
        for node in nodes:
            results = node.results
            for r in results:
                size = sizes.get(id(r.type))
                if size is None:
                    if not isinstance(r.type, TensorType) or r.type.size > MOST_ELEMENTS:
                        raise NotDirect
                    sizes[id(r.type)] = r.type.size
            several = node.regions or node.op in factorisations.ROWS
            type = results[0].type if len(results) == 1 or several else None
            if not isinstance(type, TensorType):
                raise NotDirect
            small = sizes[id(type)] <= KEPT
            if small and fixed and node.operands and fixed.issuperset(node.operands) and is_done_now(node):
                fixed.add(results[0])
                given = [constants[places[v] - first] for v in node.operands]
                places[results[0]], self.held[node] = first + len(constants), len(constants)
                constants.append(BARE[node.op](node.attrs, *given)[0])
                continue
            if node.op not in NULLARY or not (node.op == "const" or small):
                computed.append((node, type))
                continue
            if small and not slots(node):
                fixed.add(results[0])
            place = len(constants)
            number = node.attrs["value"] if node.op == "const" else None
            if equal is not None and number:  # a zero has a sign
                place = equal.setdefault((id(type), number), place)
            places[results[0]] = first + place
            self.held[node] = place
            if place == len(constants):
                constants.append(held_elements(node, type))
        return constants, computed

    def _program(self, constants: Sequence[Any], operations: Sequence[Operation], outputs: Outputs) -> CpuDirectProgram:
        inputs, bodies = len(self.graph.inputs), self.bodies
        if bodies is None:
            return CpuDirectProgram(inputs, constants, operations, outputs, self.work, self.shared)
        return RegionalProgram(inputs, constants, operations, outputs, self.work, bodies)

    def open_numbers(self) -> list[OpenNumber] | None:
        """Where the numbers of the graph are in its program."""
        if self.settled or self.bodies is not None:
            return None
        found: list[OpenNumber] = []
        operation = 0
        for node in self.graph.nodes:
            constant = self.held.get(node)
            if constant is not None and node.results[0].dtype is bfloat16:
                return None
            found += [OpenNumber(place, constant, None if constant is not None else operation) for place in slots(node)]
            operation += constant is None
        return found

    @cached_property
    def made(self) -> dict[Value, Node]:
        """What makes the values of the graph that aren't its inputs."""
        return {result: node for node in self.graph.nodes for result in node.results}

    @cached_property
    def varying(self) -> set[Value]:
        """Values that passes leave something of that depends on the inputs, whatever these are. Beside regions they
        are noted on the way, as what comes out of those is known then."""
        varying = set(self.graph.inputs)
        for node in self.graph.nodes:
            note_varying(node, varying)
        return varying

    def _regions(self, node: Node) -> Planned:
        """What computes a loop or branches whose bodies run directly."""
        bodies = self.bodies
        assert bodies is not None
        if self.prepared or not region_flow.whole_tensors_only(node):
            raise NotDirect
        inside: dict[Graph, set[Value]] = {}
        trips = self._trips(node)
        for body in region_flow.running(node):
            varying = region_flow.entering(node, self.varying)
            planner = Planner(self.programs, body, self.options, False, Inside(varying, bodies))
            planned = planner.planned()
            assert isinstance(planned, RegionalProgram)
            bodies[body], inside[body] = planned, planner.varying
            self.work += trips * (planned.work + PASS)
        self.varying.update(region_flow.leaving(node, self.varying, inside))
        return RegionOperation(node), None, node.operands

    def _trips(self, node: Node) -> int:
        """How many a loop takes, where it says so; else 1."""
        count = region_flow.count_of(node)
        made = None if count is None else self.made.get(count)
        return max(int(made.attrs["value"]), 0) if made is not None and made.op == "const" else 1

    @cached_property
    def partition(self) -> Any:
        """What scheduling makes of the nodes."""
        await_scheduling()
        from loopgrad.codegen.schedule.partition import Partition  # late: as above
        from loopgrad.codegen.schedule.regions import Decision  # late: as above

        return Partition(self.graph, Decision({}, {}), in_order=True)

    def _operation(self, node: Node, size: int) -> Planned:
        """What computes a node."""
        operands, key = node.operands, None
        if node.attrs is NO_ATTRS:
            key = node.op, size, *[id(v.type.dtype) for v in operands if isinstance(v.type, TensorType)]
            if (known := self.programs.alike.get(key)) is not None:
                self.work += known[1]
                return known[0], None, operands
        primitive = PRIMITIVES[node.op]
        exact = not operands or (primitive.exact is not None and primitive.exact(node))
        if not exact and node.attrs.get("contract"):
            if self.bodies is not None:
                raise NotDirect
            if may_be_contracted(node, self.made.get):
                raise NotDirect if self.prepared else NotPrepared
            exact = True
        if not exact:
            return self._of_ours(node, size)
        if self.checks and node.op in INDEXING:
            raise NotDirect
        work = primitive.calls * STEP + (int(size * max(primitive.cost, 1.0) * ELEMENT) if size > 1 else 0)
        self.work += work
        function = primitive.function
        if function is not None and bfloat16 not in [v.dtype for v in operands]:
            if key is not None and node.op not in INDEXING:
                self.programs.remember(key, function, work)
            return function, None, operands
        return BARE[node.op], node.attrs, operands

    def _of_ours(self, node: Node, size: int) -> Planned:
        """As above, of what the code generator decides."""
        kind, operands, exponent = PRIMITIVES[node.op].kind, node.operands, self._exponent(node)
        if node.results[0].dtype.kind != "f":
            raise NotDirect
        if kind in FOLDED:
            return self._folded(node, size)
        if node.op in factorisations.ROWS:
            return self._factorisation(node)
        if node.op in fourier.ROWS:
            return self._transform(node, size)
        if kind is not Kind.ELEMENTWISE:
            raise NotDirect
        if not self.prepared and exponent is not None and operands[0] in self.varying:
            return self._alone(node, exponent)
        depends = operands[1:] if node.op == "pow" else operands  # an exponent that becomes a constant is part of code
        if not self.prepared and not (exponent is None and any(v in self.varying for v in depends)):
            raise NotPrepared
        self.work += CALL + int(size * PRIMITIVES[node.op].cost * ELEMENT)
        whole = None
        if exponent is not None:
            from loopgrad.codegen.lower.elementwise import whole_exponent  # late: as above

            whole = whole_exponent(node)
        return self.programs.expanded.function(node, whole), None, operands if whole is None else operands[:1]

    def _folded(self, node: Node, size: int) -> Planned:
        """A sum of floats, and the like."""
        await_scheduling()
        from loopgrad.codegen.schedule.products import is_read_turned, multiplied_in_lanes  # late: as above

        operands, whole = node.operands, node.op == "matmul" and not multiplied_in_lanes(node, True)
        if self.bodies is not None or (not whole and any(prod(v.shape) > MOST_TERMS for v in operands)):
            raise NotDirect  # beside loops kernels combine elements in other orders
        if self.prepared or operands[0] not in self.varying:
            return self._in_order(node, size)
        turned = turned_factors(node, self.made.get) if whole else None
        if (whole and turned is None) or is_read_turned(node, self.graph):
            raise NotPrepared
        if turned is None or operands[0].dtype.bits <= 16:
            return self._alone(node, None)
        return self._product(node, turned)

    def _transform(self, node: Node, size: int) -> Planned:
        """A Fourier transform."""
        if self.bodies is not None or max(size, prod(node.operands[0].shape)) > MOST_TERMS:
            raise NotDirect
        alone = node.operands[0] in self.varying and sum(other.op in fourier.ROWS for other in self.graph.nodes) == 1
        if not (self.prepared or alone):  # several may be one of several axes
            raise NotPrepared
        function, work = direct_routines.transform(node, self.programs.pool())
        self.work += CALL + work
        return function, None, node.operands

    def _factorisation(self, node: Node) -> Planned:
        if self.bodies is not None:
            raise NotDirect  # lanes of loops may do it
        if not self.prepared and not direct_routines.factorisation_is_settled(node):
            raise NotPrepared
        function, work = direct_routines.factorisation(node, self.programs.pool())
        self.work += CALL + work
        self.shared += CALL + work  # code would ask Python for the same routine
        return function, node.attrs, node.operands

    def _product(self, node: Node, turned: tuple[bool, bool]) -> Planned:
        """Of matrices, by who multiplies those of compiled programs."""
        left, right = node.operands
        self.work += CALL + int(prod(left.shape) * right.shape[-1] * direct_routines.TERM)
        return direct_routines.product(node, turned, self.programs.pool()), None, node.operands

    def _in_order(self, node: Node, size: int) -> Planned:
        if not self.prepared:
            raise NotPrepared
        await_scheduling()
        from loopgrad.codegen.schedule.products import matmul_source, multiplied_in_lanes  # late: as above
        from loopgrad.runtime.cpu.in_order import in_order, takes_loops, terms_in_order  # late: as above

        if node.op == "matmul" and not multiplied_in_lanes(node, True):
            left, right = node.operands
            return self._product(node, (matmul_source(left)[1], matmul_source(right)[1]))
        primitive = PRIMITIVES[node.op]
        if primitive.kind is Kind.REDUCTION and node in self.partition.lanes:
            return self._by_rows(node, self.partition.lanes[node])
        function = in_order(node, host_machine())
        if function is None:
            raise NotDirect
        self.loops = self.loops or (primitive.kind is not Kind.RUNNING_TOTAL and takes_loops(node))
        self.work += ORDERED + TERM * terms_in_order(node) + sum([prod(v.shape) for v in node.operands]) + size
        return function, None, node.operands

    def _by_rows(self, node: Node, lanes: int) -> Planned:
        """A reduction across the lanes of a kernel, by a program of its own for each row."""
        from loopgrad.codegen.targets.cpu.vector.lanes import SETTLED, SHORTEST_ROW  # late: as above
        from loopgrad.graph.identities import identity  # late: as above
        from loopgrad.runtime.cpu.in_order import extremes_first  # late: as above

        shape, axes, type = node.operands[0].shape, node.attrs["axes"], node.results[0].type
        assert isinstance(type, TensorType)
        extent = prod(shape[a] for a in axes)
        if lanes > SETTLED or extent < SHORTEST_ROW or type.dtype.bits == 16:
            raise NotDirect
        self.segments.add((lanes, extent))
        nothing = identity(PRIMITIVES[node.op].combine, type.dtype)
        reduce = self.programs.expanded.rows(node.op, type.dtype, extent, nothing)
        perm = (*[d for d in range(len(shape)) if d not in axes], *axes)

        def compute(x: Any) -> Any:
            return reduce(np.asarray(x).transpose(perm).reshape(-1, extent)).reshape(type.shape)

        self.work += type.size * (CALL + extent)
        return extremes_first(node, compute), None, node.operands

    def _alone(self, node: Node, exponent: float | None) -> Planned:
        program = self.programs.alone(node, exponent)
        self.work += program.work
        self.segments |= program.segments
        self.loops = self.loops or program.loops
        return program.compute, None, node.operands if exponent is None else node.operands[:1]

    def _exponent(self, node: Node) -> float | None:
        """The constant that is the second operand of a power, all elements alike."""
        if len(node.operands) < 2 or node.op != "pow":
            return None
        made = self.made.get(node.operands[1])
        while made is not None and made.op in KEEPING_SPLATS:
            made = self.made.get(made.operands[0])
        if made is None or made.op != "const":
            return None
        self.settled = True
        exponent: float = made.attrs["value"]
        return exponent
