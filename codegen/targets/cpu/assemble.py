"""LLVM IR text -> the bytes of one relocatable object for the machine that runs this.

The text is verified before anything is emitted: the code generator of LLVM ends the process on
malformed input instead of raising.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llvmlite import binding

_lock = threading.Lock()
_machine: Any = None


def target_machine() -> binding.TargetMachine:
    """LLVM's view of this machine, made once."""
    global _machine
    with _lock:
        if _machine is None:
            from llvmlite import binding  # late: scripts that find everything in the cache don't pay

            binding.initialize_native_target()
            binding.initialize_native_asmprinter()
            _machine = binding.Target.from_default_triple().create_target_machine(
                cpu=binding.get_host_cpu_name(),
                features=binding.get_host_cpu_features().flatten(),
                opt=2,
                reloc="pic",
                codemodel="small",
            )
        return _machine


def assemble(text: str, level: int = 2) -> bytes:
    """Parse, verify, optimise at `level`, emit."""
    module = _optimised(text, level)
    code: bytes = target_machine().emit_object(module)
    return code


def assembly(text: str, level: int = 2) -> str:
    """The same as assembly text, for people."""
    listing: str = target_machine().emit_assembly(_optimised(text, level))
    return listing


def _optimised(text: str, level: int) -> binding.ModuleRef:
    from llvmlite import binding  # late, as above

    machine = target_machine()
    module = binding.parse_assembly(text)
    module.verify()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(level))
    builder.getModulePassManager().run(module, builder)
    return module
