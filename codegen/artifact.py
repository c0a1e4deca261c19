"""What a target makes of a Program: machine code and everything the runtime must know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")


class StageTexts(Mapping[str, str]):
    """Texts that are written when somebody looks at them, by stage: compiling needs few of them."""

    def __init__(self, written: Mapping[str, Callable[[], str]]) -> None:
        self._written = written

    def __getitem__(self, stage: str) -> str:
        return self._written[stage]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._written)

    def __len__(self) -> int:
        return len(self._written)


@dataclass(frozen=True, slots=True)
class Artifact(Generic[R]):
    """`program` is the target's record of it, which codegen.codec can write; `constants` and `code` are bytes, so an
    artifact can be stored without pickling. `texts` holds the stages for people, which aren't stored."""

    program: R
    constants: bytes
    code: bytes
    texts: Mapping[str, str] = field(default_factory=dict)
