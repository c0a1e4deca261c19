"""A launch that adds to a large table and does something else as well, as two launches.

    loss += f(x[i[n]]);  t[i[n]] += g(n)      ->      loss += f(x[i[n]])     and     t[i[n]] += g(n)

Where lanes do nothing but add, they do so part by part (table_parts), and what adds to the same table besides is one
launch with it (joined_tables), although what they read is read once more: on an H100 2**23 lanes that sum a loss and
add to 2**22 elements take 411 us as one launch and 328 as two, 2**24 to as many elements 1,735 and 1,174. Only what
lanes find again at little cost.
"""

from __future__ import annotations

from loopgrad.codegen.kernel.nodes import Kernel, KOp, KValue
from loopgrad.codegen.kernel.passes import dce
from loopgrad.codegen.kernel.rebuild import Rebuilder
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import LaunchStep, Program, Step
from loopgrad.codegen.targets.gpu.emit.scaled_sum import only_terms, runs_twice
from loopgrad.codegen.targets.gpu.lanes.analysis import shared_params, straight
from loopgrad.codegen.targets.gpu.lanes.joined_pieces import LaunchesTogether
from loopgrad.codegen.targets.gpu.lanes.row_stages import WithParams
from loopgrad.codegen.targets.gpu.lanes.table_parts import in_parts


def with_tables_apart(program: Program, options: Options, wide: bool) -> Program:
    """See the module's text. `wide`: the device has atomics of 64 bits."""
    return _Apart(program, options, wide).run()


def terms_apart(kernel: Kernel, table: int) -> tuple[Kernel, Kernel] | None:
    """What the kernel does besides adding to this parameter, and what it adds; None where lanes can't run twice, or do
    nothing else."""
    special = kernel.stages or kernel.stacks or kernel.errors or kernel.order_key or kernel.running
    if special or not straight(kernel) or not runs_twice(kernel, kernel.body):
        return None
    rest = dce.run(_Without(kernel, table).run())
    return (rest, only_terms(kernel, table)) if rest.body.ops else None


def launches_apart(
    step: LaunchStep, parts: tuple[Kernel, Kernel], kernels: list[Kernel]
) -> tuple[LaunchStep, LaunchStep] | None:
    """Those of both parts of the step's kernel, with the slots that they have; they come to the kernels. None where the
    first might change what the second reads."""
    if len(set(step.slots)) < len(step.slots):
        return None
    rest, terms = (_launch(kernel, step, kernels) for kernel in parts)
    return rest, terms


def _launch(kernel: Kernel, step: LaunchStep, kernels: list[Kernel]) -> LaunchStep:
    touched = {op.attrs["param"] for op in kernel.body.ops if "param" in op.attrs}
    kept = sorted(touched | {reduction.param for reduction in kernel.reductions})
    places = [kept.index(i) if i in kept else 0 for i in range(len(kernel.params))]
    kernels.append(WithParams(kernel, tuple([kernel.params[i] for i in kept]), places).run())
    initials = tuple([(kept.index(i), start) for i, start in step.initials if i in kept])
    return LaunchStep(len(kernels) - 1, tuple([step.slots[i] for i in kept]), initials)


class _Apart(LaunchesTogether):
    def __init__(self, program: Program, options: Options, wide: bool) -> None:
        super().__init__(program)
        self.options, self.wide = options, wide

    def add(self, done: list[Step], step: LaunchStep) -> None:
        parts = self.parts(self.kernels[step.kernel])
        launches = None if parts is None else launches_apart(step, parts, self.kernels)
        if launches is None:
            done.append(step)
        else:
            self.replaced([step], launches)
            done += launches

    def parts(self, kernel: Kernel) -> tuple[Kernel, Kernel] | None:
        """Of a kernel whose lanes had better add to a table by themselves."""
        shared = shared_params(kernel)
        if len(shared) != 1:
            return None
        (table,) = shared
        parts = terms_apart(kernel, table)
        if parts is None:
            return None
        (_, terms) = parts
        return parts if in_parts(terms, self.options, self.wide) is not terms else None


class _Without(Rebuilder):
    """Without what is added to this parameter."""

    def __init__(self, kernel: Kernel, table: int) -> None:
        super().__init__(kernel)
        self.table = table

    def op(self, op: KOp, operands: tuple[KValue, ...]) -> tuple[KValue, ...]:
        if op.opcode == "accumulate" and op.attrs["param"] == self.table:
            return ()
        return self.copy(op, operands)
