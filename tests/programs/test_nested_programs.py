"""Failing programs are made smaller before they are printed."""

from __future__ import annotations

from dataclasses import dataclass

from nested_programs import Block, Nested, failure, minimal, statements


@dataclass(frozen=True)
class Program(Nested):
    block: Block


def check(program: Program, device: str, ways: object) -> int:
    names = [statement[0] for statement in statements(program.block)]
    if "wrong" in names:
        raise ValueError(f"wrong in {device}")
    if "slow" not in names:
        raise TypeError("of another kind")
    return 1


def test_the_smallest_program_that_fails_alike():
    program = Program((("slow",), ("for", 3, (("fine",), ("if", (("wrong", 1), ("fine",)), (("fine",),)))), ("fine",)))
    found, error = minimal(program, lambda p: failure(p, check, "cpu", None), seconds=60.0)
    assert found.block == (("wrong", 1),)
    assert error == "ValueError: wrong in cpu"
    assert failure(Program((("slow",),)), check, "cpu", None) == ""
