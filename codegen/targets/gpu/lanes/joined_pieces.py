"""A launch that puts side by side what the one before it made, as a part of that one.

    k0, 64 x 32 lanes   a[i, j] = f(...); b[i, j] = g(...)            w[i, j] = f(...)
    k1, 64 x 64 lanes   w[i, j] = a[i, j] if j < 32              ->   w[i, j + 32] = g(...),   in 64 x 32 lanes
                                  else b[i, j - 32]

The later launch has a whole number of times as many lanes along one dim. It is taken apart into as many pieces; in
each, conditions on the lane's place are decided, and what it reads of the first launch must be the lane's own elements,
which are in registers. The gates of a recurrent layer are slices of one product, so this is how their cotangents meet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from loopgrad.codegen.kernel.linear_index import Linear, difference, form_of, linear, places
from loopgrad.codegen.kernel.nodes import Block, BufferParam, Kernel, KOp, KValue, walk
from loopgrad.codegen.kernel.opcodes import OPCODES
from loopgrad.codegen.kernel.passes import dce, optimise
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.program import LaunchStep, Program, Step
from loopgrad.codegen.steps import named, slot_uses, with_blocks
from loopgrad.codegen.targets.gpu.lanes.analysis import weight
from loopgrad.codegen.targets.gpu.lanes.row_layouts import own_element, with_rows
from loopgrad.codegen.targets.gpu.lanes.row_stages import with_launched_kernels
from loopgrad.codegen.targets.gpu.lanes.slot_versions import with_versions
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.primitives.intervals import Interval
from loopgrad.graph.ranges import limits
from loopgrad.graph.types import int64

MOST_PIECES: Final = 16
MOST_WEIGHT: Final = 2000  # of all pieces and what they are made of

ELSEWHERE: Final = -1  # the parameter of a load that must turn out to be of no use


def with_pieces(program: Program) -> Program:
    """See the module's text."""
    return PieceJoiner(program).run()


@dataclass(frozen=True, slots=True)
class PieceCut:
    """The later domain is `pieces` of `size` along `dim`."""

    dim: int
    size: int
    pieces: int


class StepsRewritten(ABC):
    """Makes other launches of some, in each `block` of steps; a program without any stays what it was."""

    def __init__(self, program: Program) -> None:
        self.program, self.kernels, self.slots = program, list(program.kernels), list(program.slots)
        self.uses = slot_uses(program)

    def run(self) -> Program:
        steps = self.block(self.program.steps)
        if len(self.kernels) == len(self.program.kernels):
            return self.program
        return with_launched_kernels(replace(self.program, slots=tuple(self.slots)), self.kernels, steps)

    @abstractmethod
    def block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps in place of these."""


class LaunchesTogether(StepsRewritten):
    """Makes one launch of several."""

    def block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        inner = [with_blocks(step, self.block) for step in steps]
        if not self.any_may_join(inner):
            return tuple(inner)
        done: list[Step] = []
        for step in with_versions(inner, self.kernels, self.slots, self.uses):
            if isinstance(step, LaunchStep):
                self.add(done, step)
            else:
                done.append(step)
        return tuple(done)

    def any_may_join(self, steps: Sequence[Step]) -> bool:
        """Whether it is worth a closer look."""
        return True

    def replaced(self, gone: Sequence[LaunchStep], come: Sequence[LaunchStep]) -> None:
        """Keeps up to date how many steps each slot is in."""
        for step in gone:
            self.uses.subtract(set(named(step)))
        for step in come:
            self.uses.update(set(named(step)))

    @abstractmethod
    def add(self, done: list[Step], step: LaunchStep) -> None:
        """Adds a launch to these steps, as one with one of them where that can be."""


class PieceJoiner(LaunchesTogether):
    def add(self, done: list[Step], step: LaunchStep) -> None:
        before = done[-1] if done else None
        joined = self.joined(before, step) if isinstance(before, LaunchStep) else None
        if joined is not None:
            done.pop()
        done.append(joined or step)

    def joined(self, first: LaunchStep, second: LaunchStep) -> LaunchStep | None:
        a, b = self.kernels[first.kernel], self.kernels[second.kernel]
        if len(b.domain) == 2:
            a = _over_rows(a, b.domain[0])
        elif len(a.domain) == 2:
            b = _over_rows(b, prod(b.domain) // max(a.domain[1], 1))
        cut = _cut(a.domain, b.domain)
        if cut is None or not (plain_lanes(a) and plain_lanes(b)) or weight(a) + cut.pieces * weight(b) > MOST_WEIGHT:
            return None
        made = self.handed_on(first, second)
        return self.one_launch(first, second, (a, b), cut, made) if made else None

    def one_launch(
        self, first: LaunchStep, second: LaunchStep, kernels: tuple[Kernel, Kernel], cut: PieceCut, made: set[int]
    ) -> LaunchStep | None:
        """Of these kernels; `made`: slots that the first one hands on. An array to which both add starts as the first
        one says. None where a piece reads another lane's elements."""
        dead = {slot for slot in made if self.uses[slot] == 2 and self.slots[slot].kind == "temp"}
        kept = [slot for slot in dict.fromkeys([*first.slots, *second.slots]) if slot not in dead]
        kernel = _JoinedKernel(*kernels, kept, made).run(first.slots, second.slots, cut)
        if kernel is None:
            return None
        own = [(first.slots[i], start) for i, start in first.initials]
        more = [(second.slots[i], start) for i, start in second.initials]
        begun = {slot for slot, _ in own}
        initials = [(kept.index(slot), start) for slot, start in [*own, *[m for m in more if m[0] not in begun]]]
        self.kernels.append(kernel)
        launch = LaunchStep(len(self.kernels) - 1, tuple(kept), tuple(initials))
        self.replaced([first, second], [launch])
        return launch

    def handed_on(self, first: LaunchStep, second: LaunchStep) -> set[int]:
        """Slots that the first launch writes and the second reads; none where they mustn't be one launch."""
        (_, made, added), (read, written, more) = self.accesses(first), self.accesses(second)
        changed = written | more
        seen = {*first.slots, *[start.source for _, start in first.initials]}
        started = {start.source for _, start in second.initials}
        apart = changed.isdisjoint(seen) and added.isdisjoint(second.slots) and started.isdisjoint(made | added)
        each = all(len(set(step.slots)) == len(step.slots) for step in (first, second))
        return made & read if apart and each else set()

    def accesses(self, step: LaunchStep) -> tuple[set[int], set[int], set[int]]:
        """The slots that the launch reads, writes, accumulates into."""
        found: dict[str, set[int]] = {"read": set(), "write": set(), "accumulate": set()}
        for slot, param in zip(step.slots, self.kernels[step.kernel].params, strict=True):
            found[param.access].add(slot)
        return found["read"], found["write"], found["accumulate"]


