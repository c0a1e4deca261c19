"""Derivations under way, and which values they follow.

A transform calls the user's function on variables: aliases of the arguments. Until that call returns, a value that
depends on a variable must stay a tensor: as a number of Python's or NumPy's it would be a constant, and its part of the
derivative would be lost. Variables are known to all threads, since a function may hand its values to another one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from loopgrad.graph.nodes import Value
from loopgrad.lazy.tensor.evaluator import known_leaf


class _Calls(threading.local):
    """This thread's calls of users' functions: how deep, how many of them for a derivative, what the innermost
    `lg.compile` has read, and values that were seen not to depend on a variable (a later variable doesn't change
    that)."""

    def __init__(self) -> None:
        self.depth = 0
        self.orders = 0
        self.reads: list[Value] | None = None
        self.apart: set[Value] = set()


_calls = _Calls()
_variables: dict[Value, None] = {}
UNDER_WAY: Final[set[object]] = set()
"""The derivations of all threads: where there is none, nobody notes what is read and none follows a value. (Who
evaluates a line has to know that, and a look at a thread's own data costs as much as half an operation.)"""


@contextmanager
def derivation(variables: Sequence[Value] = (), reads: list[Value] | None = None) -> Iterator[None]:
    """While a function is called to be differentiated by `variables`, batched, or traced as a graph. What it reads of
    evaluated tensors is added to `reads`."""
    outer, this = _calls.reads, object()
    UNDER_WAY.add(this)
    _calls.depth += 1
    _calls.orders += bool(variables)
    _calls.reads = outer if reads is None else reads
    _variables.update(dict.fromkeys(variables))
    try:
        yield
    finally:
        for v in variables:
            _variables.pop(v, None)
        _calls.reads = outer
        _calls.orders -= bool(variables)
        _calls.depth -= 1
        UNDER_WAY.discard(this)
        if not _calls.depth:
            _calls.apart.clear()


@contextmanager
def reading() -> Iterator[list[Value]]:
    """The values of evaluated tensors, and of those that this evaluates, whose elements are asked for in the block."""
    outer, this = _calls.reads, object()
    found: list[Value] = []
    UNDER_WAY.add(this)
    _calls.reads = found
    try:
        yield found
    finally:
        _calls.reads = outer
        UNDER_WAY.discard(this)
        note_reads(found)


def derivations() -> int:
    """How many calls of users' functions for a derivative are under way in this thread, inside each other."""
    return _calls.orders


def deriving() -> bool:
    """Whether some transform is calling the user's function now."""
    return _calls.depth > 0


def note_reads(values: Sequence[Value]) -> None:
    """Elements of these are asked for while a program may be traced, which then depends on them."""
    if _calls.reads is not None:
        _calls.reads.extend(values)


def followed(value: Value) -> bool:
    """Whether a derivation under way follows `value`: it depends on a variable along a path on which a derivative
    may differ from zero. Bools, integers, `floor` and `stop_gradient` end such a path."""
    if not _variables:
        return False
    from loopgrad.autodiff.activity import active_results, differentiable  # late: whoever differentiates has it
    from loopgrad.autodiff.rules import NONDIFFERENTIABLE  # late: as above

    apart = _calls.apart if _calls.depth else set()
    reached: set[Value] = set()
    pending = [value]
    while pending:
        v = pending[-1]
        node = v.node
        if v in apart or v in reached:
            pending.pop()
        elif v in _variables:
            reached.add(pending.pop())
        elif node is None or node.op in NONDIFFERENTIABLE or not differentiable(v.type) or known_leaf(v) is not None:
            apart.add(pending.pop())
        elif unseen := [u for u in node.operands if u not in apart and u not in reached]:
            pending += unseen
        else:
            flags = [u in reached for u in node.operands]
            found = any(flags) and (not node.regions or active_results(node, flags)[v.index])
            (reached if found else apart).add(pending.pop())
    return value in reached


def from_variables(values: Sequence[Value]) -> bool:
    """Whether any of `values` is computed from a variable, along any path: what lies on the way to it must keep its
    graph, in every thread."""
    if not _variables:
        return False
    seen: set[Value] = set()
    pending = list(values)
    while pending:
        v = pending.pop()
        if v in _variables:
            return True
        if v not in seen:
            seen.add(v)
            if v.node is not None and known_leaf(v) is None:
                pending.extend(v.node.operands)
    return False
