"""One graph (the program's, or a loop body's) as steps.

Enters: a Graph and the storage of its inputs. Leaves: steps in order, and the storage of its outputs. Every
stored value gets a buffer; an output that is wanted in a given buffer is computed there, or copied where
that can't be. Calls and sub-programs run at their level between the kernels.

Circle: `codegen/schedule/steps.py` makes the steps of a loop or branch, whose bodies are blocks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from loopgrad.codegen.lower.context import NotLaneLocal, Settings, Stored
from loopgrad.codegen.lower.kernel import (
    Accumulate,
    KernelRequest,
    Reduce,
    Root,
    Scan,
    ScatterUpdates,
    Store,
)
from loopgrad.codegen.lower.liveness import Liveness
from loopgrad.codegen.program import CopyStep, Initial, LaunchStep, MatmulStep, RoutineStep, Step
from loopgrad.codegen.schedule import deep_products
from loopgrad.codegen.schedule.canonical import rewrite_block
from loopgrad.codegen.schedule.groups import Group, form_groups
from loopgrad.codegen.schedule.lane_memory import memory_operand
from loopgrad.codegen.schedule.order import reads_first
from loopgrad.codegen.schedule.partition import SMALL_CONSTANT, Partition, scatter_exclusive
from loopgrad.codegen.schedule.products import matmul_source
from loopgrad.codegen.schedule.program_builder import ProgramBuffer, ProgramBuilder
from loopgrad.codegen.schedule.regions import Decision, Refusal, decide
from loopgrad.codegen.schedule.roles import Role
from loopgrad.codegen.schedule.shared_terms import as_sums
from loopgrad.codegen.schedule.steps import emit_step
from loopgrad.graph.nodes import Graph, Node, Value
from loopgrad.graph.passes import distribute, mask
from loopgrad.graph.primitives import STACKS
from loopgrad.graph.primitives.collectives import is_started
from loopgrad.graph.regions import Region
from loopgrad.graph.types import TensorType

Storage = Stored | int  # buffers, or the number of a program stack


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """`targets[i]`: the buffer that output i is wanted in. `mutable`: inputs that may be overwritten once
    they aren't read any more (a loop's carries). `inner`: the graph is a loop's or branch's."""

    graph: Graph
    inputs: Mapping[Value, Storage]
    targets: Sequence[ProgramBuffer | None]
    mutable: frozenset[Value] = frozenset()
    inner: bool = False


@dataclass(frozen=True, slots=True)
class ScheduledBlock:
    """`fresh`: buffers made in the block, that nobody outside has."""

    steps: tuple[Step, ...]
    outputs: tuple[Storage, ...]
    fresh: frozenset[ProgramBuffer]


def schedule_block(request: BlockRequest, builder: ProgramBuilder) -> ScheduledBlock:
    """Try with every region in a kernel that analysis allows; take back what lowering then refuses."""
    refused: dict[Node, Refusal] = {}
    graph = request.graph
    while True:
        rewritten = _rewritten(graph, builder)
        graph, decision = _decided(rewritten, refused, builder, request.inner)
        mark = builder.mark()
        try:
            return BlockScheduler(request, graph, decision, builder).run()
        except _Refused as refusal:
            builder.rewind(mark)
            refused.update(refusal.nodes)


def _rewritten(graph: Graph, builder: ProgramBuilder) -> Graph:
    return rewrite_block(graph, builder.in_order, builder.wide_products, builder.options, builder.long_columns)


def _decided(
    graph: Graph, refused: dict[Node, Refusal], builder: ProgramBuilder, inner: bool
) -> tuple[Graph, Decision]:
    """Decide; loops with lanes of their own that can't be in kernels are masked, products of those that are steps are
    taken out of them, narrow and long ones that no library does become sums, and it is decided anew."""
    while True:
        decision = decide(graph, refused, builder.lane_bytes, not builder.in_order)
        laned = {n for n in decision.program if n.regions and Region.of(n).lanes}
        if laned:
            _note_refusals(laned, "runs all lanes in lockstep, masked", decision, builder)
            graph = mask.run(graph, laned.__contains__)
            continue
        apart = distribute.distributed(graph, decision.program.__contains__)
        for note in apart.notes:
            builder.note(note)
        straight = not (inner or any(node.regions for node in decision.program))
        summed = as_sums(apart.graph, builder.sums_products(apart.graph, straight))
        summed = deep_products.for_own_kernels(summed, builder.slices_products(straight))
        if summed is graph:
            _note_refusals(decision.program, "runs as a sub-program", decision, builder)
            return graph, decision
        graph = _rewritten(summed, builder)
        refused.update(_still_steps(graph, decision))


def _still_steps(graph: Graph, decision: Decision) -> dict[Node, Refusal]:
    """The loops and branches that were none of a kernel before products were taken out of some: what is left of those
    would be unrolled, with products that libraries do."""
    inside = {body for node in decision.kernel for body in node.regions}
    reasons = {node.loc: r.reason for node, r in decision.program.items() if isinstance(r, Refusal)}
    return {
        node: Refusal(node, reasons.get(node.loc, "products of all its trips are made at once"))
        for node in graph.nodes
        if node.regions and inside.isdisjoint(node.regions)
    }


def _note_refusals(nodes: Iterable[Node], form: str, decision: Decision, builder: ProgramBuilder) -> None:
    for node in nodes:
        refusal = decision.program[node]
        if isinstance(refusal, Refusal) and node.regions:
            builder.note(refusal.note(form))


class _Refused(Exception):
    def __init__(self, nodes: dict[Node, Refusal]) -> None:
        super().__init__(f"{len(nodes)} regions aren't lane-local after all")
        self.nodes = nodes


class BlockScheduler:
    """The state of one block: where its values are, and the steps so far."""

    def __init__(self, request: BlockRequest, graph: Graph, decision: Decision, builder: ProgramBuilder) -> None:
        self.request = request
        self.graph = graph = reads_first(graph)
        self.builder = builder
        self.partition = Partition(graph, decision, request.mutable, builder.in_order)
        self.storage: dict[Value, Storage] = dict(request.inputs)
        self.steps: list[Step] = []
        self.fresh: set[ProgramBuffer] = set()
        self.taken_over: set[Value] = set()  # scattered in place, into a buffer that was this block's to overwrite
        self.preferred = _preferred(graph, request.targets)
        if not request.inner:
            self.preferred |= _preferred_tables(graph, self.preferred)
        checks = builder.options.check_indices
        self.settings = Settings(builder.constant, builder.residual, Liveness(), checks)

    def run(self) -> ScheduledBlock:
        self._constants()
        groups, self.levels = form_groups(self.partition)
        levels = self.levels
        self.last_level = {node: g.level for g in groups for node in g.nodes}  # groups come in the order of levels
        position = self.partition.position
        tasks: list[tuple[int, int, Group | Node]] = [
            (g.level, min(position[v.node] for v in g.roots if v.node is not None), g) for g in groups
        ]
        tasks += [(level, position[node], node) for node, level in levels.step.items()]
        for _, _, task in sorted(tasks, key=lambda t: (t[0], _rank(t[2]), t[1])):
            if isinstance(task, Group):
                self._kernel(task)
            elif task.regions or task.op in STACKS:
                self._program_step(task)
            else:
                self._library(task)
        outputs = [self._output(v, t) for v, t in zip(self.graph.outputs, self.request.targets, strict=True)]
        return ScheduledBlock(tuple(self.steps), tuple(outputs), frozenset(self.fresh))

    # ---- storage

    def _constants(self) -> None:
        """Stored literals and small splats are constant buffers; program stacks get their numbers."""
        for node in self.graph.nodes:
            if node.op == "stack_new" and self.partition.role[node] in (Role.MEMORY, Role.PROGRAM):
                self._stack_new(node)
            elif node.op in ("literal", "const") and node.results[0] in self.partition.must_store:
                type = node.attrs["type"]
                if node.op == "literal":
                    buffer = self.builder.constant(node.attrs["data"], type)
                elif type.size <= SMALL_CONSTANT:
                    buffer = self.builder.splat(node.attrs["value"], type)
                else:
                    continue
                self.storage[node.results[0]] = Stored((buffer,))
                self.partition.role[node] = Role.MEMORY

    def _stack_new(self, node: Node) -> None:
        program = node in self.partition.decision.program
        self.builder.residual(node, self.graph, "program" if program else "kernel")
        if program:
            self.storage[node.results[0]] = self.builder.stack(node)

    def buffer_for(self, value: Value) -> ProgramBuffer:
        """Where a new value goes: where the caller wants it, or a fresh buffer."""
        type = value.type
        assert isinstance(type, TensorType)
        wanted = self.preferred.pop(value, None)
        if wanted is not None:
            return wanted
        return self.temp(type)

    def temp(self, type: TensorType) -> ProgramBuffer:
        buffer = self.builder.buffer(type)
        self.fresh.add(buffer)
        return buffer

    def buffer_of(self, value: Value) -> ProgramBuffer:
        """The one buffer of a stored value; what is kept in several is put together first."""
        stored = self.storage[value]
        assert isinstance(stored, Stored), f"{value} isn't in memory"
        if len(stored.buffers) > 1:
            stored = self._gathered(value)
        buffer = stored.buffers[0]
        assert isinstance(buffer, ProgramBuffer)
        return buffer

    def copy(self, source: ProgramBuffer, target: ProgramBuffer) -> None:
        if source is not target and source.type.nbytes:
            self.steps.append(CopyStep(source.number, target.number))

    def owned(self, value: Value) -> bool:
        """Whether the value's buffer is this block's to overwrite, once nobody reads it any more."""
        stored = self.storage.get(value)
        if not isinstance(stored, Stored) or len(stored.buffers) != 1:
            return False
        buffer = stored.buffers[0]
        if not isinstance(buffer, ProgramBuffer) or buffer.kind != "temp" or buffer.popped:
            return False
        return value in self.request.mutable or value in self.taken_over or buffer in self.fresh

    def _output(self, value: Value, target: ProgramBuffer | None) -> Storage:
        stored = self.storage[value]
        if isinstance(stored, int):
            return stored
        buffer = self.buffer_of(value)
        if target is None:
            return Stored((buffer,))
        self.copy(buffer, target)
        return Stored((target,))

    def _gathered(self, value: Value) -> Stored:
        """One buffer for a value kept in several."""
        buffer = self.buffer_for(value)
        request = KernelRequest(
            self._name(), prod(value.shape), False, (), self._stored([value]), [Store(value, buffer)]
        )
        self._launch(request, {})
        self.storage[value] = stored = Stored((buffer,))
        return stored

    # ---- kernels

    def _name(self, nodes: Iterable[Node] = ()) -> str:
        """A number, and what the kernel is about: its regions, else its last operation."""
        found = list(nodes)
        regions = dict.fromkeys(n.op for n in found if n.regions)
        about = "_".join(regions) or (found[-1].op if found else "copy")
        return f"k{len(self.builder.known.kernels)}_{about}"

    def _stored(self, values: Sequence[Value]) -> dict[Value, Stored]:
        return {v: s for v in values if isinstance(s := self.storage.get(v), Stored)}

    def _kernel(self, group: Group) -> None:
        regions = [n for n in group.nodes if self.partition.role[n] is Role.LANES]
        rolled = any(self.partition.decision.kernel[n].rolled for n in regions)
        initials: dict[int, Initial] = {}
        roots = [self._root(v, group, initials) for v in group.roots if prod(v.shape)]
        if not roots:
            return
        name, stored = self._name(group.nodes), self._stored(list(group.loads))
        request = KernelRequest(name, group.lanes, bool(regions), list(group.nodes), stored, roots, rolled)
        try:
            self._launch(request, initials)
        except NotLaneLocal as error:
            raise _Refused(self._blamed(group, error)) from error

    def _blamed(self, group: Group, error: NotLaneLocal) -> dict[Node, Refusal]:
        regions = [n for n in group.nodes if self.partition.role[n] is Role.LANES]
        assert regions, f"a kernel without regions mixes lanes: {error}"
        return {n: Refusal(n, "its body reads another lane's elements") for n in regions}

    def _root(self, value: Value, group: Group, initials: dict[int, Initial]) -> Root:
        node = value.node
        assert node is not None
        match self.partition.role[node]:
            case Role.REDUCE:
                type = value.type
                assert isinstance(type, TensorType)
                count = self.partition.kept_count(node)
                if count == 1:
                    buffers: tuple[ProgramBuffer, ...] = (self.buffer_for(value),)
                else:
                    part = TensorType((type.size // count,), type.dtype)
                    buffers = tuple([self.temp(part) for _ in range(count)])
                self.storage[value] = Stored(buffers)
                return Reduce(node, buffers)
            case Role.SCATTER:
                buffer = self._accumulated(node.operands[0], value, group, initials)
                return ScatterUpdates(node, buffer, scatter_exclusive(node, group.lanes))
            case Role.SCAN:
                buffer = self.buffer_for(value)
                self.storage[value] = Stored((buffer,))
                return Scan(node, buffer)
        if self.partition.is_accumulator(value):
            operand = memory_operand(Region.of(node), value.index)
            assert operand is not None
            buffer = self._accumulated(node.operands[operand], value, group, initials)
            return Accumulate(value, buffer, self.partition.decision.kernel[node].exclusive(operand))
        buffer = self.buffer_for(value)
        self.storage[value] = Stored((buffer,))
        return Store(value, buffer)

    def _accumulated(self, source: Value, value: Value, group: Group, initials: dict[int, Initial]) -> ProgramBuffer:
        """The buffer of a scattered value: the operand's own where that may be overwritten, else a new one
        that starts as a copy. A launch that may be repeated (a stack that grows) needs the original."""
        known = _constant_operand(source)
        repeatable = makes_stacks(group.nodes)
        if known is not None and source not in self.storage:
            buffer = self.buffer_for(value)
            initials[buffer.number] = Initial(None, known[0])  # type: ignore[arg-type]
            self.storage[value] = Stored((buffer,))
            return buffer
        original = self.buffer_of(source)
        there = self.preferred.get(value) is original  # computed where its scatter's result is wanted
        if not repeatable and (there or self.owned(source)) and self._last_reader(source, value, group):
            buffer = original
            self.taken_over.add(value)
        else:
            assert isinstance(value.type, TensorType)
            buffer = self.temp(value.type) if there else self.buffer_for(value)
        initials[buffer.number] = Initial(original.number)
        self.storage[value] = Stored((buffer,))
        return buffer

    def _last_reader(self, source: Value, value: Value, group: Group) -> bool:
        """Whether nothing reads the operand of a scatter beside the scatter itself, or after it."""
        if source in self.graph.outputs:
            return False
        for node in self.partition.readers[source]:
            times = self.partition.reads(node).count(source)
            if node is value.node:
                times -= 1
            if times and not self._done_before(node, group):
                return False
        return True

    def _done_before(self, node: Node, group: Group) -> bool:
        """Whether every kernel or step that computes the node comes before the group's kernel."""
        if node in self.levels.step:
            return self.levels.step[node] < group.level
        return self.last_level.get(node, -1) < group.level

    def _launch(self, request: KernelRequest, initials: Mapping[int, Initial]) -> None:
        kernel, buffers = self.builder.known.number(request, self.settings)
        params = self.builder.known.kernels[kernel].params
        starts = [
            (i, initials[b.number])
            for i, (b, p) in enumerate(zip(buffers, params, strict=True))
            if p.access == "accumulate"
        ]
        self.steps.append(LaunchStep(kernel, tuple([b.number for b in buffers]), tuple(starts)))

    # ---- calls and sub-programs

    def _library(self, node: Node) -> None:
        if node.op == "matmul":
            (left, flip_left), (right, flip_right) = matmul_source(node.operands[0]), matmul_source(node.operands[1])
            a, b = self.buffer_of(left), self.buffer_of(right)
            out = self.buffer_for(node.results[0])
            *batch, m, k = node.operands[0].shape
            n = node.operands[1].shape[-1]
            self.steps.append(MatmulStep(a.number, b.number, out.number, prod(batch), m, k, n, flip_left, flip_right))
            self.storage[node.results[0]] = Stored((out,))
        else:
            sources = [self.buffer_of(v) for v in node.operands]
            results = [self.buffer_for(v) for v in node.results]
            for buffer in (*sources, *results):
                buffer.exact = True
            inputs, outputs = (tuple([b.number for b in buffers]) for buffers in (sources, results))
            if is_started(node.attrs):
                self._under_way(node, outputs)
            self.steps.append(RoutineStep(node.op, inputs, outputs, tuple(sorted(node.attrs.items()))))
            self.storage.update({v: Stored((b,)) for v, b in zip(node.results, results, strict=True)})

    def _under_way(self, node: Node, outputs: tuple[int, ...]) -> None:
        """Where a collective is awaited: it writes its results from where it started."""
        number = ("number", node.attrs["number"])
        for i, step in enumerate(self.steps):
            if not isinstance(step, RoutineStep) or step.scratch:
                continue
            if step.name == "collective_start" and number in step.attrs:
                self.steps[i] = replace(step, scratch=outputs[1:])
                return
        raise AssertionError(f"collective {node.attrs['number']} is awaited, and was not started in this block")

    def _program_step(self, node: Node) -> None:
        for v in node.operands:
            if isinstance(self.storage.get(v), Stored):
                self.buffer_of(v)  # regions would put it together in every pass
        emit_step(self, node)

    def nested(
        self,
        graph: Graph,
        inputs: Sequence[Storage],
        targets: Sequence[ProgramBuffer | None],
        mutable: frozenset[Value],
    ) -> ScheduledBlock:
        """A region of this block as a block of its own."""
        bound = dict(zip(graph.inputs, inputs, strict=True))
        return schedule_block(BlockRequest(graph, bound, targets, mutable, inner=True), self.builder)

    def pushed_again(self, node: Node) -> bool:
        """Whether the stack of a pop is pushed to later in this block."""
        value: Value | None = node.results[0]
        while value is not None:
            reader = next((n for n in self.graph.nodes if value in n.operands), None)
            if reader is None or reader.op == "pop":
                value = reader.results[0] if reader is not None else None
                continue
            return True
        return False


