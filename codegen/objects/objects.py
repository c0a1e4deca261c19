"""What is written of one program: pieces of code, constants, and JSON-able descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Objects:
    """`images`: pieces of code by name, without suffix. `kernels`: a description of each; its "code" is the name
    of an image. `program`: slots, constants and steps."""

    images: Mapping[str, bytes]
    constants: bytes
    kernels: tuple[dict[str, Any], ...]
    program: dict[str, Any]
