"""Running totals of which only narrower numbers are needed, stored as these.

    t = cumsum(x), float32                       t = cumsum(x), added up in float32,
    k0   y[i] = bfloat16(t[i])           ->      whose elements are rounded as they are stored

Totals of 16-bit floats are made of float32. Where nothing but one launch reads them, to round them, what is between
would be written and read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopgrad.codegen.kernel.nodes import BufferParam, Kernel, walk
from loopgrad.codegen.program import LaunchStep, Program, Step
from loopgrad.codegen.steps import named, with_blocks
from loopgrad.codegen.targets.gpu.lanes.joined_pieces import StepsRewritten, own_store
from loopgrad.codegen.targets.gpu.lanes.row_layouts import indices, own_element
from loopgrad.codegen.targets.gpu.lanes.row_stages import suits


def with_narrow_totals(program: Program) -> Program:
    """See the module's text."""
    if not any(kernel.running is not None for kernel in program.kernels):
        return program
    return _NarrowTotals(program).run()


class _NarrowTotals(StepsRewritten):
    def block(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        done: list[Step] = []
        for step in [with_blocks(step, self.block) for step in steps]:
            place = self.total(step, done) if isinstance(step, LaunchStep) else None
            total = None if place is None else done[place]
            if place is not None and isinstance(step, LaunchStep) and isinstance(total, LaunchStep):
                done[place] = self.rounded(total, step)
            else:
                done.append(step)
        return tuple(done)

    def total(self, step: LaunchStep, done: Sequence[Step]) -> int | None:
        """Which of the steps before it makes the totals that it does nothing but round."""
        slots = self.slots_of(step)
        if slots is None or self.uses[slots[0]] != 2 or self.slots[slots[0]].kind != "temp":
            return None
        for place in range(len(done) - 1, -1, -1):
            before = done[place]
            if isinstance(before, LaunchStep) and slots[0] in before.slots:
                running = self.kernels[before.kernel].running
                ends = running is not None and running.function is None and before.slots[running.param] == slots[0]
                return place if ends and slots[1] not in before.slots else None
            if not isinstance(before, LaunchStep) or slots[1] in named(before):
                return None
        return None

    def slots_of(self, step: LaunchStep) -> tuple[int, int] | None:
        """What a launch that rounds reads and writes."""
        params = None if step.initials else rounds(self.kernels[step.kernel])
        return None if params is None else (step.slots[params[0]], step.slots[params[1]])

    def rounded(self, total: LaunchStep, step: LaunchStep) -> LaunchStep:
        """One launch of both."""
        kernel, slots = self.kernels[total.kernel], self.slots_of(step)
        assert kernel.running is not None
        assert slots is not None
        place, dtype = kernel.running.param, self.slots[slots[1]].type.dtype
        params = list(kernel.params)
        params[place] = BufferParam(dtype, params[place].size, params[place].access)
        self.kernels.append(replace(kernel, params=tuple(params)))
        changed = [slots[1] if slot == slots[0] else slot for slot in total.slots]
        return replace(total, kernel=len(self.kernels) - 1, slots=tuple(changed))


def rounds(kernel: Kernel) -> tuple[int, int] | None:
    """The parameter that a kernel reads and the one that it writes, where lanes do nothing but make an element a float
    of fewer bits."""
    written = [n for n, param in enumerate(kernel.params) if param.access == "write"]
    loads = [op for op in walk(kernel.body) if op.opcode == "load"]
    if not suits(kernel) or kernel.reductions or len(kernel.params) != 2 or len(written) != 1 or len(loads) != 1:
        return None
    (target,), (load,) = written, loads
    store, source = own_store(kernel, target), load.attrs["param"]
    cast = None if store is None else store.operands[1].op
    if cast is None or cast.opcode != "cast" or cast.operands != load.results:
        return None
    wide, narrow = load.results[0].dtype, cast.results[0].dtype
    narrower = wide.is_float and narrow.is_float and narrow.bits < wide.bits
    own = indices(kernel, {source}) == [own_element(kernel.domain)]
    return (source, target) if narrower and own else None
