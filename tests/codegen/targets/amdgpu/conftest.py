"""Makes the test support modules importable by name."""

import importlib.util
import sys
from pathlib import Path

_here = Path(__file__).parent
for _name, _path in {
    "amdgpu_objects": _here / "amdgpu_objects.py",
    "kernel_build": _here.parent / "cpu" / "kernel_build.py",
    "gpu_harness": _here.parent / "gpu" / "gpu_harness.py",
    "every_operation": _here.parent / "gpu" / "every_operation.py",
}.items():
    if _name not in sys.modules:
        _spec = importlib.util.spec_from_file_location(_name, _path)
        sys.modules[_name] = _module = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(_module)
