"""What a target makes of a Program: machine code and everything the runtime must know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Artifact(Generic[R]):
    """`program` is the target's record of it, which codegen.codec can write; `constants` and `code` are bytes, so an
    artifact can be stored without pickling. `texts` holds the stages for people, which aren't stored."""

    program: R
    constants: bytes
    code: bytes
    texts: Mapping[str, str] = field(default_factory=dict)
