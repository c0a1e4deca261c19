"""LLVM IR text to one relocatable object.

Kernel text is already vector code in near-final form, so the pipeline only promotes stack slots, folds and
merges blocks; loop passes that matter (strength reduction, hoisting of invariants) run in the code
generator. Malformed input to the code generator ends the process, hence the verifier runs first. So does some vector
code (products of bytes, loops that begin with a constant bfloat16) in functions that LLVM isn't to optimise: `optnone`,
with which a small program takes half the time, is for scalar functions alone that all programs have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from loopgrad.codegen.targets.archive import joined, parted
from loopgrad.codegen.targets.cpu.common_functions import apart
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.pieces import pieces
from loopgrad.codegen.targets.llvm_modules import parsed
from loopgrad.codegen.targets.llvm_threads import Bench, compiled


@cache
def target_machine(machine: Machine) -> Any:
    """One LLVM target machine per Machine (made once, 2 ms)."""
    return new_target_machine(machine)


def new_target_machine(machine: Machine, level: int = 1) -> Any:
    """A target machine of one's own, which optimises so hard. At level 2 code would be as fast, and in most cases the
    same but for the order of instructions, which then are scheduled once more."""
    from llvmlite import binding  # late: heavy, and not needed where a compiled object is loaded from disk

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=level, reloc="pic", codemodel="small"
    )


def bench(target: Any, stack: ExitStack, combined: bool = True) -> Bench:
    """The passes, for this target machine; those that code which isn't optimised needs, where it isn't `combined`."""
    from llvmlite import binding  # late, as above

    tuning = stack.enter_context(binding.create_pipeline_tuning_options())
    builder = stack.enter_context(binding.create_pass_builder(target, tuning))
    passes = stack.enter_context(binding.create_new_module_pass_manager())
    passes.add_sroa_pass()
    if combined:
        passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_dead_code_elimination_pass()
    return Bench(target, passes, builder)


@contextmanager
def optimised(text: str, machine: Machine) -> Iterator[Any]:
    """The verified, optimised module."""
    with parsed(text) as module, ExitStack() as stack:
        _, passes, builder = bench(target_machine(machine), stack)
        passes.run(module, builder)
        yield module


def compile_module(text: str, machine: Machine) -> bytes:
    """The ELF (or Mach-O) object of a module."""
    with optimised(text, machine) as module:
        return bytes(target_machine(machine).emit_object(module))


def compile_side_by_side(
    text: str, machine: Machine, threads: int, common: Callable[[str], bytes] | None = None
) -> bytes:
    """The module as one object or a static library of several: so many threads compile the pieces of a long one, and
    `common` gives the objects of functions that other modules have, too."""
    others: list[str] = []
    if common is not None:
        text, others = apart(text)
    texts = pieces(text)
    if len(texts) == 1:
        objects = [compile_module(text, machine)]
    else:
        objects = compiled(texts, lambda stack: bench(new_target_machine(machine), stack), threads)
    if common is not None:
        objects += [one for other in others for one in parted(common(other))]
    return joined(objects)


def assembly(text: str, machine: Machine) -> str:
    """The machine code of a module, readable."""
    with optimised(text, machine) as module:
        return str(target_machine(machine).emit_assembly(module))
