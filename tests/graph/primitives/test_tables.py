from __future__ import annotations

from collections import Counter

from loopgrad.graph.primitives import FAMILIES, INFER, PRIMITIVES, REFERENCE


def test_every_primitive_is_in_one_family():
    counts = Counter(op for rows in FAMILIES.values() for op in rows)
    assert set(counts.values()) == {1}
    assert set(counts) == set(PRIMITIVES) == set(INFER)


def test_every_primitive_has_a_reference_or_is_run_by_the_interpreter():
    assert set(PRIMITIVES) - set(REFERENCE) == {"for", "while", "switch", "stack_new", "push", "pop"}
