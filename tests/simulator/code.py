"""Kernels for GPUs as machine code of this computer: the host's flavour of LLVM IR.

Each kernel gets a function `kN.run` that calls it for workgroups 0 .. groups-1 and, in each, for invocations
first .. end-1. A kernel with barriers is called by one coroutine per invocation, which meet after each workgroup.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any

from loopgrad.codegen.artifact import Artifact
from loopgrad.codegen.options import Options
from loopgrad.codegen.program import LaunchStep, Program
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.cpu.features import host_machine
from loopgrad.codegen.targets.gpu.assembler import WARP, Val, Variable
from loopgrad.codegen.targets.gpu.compile import compile_for
from loopgrad.codegen.targets.gpu.record import ProgramRecord
from loopgrad.codegen.targets.gpu.support.update_kernel import emit_update
from loopgrad.codegen.targets.llvm_gpu.assembler import WORDS, LlvmAssembler
from loopgrad.codegen.targets.llvm_gpu.flavour import Flavour
from loopgrad.codegen.targets.llvm_gpu.image import LlvmImage
from loopgrad.codegen.targets.llvm_modules import parsed
from tests.simulator.coroutines import DECLARATIONS, WAIT
from tests.simulator.matrix_units import HostUnits
from tests.simulator.subgroup_matrices import SHAPES, HostMatrices
from tests.simulator.warpgroup_units import HostWarpgroupUnits

GROUP = 32
UPDATE_GROUP = 4


def flavour() -> Flavour:
    return Flavour(
        triple=host_machine().triple,
        entry="internal ",
        memory="ptr",
        local="ptr",
        constant="ptr",
        workgroup="ptr",
        device="",
        group="",
        local_id="add i32 %local_id, 0",
        group_id="add i32 %group_id, 0",
        barrier=(WAIT,),
        columns_group=1024,
        asked_memory=99 << 10,
        exchanges=True,
        group_vectors=True,
        unit_types=("f16", "b16", "tf32"),
        matrices=SHAPES,
        warpgroup_memory=227 << 10,
        waits=True,
        attributes="nounwind",
        declarations=DECLARATIONS,
        arguments=", i32 %group_id, i32 %local_id, ptr %shared, ptr %barrier",
    )


class HostAssembler(LlvmAssembler):
    """Memory of a workgroup comes with the call. Quotients have a rare way, taken where a numerator is 0 or no
    number, so that tests see programs in which that lies behind a branch."""

    waits = False
    neighbours, hand_on, wide_sums = WARP, True, True
    _units: HostUnits | None = None

    @property
    def matrix_units(self) -> HostUnits:
        self._units = self._units or HostUnits(self)
        return self._units

    @property
    def subgroup_matrices(self) -> HostMatrices:
        return HostMatrices(self)

    @property
    def warpgroup_units(self) -> HostWarpgroupUnits:
        return HostWarpgroupUnits(self.matrix_units)

    def across(self, x: Val, distance: int) -> Val:
        return self.matrix_units.across(x, distance)

    def behind(self, x: Val, distance: int) -> Val:
        return self.matrix_units.behind(x, distance)

    @property
    def shared_quotients(self) -> tuple[str, ...]:
        return () if self.fast else ("f32", "f64")

    def usual_quotients(self, pairs: Sequence[tuple[Val, Val]], zeros: bool = False) -> tuple[Sequence[Val], Val]:
        if zeros:
            return super().usual_quotients(pairs)
        sizes = [self.extended("FAbs", x.type, x) for x, _ in pairs]
        found = [self.inst("FOrdLessThan", "bool", self.const(size.type, 0.0), size) for size in sizes]
        usual = reduce(lambda m, n: self.inst("LogicalAnd", "bool", m, n), found)
        return [self.exact("FDiv", x.type, x, y) for x, y in pairs], usual

    def place_of(self, array: Variable, index: Val) -> Val:
        """The address of an i32 of an array of the workgroup."""
        return self._value("i64", f"ptrtoint {self._cell(self.flavour.workgroup, array, 'i32', index)} to i64")

    def barrier(self) -> None:
        self.waits = True
        super().barrier()

    def _shared_array(self, offset: int, type: str, count: int, alignment: int) -> str:
        name = self._name()
        self._locals.append(f"  {name} = getelementptr i8, ptr %shared, i64 {offset}")
        return name

    def finish(self, attributes: int) -> str:
        words = ", ".join(f"i64 %{word}" for word in WORDS)
        loop = f"""define void @{self.symbol}.run({words}, i32 %groups, i32 %first_id, i32 %end_id, ptr %shared,
    ptr %barrier) {{
entry:
  br label %group
group:
  %group_id = phi i32 [ 0, %entry ], [ %next_group, %after ]
  br label %member
member:
  %local_id = phi i32 [ %first_id, %group ], [ %next, %member ]
  call void @{self.symbol}({words}, i32 %group_id, i32 %local_id, ptr %shared, ptr %barrier)
  %next = add i32 %local_id, 1
  %more = icmp slt i32 %next, %end_id
  br i1 %more, label %member, label %after
after:
  {WAIT if self.waits else ""}
  %next_group = add i32 %group_id, 1
  %again = icmp slt i32 %next_group, %groups
  br i1 %again, label %group, label %done
done:
  ret void
}}
@{self.symbol}.waits = constant i8 {int(self.waits)}
"""
        return f"{super().finish(attributes)}\n{loop}"


@cache
def target_machine() -> Any:
    from llvmlite import binding

    ctypes.CDLL("libgcc_s.so.1", ctypes.RTLD_GLOBAL)  # it rounds float64 to float16, for which there is no instruction
    host = host_machine()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(host.triple)
    # its code runs once or twice: the code generator that is quick to run is several times quicker altogether
    return target.create_target_machine(cpu=host.cpu, features=host.features, opt=0, reloc="pic", codemodel="small")


def generate(text: str) -> tuple[bytes, Mapping[str, str]]:
    """A relocatable object. Its code runs once or twice, so that most of it isn't worth optimising."""
    from llvmlite import binding

    machine = target_machine()
    layout = f'target datalayout = "{machine.target_data}"\n'
    with (
        parsed(layout + text) as module,
        binding.create_pipeline_tuning_options() as tuning,
        binding.create_pass_builder(machine, tuning) as builder,
        binding.create_new_module_pass_manager() as passes,
    ):
        passes.add_sroa_pass()
        passes.run(module, builder)
        return bytes(machine.emit_object(module)), {}


