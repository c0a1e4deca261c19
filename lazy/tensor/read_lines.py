"""Lines whose value other values read, before a call that needs its elements: known by words, as others are.

    lg.linalg.solve(a.T @ a, a.T @ b)      both operands are computed first, the third time each by a look-up and a call

What is computed so is noted for who reads the value (`Value.known`), since a tensor may hold it or not.
"""

from __future__ import annotations

from sys import getrefcount

from loopgrad.graph.nodes import Leaf, Noted
from loopgrad.graph.structure import noted_structure
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import TensorLeaf
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Computed, known_leaf
from loopgrad.lazy.tensor.line_programs import run_anew, run_line
from loopgrad.lazy.tensor.repeated_lines import SETTINGS


def leaf_of_read(value: Noted) -> TensorLeaf | None:
    """The leaf of a value whose line is known and computes nothing that somebody else needs; None elsewhere."""
    found = noted_structure(value, known_leaf)
    if found is None:
        return None
    words, numbers, leaves, inner = found
    lines = SETTINGS.of(current())
    if words not in lines.known:
        lines.note(words)
        return None
    line = lines.line(value, found)
    if line is None or [*map(getrefcount, inner)] != line.counts or not all(map(_is_plain, leaves)):
        return None
    mine = EVALUATOR.claim(value)
    if mine is None:
        return None
    try:
        constants = tuple([numbers[i] for i in line.numbers])
        buffers = run_line(line, [leaves[i] for i in line.inputs], constants, lines)
        if buffers is None:  # nobody has asked the session for it
            buffers = run_anew((value,), lines)
        EVALUATOR.settle((), [value], Computed({value: buffers[0]}, (), 0))
        return known_leaf(value)
    finally:
        EVALUATOR.release(value, mine)


def _is_plain(leaf: Leaf) -> bool:
    """Whether a leaf is on no device that the user chose, and was noted for no tensor that waits, which is counted
    (`lazy.tensor.liveness`)."""
    assert isinstance(leaf, TensorLeaf)
    return not leaf.committed and not (leaf.computed and leaf.history is None)
