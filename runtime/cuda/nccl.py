"""Where NCCL is: the package nvidia-nccl-cu13 (or -cu12), or what the system has. `runtime/gpu/streams/collectives.py`
calls it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from loopgrad.runtime.gpu.streams.vendor import opened

NAME: Final = "NCCL"
FILE: Final = "libnccl.so.2"
PACKAGE: Final = "nvidia.nccl"


def load() -> Any | None:
    """The library, None where there is none."""
    places = [FILE]
    try:
        package = find_spec(PACKAGE)
    except ModuleNotFoundError:
        package = None
    if package is not None:
        places = [str(Path(folder, "lib", FILE)) for folder in package.submodule_search_locations or ()] + places
    return opened(places)