@cache
def update_code(conditional: bool = False) -> bytes:
    """The update kernel, as function k0. `conditional`: it tells its decisions as in a CUDA graph."""
    f = flavour()
    b = HostAssembler(f, "k0", UPDATE_GROUP)

    def set_condition(handle: Val, value: Val) -> None:
        b.call("cudaGraphSetConditional", handle, b.inst("UConvert", "i32", value))

    emit_update(b, set_condition if conditional else None)
    attributes = f"attributes #0 = {{ {f.attributes} }}"
    parts = [f'target triple = "{f.triple}"', b.finish(0), f.declarations, *b.declarations, attributes]
    return generate("\n".join([*parts, "!0 = !{}", ""]))[0]


def check_reads(program: Program) -> None:
    """Loads of what is only read may go through a cache that sees no stores: no launch writes what it so reads."""
    for step in all_steps(program.steps):
        if isinstance(step, LaunchStep):
            pairs = list(zip(step.slots, program.kernels[step.kernel].params, strict=True))
            read = {slot for slot, param in pairs if param.access == "read"}
            assert read.isdisjoint(slot for slot, param in pairs if param.access != "read"), step


def compile_program(program: Program, options: Options, warpgroups: bool = False) -> Artifact[ProgramRecord]:
    check_reads(program)
    image = LlvmImage(flavour(), generate, GROUP, HostAssembler, warpgroups=warpgroups)
    return compile_for(program, options, image)
