"""What a target makes of a Program: machine code and everything the runtime must know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Artifact:
    """`metadata` is JSON-able; `constants` and `code` are bytes, so an artifact can be stored without
    pickling. `texts` holds the stages for people, which aren't stored."""

    metadata: Mapping[str, Any]
    constants: bytes
    code: bytes
    texts: Mapping[str, str] = field(default_factory=dict)