def _rank(task: Group | Node) -> int:
    """Of tasks that don't wait for each other, but for rows of stacks, which are there at once: a collective starts
    before what is computed meanwhile, and is awaited behind it."""
    if isinstance(task, Group):
        return 0
    first = ("pop", "collective_start")
    return first.index(task.op) - len(first) if task.op in first else int(is_started(task.attrs))


def _preferred(graph: Graph, targets: Sequence[ProgramBuffer | None]) -> dict[Value, ProgramBuffer]:
    """The first target of each output that the graph computes."""
    wanted: dict[Value, ProgramBuffer] = {}
    for v, target in zip(graph.outputs, targets, strict=True):
        if target is not None and v.node is not None:
            wanted.setdefault(v, target)
    return wanted


def _preferred_tables(graph: Graph, wanted: Mapping[Value, ProgramBuffer]) -> dict[Value, ProgramBuffer]:
    """The same of what is only scattered into, for such an output."""
    found = dict[Value, ProgramBuffer]()
    if not any(node.op == "scatter" for node in graph.nodes):
        return found
    uses = Counter(v for node in graph.nodes for v in node.operands)
    uses.update(graph.outputs)
    for node in reversed(graph.nodes):
        target = wanted.get(node.results[0], found.get(node.results[0])) if node.op == "scatter" else None
        table = node.operands[0] if target is not None else None
        if target is not None and table is not None and table.node is not None and uses[table] == 1:
            found[table] = target
    return found


def makes_stacks(nodes: Iterable[Node]) -> bool:
    """Whether one of them, or of those in their regions, makes a stack."""
    return any(n.op == "stack_new" or any(makes_stacks(region.nodes) for region in n.regions) for n in nodes)


def _constant_operand(value: Value) -> Sequence[object] | None:
    """The value of a splat constant, wrapped; None for anything else."""
    node = value.node
    return [node.attrs["value"]] if node is not None and node.op == "const" else None