def _over_rows(kernel: Kernel, rows: int) -> Kernel:
    """A kernel of one dim over so many rows, where it has as many elements of each."""
    lanes = prod(kernel.domain)
    if len(kernel.domain) != 1 or not rows or lanes % rows or not plain_lanes(kernel):
        return kernel
    return with_rows(kernel, rows, lanes // rows) or kernel


def _cut(first: Sequence[int], second: Sequence[int]) -> PieceCut | None:
    if len(first) != len(second):
        return None
    differing = [dim for dim, (n, m) in enumerate(zip(first, second, strict=True)) if n != m]
    if len(differing) != 1 or not first[differing[0]]:
        return None
    size, whole = first[differing[0]], second[differing[0]]
    return PieceCut(differing[0], size, whole // size) if not whole % size and whole <= MOST_PIECES * size else None


def plain_lanes(kernel: Kernel) -> bool:
    """Lanes in any order, which report nothing and keep nothing."""
    special = kernel.stages or kernel.stacks or kernel.errors or kernel.arrays or kernel.reductions
    return not special and kernel.running is None and kernel.order_key is None


class _JoinedKernel:
    """Kernel `a`, and `b` in pieces, over parameters for the slots `kept`; `made`: slots that go from a to b."""

    def __init__(self, a: Kernel, b: Kernel, kept: Sequence[int], made: set[int]) -> None:
        self.a, self.b, self.made = a, b, made
        self.numbers = {slot: i for i, slot in enumerate(kept)}
        self.arguments = tuple([KValue(int64) for _ in a.domain])

    def run(self, first: Sequence[int], second: Sequence[int], cut: PieceCut) -> Kernel | None:
        """None where a piece reads another lane's elements."""
        copy = _PlacedKernel(self.a, self.places(first), {})
        stored = {slot: own_store(self.a, first.index(slot)) for slot in self.made}
        ops = copy.over(self.arguments)
        values = {second.index(slot): copy.env[op.operands[1]] for slot, op in stored.items() if op is not None}
        if len(values) < len(self.made):
            return None
        for piece in range(cut.pieces):
            part = _PlacedKernel(self.b, self.places(second), values)
            ops += part.over(self.arguments, cut, piece * cut.size, self.a.domain)
        params: dict[int, BufferParam] = {}
        for slots, kernel in ((second, self.b), (first, self.a)):
            params.update((slot, param) for slot, param in zip(slots, kernel.params, strict=True))
        kept = tuple([params[slot] for slot in self.numbers])
        name = f"{self.a.name}_{self.b.name.partition('_')[2]}"
        joined = dce.run(replace(self.a, name=name, params=kept, body=Block(self.arguments, ops)))
        strange = any(op.attrs.get("param") == ELSEWHERE for op in walk(joined.body))
        return None if strange else optimise(joined)

    def places(self, slots: Sequence[int]) -> list[int | None]:
        """The new number of each parameter; None where it is there no more."""
        return [self.numbers.get(slot) for slot in slots]


def own_store(kernel: Kernel, param: int) -> KOp | None:
    """The one operation that touches the parameter: each lane stores its own element."""
    touching = [op for op in kernel.body.ops if op.attrs.get("param") == param]
    if len(touching) != 1 or touching[0].opcode != "store" or param in _inside(kernel):
        return None
    return touching[0] if linear(kernel).get(touching[0].operands[0]) == own_element(kernel.domain) else None


class _PlacedKernel(Rebuilder):
    """A kernel's operations with parameters at other `places`. `values`: what the lane's own element of a parameter is;
    loads of others are from ELSEWHERE."""

    def __init__(self, kernel: Kernel, places: Sequence[int | None], values: Mapping[int, KValue]) -> None:
        super().__init__(kernel)
        self.places, self.values = places, values
        self.domain: tuple[int, ...] = kernel.domain
        self.forms: dict[KValue, Linear] = {}
        self.known: dict[KValue, bool] = {}

    def over(
        self, arguments: Sequence[KValue], cut: PieceCut | None = None, start: int = 0, domain: Sequence[int] = ()
    ) -> list[KOp]:
        """The operations at these indices, or at those of the lane that is `start` further along the cut."""
        self.domain = tuple(domain) or self.domain
        for d, (argument, extent) in enumerate(zip(arguments, self.domain, strict=True)):
            factors = tuple([int(i == d and extent > 1) for i in range(len(self.domain))])
            self.forms[argument] = Linear(factors, 0)
        indices = list(arguments)
        if cut is not None:
            amount = KOp("const", (), (int64,), {"value": start})
            moved = KOp("add", (indices[cut.dim], *amount.results), (int64,))
            self.forms[moved.results[0]] = replace(self.forms[indices[cut.dim]], constant=start)
            self.out += [amount, moved]
            indices[cut.dim] = moved.results[0]
        self.env.update(zip(self.kernel.body.arguments, indices, strict=True))
        self.body(self.kernel.body)
        return self.out

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        param = op.attrs.get("param")
        if op.opcode == "load" and param is not None and param in self.values:
            if self.forms.get(operands[0]) == own_element(self.domain):
                return (self.values[param],)
            self.out.append(KOp("load", operands, (op.results[0].dtype,), {"param": ELSEWHERE}))
            return self.out[-1].results
        if op.opcode in ("if", "select") and operands[0] in self.known:
            return self.chosen(op, operands, self.known[operands[0]])
        if param is not None and self.places[param] is None:
            return ()  # a store of what nobody reads any more
        results = self.copy(op, operands)
        if param is not None:
            self.out[-1].attrs = {**op.attrs, "param": self.places[param]}
        elif results:
            self.learn(self.out[-1])
        return results

    def chosen(self, op: KOp, operands: tuple[KValue, ...], yes: bool) -> tuple[KValue, ...]:
        if op.opcode == "select":
            return (operands[1 if yes else 2],)
        block = op.blocks[0 if yes else 1]
        self.body(block)
        return tuple([self.env[v] for v in block.yields])

    def learn(self, op: KOp) -> None:
        """Where the result is a sum of indices, or whether it holds."""
        result = op.results[0]
        if result.dtype is int64:
            form = form_of(op, [self.forms.get(v) for v in op.operands], len(self.domain))
            if form is not None:
                self.forms[result] = form
        elif (answer := self.answer(op)) is not None:
            self.known[result] = answer

    def answer(self, op: KOp) -> bool | None:
        """Whether a test of indices, or of what is known, holds."""
        record = PRIMITIVES.get(op.opcode)
        if record is None or record.function is None or op.results[0].dtype.kind != "b":
            return None
        if record.negated:  # a comparison: the sign of the difference decides
            x, y = (self.forms.get(v) for v in op.operands)
            if x is None or y is None:
                return None
            low, high = places(difference(x, y), self.domain)
            answers = {bool(record.function(sign, 0)) for sign in range(max(low, -1), min(high, 1) + 1)}
            answers |= {bool(record.function(end, 0)) for end in (low, high)}
            return answers.pop() if len(answers) == 1 else None
        if all(v in self.known for v in op.operands):
            return bool(record.function(*[self.known[v] for v in op.operands]))
        rule = OPCODES[op.opcode].interval
        low, high = (rule and rule(op, self)) or (0, 1)
        return bool(low) if low == high else None

    # for the rules of intervals

    def bounds(self, value: KValue) -> Interval:
        if value in self.known:
            return self.known[value], self.known[value]
        return limits(value.dtype) if value not in self.forms else places(self.forms[value], self.domain)

    residues = bounds


def _inside(kernel: Kernel) -> set[int]:
    """Parameters that operations within blocks touch."""
    top = set(map(id, kernel.body.ops))
    return {op.attrs["param"] for op in walk(kernel.body) if "param" in op.attrs and id(op) not in top}
