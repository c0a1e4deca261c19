"""Makes the test support modules of this folder importable by name."""

import importlib.util
import sys
from pathlib import Path

for _name in ("cpu_harness", "kernel_build"):
    if _name not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_name}.py"))
        sys.modules[_name] = _module = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(_module)
