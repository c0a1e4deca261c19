"""LLVM IR text to machine code of a GPU by LLVM's own pipeline and backend.

Malformed input to a code generator ends the process, hence the verifier runs first, and emission keeps to
intrinsics that each backend lowers without a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from loopgrad.codegen.targets.llvm_modules import parsed
from loopgrad.codegen.targets.llvm_threads import Bench

LEVEL = 3


@cache
def target_machine(triple: str, cpu: str, features: str) -> Any:
    """One LLVM target machine per kind of GPU."""
    return new_target_machine(triple, cpu, features)


def new_target_machine(triple: str, cpu: str, features: str) -> Any:
    from llvmlite import binding  # late: heavy, and not needed where compiled code is loaded from disk

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=LEVEL, reloc="pic")


@contextmanager
def optimised(text: str, machine: Any, unroll: bool = True) -> Iterator[Any]:
    """The verified, optimised module."""
    with parsed(with_layout(text, machine)) as module:
        with ExitStack() as stack:
            _, passes, builder = bench(machine, stack, unroll)
            passes.run(module, builder)
        yield module


def with_layout(text: str, machine: Any) -> str:
    """A module as LLVM's passes need it."""
    return f'target datalayout = "{machine.target_data}"\n{text}'


def bench(machine: Any, stack: ExitStack, unroll: bool = True) -> Bench:
    """The passes, for this target machine."""
    from llvmlite import binding  # late, as above

    tuning = stack.enter_context(binding.create_pipeline_tuning_options(speed_level=LEVEL))
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_unrolling = unroll
    builder = stack.enter_context(binding.create_pass_builder(machine, tuning))
    return Bench(machine, stack.enter_context(builder.getModulePassManager()), builder)
