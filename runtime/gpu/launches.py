"""Launches of a program's kernels, as any execution makes them: from kernel and slots to tables and dispatches.

Owns what is known of the launches that were recorded since the last `forget`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopgrad.codegen.program import CopyStep, LaunchStep, MatmulStep, RoutineLaunch, RoutineStep
from loopgrad.codegen.steps import epilogue_slots
from loopgrad.codegen.targets.gpu.interface import SCRATCH, Dispatch, KernelInterface
from loopgrad.runtime.gpu.driver import Driver
from loopgrad.runtime.gpu.hazards import Hazards
from loopgrad.runtime.gpu.placement import SLOTS, SUPPORT, VOID, ZERO
from loopgrad.runtime.gpu.recorder import Recorder
from loopgrad.runtime.gpu.workspace import Workspace


class Launches:
    """`launched`: kernels, in order; `looping`: something launched may have loops, which some drivers stop. Each waits
    for the one before it, but where `hazards` say whether it must."""

    def __init__(self, work: Workspace, recorder: Recorder, hazards: Hazards | None = None) -> None:
        self._work, self._recorder, self._hazards = work, recorder, hazards
        self._driver: Driver = work.driver
        self.launched: dict[int, None] = {}
        self.looping = False

    def forget(self) -> None:
        self.launched.clear()
        self.looping = False
        if self._hazards is not None:
            self._hazards.forget()

    @property
    def may_report(self) -> bool:
        """Whether control blocks may say something when all this has run."""
        stoppable = self.looping and not self._driver.endless_loops
        return stoppable or not self._work.reporting.isdisjoint(self.launched)

    def kernel(self, step: LaunchStep) -> None:
        """A kernel, after its accumulators have their initial values."""
        for position, start in step.to_apply:
            slot = SLOTS + step.slots[position]
            self.supported(start.by, [slot] if start.source is None else [SLOTS + start.source, slot])
        self.once(step.kernel, step.slots)

    def once(self, k: int, slots: Sequence[int], again: bool = False) -> None:
        """`again`: lanes that were left in the middle go on, so what comes before them has been done."""
        kernel, symbols = self._work.program.kernels[k], self._work.placement.kernels[k]
        for dispatch in () if again else kernel.before:
            self._around(dispatch, symbols.scratch, slots)
        if kernel.lanes:
            stacks = range(symbols.stacks, symbols.stacks + 2 * len(kernel.stacks))
            scratch = range(symbols.scratch, symbols.scratch + kernel.own_scratch)
            arrays = [*[SLOTS + slot for slot in slots], *scratch]
            control = (symbols.control, VOID, ZERO, ZERO, symbols.resident)
            table = self._recorder.table([*arrays, *control, *stacks])
            self._begin(kernel.module, arrays, len(slots))
            self._dispatch(k, kernel, table)
            self._end(alone=k in self._work.reporting)
            self.launched[k] = None
            self.looping |= kernel.loops or kernel.copies > 0
        for dispatch in kernel.after:
            self._around(dispatch, symbols.scratch, slots)

    def _begin(self, module: int, arrays: Sequence[int], params: int) -> None:
        """A launch comes next that works on the arrays of these symbols, of which `params` are the module's parameters:
        behind what it must see. It writes scratch blocks, which come after these."""
        written = {*self._work.program.written[module], *range(params, len(arrays))}
        if self._hazards is not None and self._hazards.waits(arrays, written):
            self._recorder.commands.barrier()

    def _end(self, alone: bool = False) -> None:
        """`alone`: all that comes after the launch is behind it, because it may stop that."""
        if self._hazards is None or alone:
            self._recorder.commands.barrier()
        if self._hazards is not None and alone:
            self._hazards.forget()

    def _dispatch(self, k: int, kernel: KernelInterface, table: int) -> None:
        recorder, resident = self._recorder, self._work.heap.residents[k]
        pipeline = self._work.loaded.pipeline(kernel.module)
        if kernel.copies:
            recorder.ordered(pipeline, kernel.lanes, table, kernel.copies, kernel.loops)
        elif kernel.tiles:
            groups = resident // pipeline.group if kernel.stacks else self._driver.filling(pipeline, kernel.streams)
            recorder.tiled(pipeline, kernel.tiles, table, min(kernel.tiles, groups))
        elif kernel.stacks or kernel.resumable or kernel.held:
            counts = (resident or kernel.resumable, kernel.held)
            recorder.stacked(pipeline, kernel.lanes, table, min(count for count in counts if count))
        else:
            recorder.plain(pipeline, kernel.lanes, table)

    def _around(self, dispatch: Dispatch, scratch: int, slots: Sequence[int]) -> None:
        arrays = [scratch + at if kind == SCRATCH else SLOTS + slots[at] for kind, at in dispatch.arrays]
        self.support(dispatch.module, dispatch.lanes, arrays, dispatch.tiles)

    def support(self, module: int, lanes: int, arrays: Sequence[int], tiles: int = 0, unlike: bool = False) -> None:
        """A support kernel over the arrays of these symbols."""
        if not lanes:
            return
        self.looping = True
        table = self._recorder.table([*arrays, SUPPORT, VOID, ZERO, ZERO, ZERO])
        self._begin(module, arrays, len(arrays))
        pipeline = self._work.loaded.pipeline(module)
        if tiles:
            self._recorder.tiled(pipeline, tiles, table, min(tiles, self._driver.filling(pipeline, unlike)))
        else:
            self._recorder.plain(pipeline, lanes, table)
        self._end()

    def supported(self, by: int | None, arrays: Sequence[int]) -> None:
        """Do a step by the support launch of that number."""
        assert by is not None, "every such step of a GPU's program has one"
        launch = self._work.program.support[by]
        self.support(launch.module, launch.lanes, arrays, launch.tiles, launch.unlike)

    def copy(self, step: CopyStep) -> None:
        self.supported(step.by, [SLOTS + step.source, SLOTS + step.target])

    def routine(self, step: RoutineStep) -> None:
        call = self._work.loaded.routine(step)
        if call is None:
            assert step.launches is not None, "programs with library calls on the host aren't recorded"
            self._each(step.launches)
            return
        assert step.call is not None
        self._each(step.call.before)
        self._recorder.call(call, [SLOTS + slot for slot in (*step.call.inputs, *step.call.outputs)])
        self._each(step.call.after)

    def _each(self, launches: Sequence[RoutineLaunch]) -> None:
        for launch in launches:
            self.supported(launch.by, [SLOTS + slot for slot in launch.slots])

    def matmul(self, step: MatmulStep) -> None:
        arrays = [SLOTS + slot for slot in (step.left, step.right, step.out)]
        call = self._work.loaded.product(step)
        if call is None:
            self.supported(step.by, [*arrays, *[SLOTS + slot for slot in epilogue_slots(step)]])
            return
        self._recorder.call(call, arrays)
        if step.epilogue is not None:
            self.kernel(step.epilogue)
