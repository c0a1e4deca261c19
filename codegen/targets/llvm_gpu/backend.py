"""LLVM IR text to machine code of a GPU by LLVM's own pipeline and backend.

Malformed input to a code generator ends the process, hence the verifier runs first, and emission keeps to
intrinsics that each backend lowers without a library.
"""

from __future__ import annotations

from functools import cache
from typing import Any

LEVEL = 3


@cache
def target_machine(triple: str, cpu: str, features: str) -> Any:
    """One LLVM target machine per kind of GPU."""
    from llvmlite import binding  # late: heavy, and not needed where compiled code is loaded from disk

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=LEVEL, reloc="pic")


def optimised(text: str, machine: Any, unroll: bool = True) -> Any:
    """The verified, optimised module."""
    from llvmlite import binding  # late, as above

    layout = f'target datalayout = "{machine.target_data}"\n'
    module = binding.parse_assembly(layout + text)
    module.verify()
    tuning = binding.create_pipeline_tuning_options(speed_level=LEVEL)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    tuning.loop_unrolling = unroll
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module
