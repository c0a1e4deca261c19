"""LLVM IR text to one relocatable object.

Kernel text is already vector code in near-final form, so the pipeline only promotes stack slots, folds and
merges blocks; loop passes that matter (strength reduction, hoisting of invariants) run in the code
generator. Malformed input to the code generator ends the process, hence the verifier runs first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.llvm_modules import parsed


@cache
def target_machine(machine: Machine) -> Any:
    """One LLVM target machine per Machine (made once, 2 ms)."""
    from llvmlite import binding  # late: heavy, and not needed where a compiled object is loaded from disk

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="small"
    )


@contextmanager
def optimised(text: str, machine: Machine) -> Iterator[Any]:
    """The verified, optimised module."""
    from llvmlite import binding  # late, as above

    tm = target_machine(machine)
    with (
        parsed(text) as module,
        binding.create_new_module_pass_manager() as passes,
        binding.create_pipeline_tuning_options() as tuning,
        binding.create_pass_builder(tm, tuning) as builder,
    ):
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.add_dead_code_elimination_pass()
        passes.run(module, builder)
        yield module


def compile_module(text: str, machine: Machine) -> bytes:
    """The ELF (or Mach-O) object of a module."""
    with optimised(text, machine) as module:
        return bytes(target_machine(machine).emit_object(module))


def assembly(text: str, machine: Machine) -> str:
    """The machine code of a module, readable."""
    with optimised(text, machine) as module:
        return str(target_machine(machine).emit_assembly(module))
