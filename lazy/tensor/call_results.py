"""What a call of a function gave, where that is all that is to be computed: by a program that the call knows.

    x = lg.linalg.solve(a, b);  print(x)        a and b have elements: a run, and a look at what tests matrices

The tensors of a call are computed together, where they are small, and small operands before them. Where something is
computed of them before anybody asks for their elements, and what reads large operands without elements, takes the usual
way: in one program with what is around.

Circle: `lazy/tensor/evaluation.py` asks here first where a tensor came from a call, and has the usual way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from sys import getrefcount
from typing import TYPE_CHECKING, Final

from loopgrad.graph.nodes import NO_ATTRS, NODE, Noted, Value
from loopgrad.graph.types import TensorType, float64
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import Siblings, TensorCore, TensorLeaf, passing
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Found, Wanted, known_leaf
from loopgrad.lazy.tensor.liveness import COUNTED, Held
from loopgrad.runtime.buffers import Buffer

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.call_programs import CallProgram


MOST_FIRST: Final = 1 << 15  # bytes of an operand that is computed before the call


class CallResults(Siblings):
    """The tensors that a call gave, with these `values`, each of which so many operations of the call itself read.
    `program` makes that of some of them, by their positions; it takes the `operands`."""

    __slots__ = ("operands", "program", "read", "values")

    def __init__(
        self,
        tensors: Sequence[TensorCore],
        program: Callable[[tuple[int, ...]], CallProgram],
        operands: Sequence[Value],
        read: Sequence[int],
    ) -> None:
        super().__init__(tensors)
        self.read = read
        self.values = [t._value for t in tensors]
        self.program = program
        self.operands = operands

    def elements(self, t: TensorCore) -> Buffer | None:
        """Those of one of the tensors, whose value the caller doesn't refer to; None where more is to be looked at."""
        if not self._unread():
            return None
        leaves = [v if isinstance(v, TensorLeaf) else _leaf_of(v) for v in self.operands]
        if None in leaves or any(leaf.committed for leaf in leaves):  # type: ignore[union-attr]
            return None
        value = t._value
        held = self._held()
        if held is None:
            return None
        values = [v for _, v in held]
        mine = EVALUATOR.claim_all(values)
        if mine is None:
            return EVALUATOR.claimed((t,), _usual_way()).get(value)
        try:
            if self._held() is None:  # another thread was first, or wrote to one
                return None
            kept = tuple([i for i, v in enumerate(self.values) if v in values])
            made = self.program(kept).run(leaves, current())  # type: ignore[arg-type]
            (first, v), *along = held
            EVALUATOR.settle_line(first, v, along, made)
            return made[values.index(value)]
        finally:
            EVALUATOR.release(values[0], mine, values[1:])

    def _unread(self) -> bool:
        """Whether nothing refers to the values but their nodes, and the tensors that the call gave: nothing was
        computed of them yet that somebody may ask for."""
        if not COUNTED:
            return False
        counted = map(getrefcount, self.values)
        for value, member, seen, read in zip(self.values, self.members, counted, self.read, strict=True):
            t = member()
            alone = LISTED + read + (type(value) is not Noted or len(value.note) > NODE)
            if t is not None and t._value is value:
                alone += 1 if t._view is None else 1 + t._view.refers_to(value)
            if seen != alone:
                return False
        return True

    def _held(self) -> list[Held] | None:
        """The living tensors, as the call gave them; None where some are others, or more is to be computed along."""
        found: list[Held] = []
        for value, member in zip(self.values, self.members, strict=True):
            t = member()
            if t is None:
                continue
            if t._value is not value or t._history is not self or (t._view is not None and t._view.waits):
                return None
            found.append((t, value))
        return found


def _listed() -> int:
    """What `getrefcount` gives, as it is asked above, for a value that nobody else refers to."""
    values = [Noted(TensorType((), float64), "alias", (), NO_ATTRS, None)]
    seen = [n for value, _, n, _ in zip(values, [None], map(getrefcount, values), [0], strict=True)]
    return seen[0]


LISTED: Final = _listed()


def _leaf_of(operand: Value) -> TensorLeaf | None:
    """The leaf with the elements of an operand, which are computed now where they are few."""
    leaf = known_leaf(operand)
    if leaf is None and type(operand) is Noted and operand.type.nbytes <= MOST_FIRST:  # type: ignore[union-attr]
        leaf = _of_known_line()(operand)
        if leaf is not None:
            return leaf
        t = passing(operand)
        _elements()(t)
        leaf = known_leaf(operand)
    return leaf


@cache
def _of_known_line() -> Callable[[Noted], TensorLeaf | None]:
    from loopgrad.lazy.tensor.read_lines import leaf_of_read  # late: building graphs needs no session

    return leaf_of_read


@cache
def _elements() -> Callable[[TensorCore], Buffer]:
    from loopgrad.lazy.tensor.evaluation import buffer_of  # late: see the circle above

    return buffer_of


@cache
def _usual_way() -> Callable[[Wanted], Found]:
    from loopgrad.lazy.tensor.evaluation import settled  # late: see the circle above

    return settled
