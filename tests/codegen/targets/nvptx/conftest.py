"""Makes the test support modules importable by name; kernels are written as for the CPU."""

import importlib.util
import sys
from pathlib import Path

_here = Path(__file__).parent
for _name, _path in {
    "kernel_build": _here.parent / "cpu" / "kernel_build.py",
    "random_kernels": _here.parents[1] / "kernel" / "random_kernels.py",
    "gpu_harness": _here.parent / "gpu" / "gpu_harness.py",
    "every_operation": _here.parent / "gpu" / "every_operation.py",
}.items():
    if _name not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_name, _path)
        sys.modules[_name] = _module = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(_module)
