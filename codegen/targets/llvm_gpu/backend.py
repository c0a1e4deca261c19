"""LLVM IR text to machine code of a GPU by LLVM's own pipeline and backend.

Malformed input to a code generator ends the process, hence the verifier runs first, and emission keeps to
intrinsics that each backend lowers without a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from loopgrad.codegen.targets.llvm_modules import parsed

LEVEL = 3


@cache
def target_machine(triple: str, cpu: str, features: str) -> Any:
    """One LLVM target machine per kind of GPU."""
    from llvmlite import binding  # late: heavy, and not needed where compiled code is loaded from disk

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=LEVEL, reloc="pic")


@contextmanager
def optimised(text: str, machine: Any, unroll: bool = True) -> Iterator[Any]:
    """The verified, optimised module."""
    from llvmlite import binding  # late, as above

    layout = f'target datalayout = "{machine.target_data}"\n'
    with parsed(layout + text) as module, binding.create_pipeline_tuning_options(speed_level=LEVEL) as tuning:
        tuning.loop_vectorization = tuning.slp_vectorization = False
        tuning.loop_unrolling = unroll
        with binding.create_pass_builder(machine, tuning) as builder, builder.getModulePassManager() as passes:
            passes.run(module, builder)
        yield module
