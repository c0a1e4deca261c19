"""LLVM IR text to one relocatable object.

Kernel text is already vector code in near-final form, so the pipeline only promotes stack slots, folds and
merges blocks; loop passes that matter (strength reduction, hoisting of invariants) run in the code
generator. Of programs that compute little it is told to optimise no function (`quick`): it then selects instructions
one by one and leaves out most passes, but keeps values in registers as always, and takes half the time. Malformed input
to the code generator ends the process, hence the verifier runs first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Final

from loopgrad.codegen.targets.archive import joined, parted
from loopgrad.codegen.targets.cpu.common_functions import apart
from loopgrad.codegen.targets.cpu.features import Machine
from loopgrad.codegen.targets.cpu.pieces import pieces
from loopgrad.codegen.targets.llvm_modules import parsed
from loopgrad.codegen.targets.llvm_threads import Bench, compiled

SELECTED_COMBINED: Final = " bfloat "
"""In text whose instructions must be combined before they are selected: a loop that begins with a constant of this type
ends LLVM's selection, which knows no such constant, and the process with it."""


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
def optimised(text: str, machine: Machine, quick: bool = False) -> Iterator[Any]:
    """The verified module, optimised or to be compiled quickly."""
    with parsed(text) as module, ExitStack() as stack:
        target = target_machine(machine)
        _, passes, builder = bench(target, stack, combined=not quick or SELECTED_COMBINED in text)
        passes.run(module, builder)
        for function in module.functions if quick else ():
            if not function.is_declaration:
                function.add_function_attribute("noinline")  # which the other one asks for
                function.add_function_attribute("optnone")
        yield module


def compile_module(text: str, machine: Machine, quick: bool = False) -> bytes:
    """The ELF (or Mach-O) object of a module."""
    with optimised(text, machine, quick) as module:
        return bytes(target_machine(machine).emit_object(module))


def compile_side_by_side(
    text: str, machine: Machine, threads: int, common: Callable[[str], bytes] | None = None, quick: bool = False
) -> bytes:
    """The module as one object or a static library of several: so many threads compile the pieces of a long one, and
    `common` gives the objects of functions that other modules have, too."""
    others: list[str] = []
    if common is not None:
        text, others = apart(text)
    texts = [text] if quick else pieces(text)
    if len(texts) == 1:
        objects = [compile_module(text, machine, quick)]
    else:
        objects = compiled(texts, lambda stack: bench(new_target_machine(machine), stack), threads)
    if common is not None:
        objects += [one for other in others for one in parted(common(other))]
    return joined(objects)


def assembly(text: str, machine: Machine, quick: bool = False) -> str:
    """The machine code of a module, readable."""
    with optimised(text, machine, quick) as module:
        return str(target_machine(machine).emit_assembly(module))
