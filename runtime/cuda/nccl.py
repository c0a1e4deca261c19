"""Where NCCL is: the package nvidia-nccl-cu13 (or -cu12), or what the system has. `runtime/gpu/streams/collectives.py`
calls it.

Of collectives in a CUDA graph NCCL may note where other processes' arrays were when it was captured, which its manual
allows where all processes capture, and replay, the same. Ours each choose for themselves what to start again, by the
addresses that they come back to, so NCCL is told not to, unless the user says otherwise.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from loopgrad.runtime.gpu.streams.vendor import opened

NAME: Final = "NCCL"
FILE: Final = "libnccl.so.2"
PACKAGE: Final = "nvidia.nccl"
REGISTERS: Final = "NCCL_GRAPH_REGISTER"


def load() -> Any | None:
    """The library, None where there is none."""
    os.environ.setdefault(REGISTERS, "0")
    places = [FILE]
    try:
        package = find_spec(PACKAGE)
    except ModuleNotFoundError:
        package = None
    if package is not None:
        places = [str(Path(folder, "lib", FILE)) for folder in package.submodule_search_locations or ()] + places
    return opened(places)
