"""What a call of a function gave, where that is all that is to be computed: by a program that the call knows.

    x = lg.linalg.solve(a, b);  print(x)        a and b have elements: a run, and a look at what tests matrices

The tensors of a call are computed together, where they are small, and small operands before them. What is computed of
them before anybody asks for their elements, and what reads large operands without elements, takes the usual way: in one
program with what is around.

Circle: `lazy/tensor/evaluation.py` asks here first where a tensor came from a call, and has the usual way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from loopgrad.graph.nodes import Noted, Value
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import Siblings, TensorCore, TensorLeaf, passing
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Computed, Found, Wanted, known_leaf
from loopgrad.runtime.buffers import Buffer

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.call_programs import CallProgram


MOST_FIRST: Final = 1 << 12  # bytes of an operand that is computed before the call


class CallResults(Siblings):
    """The tensors that a call gave, whose program is made by `program`, and the values of its `operands`."""

    __slots__ = ("operands", "program")

    def __init__(
        self, tensors: Sequence[TensorCore], program: Callable[[], CallProgram], operands: Sequence[Value]
    ) -> None:
        super().__init__(tensors)
        self.program = program
        self.operands = operands

    def elements(self, t: TensorCore) -> Buffer | None:
        """Those of one of the tensors; None where more is to be looked at."""
        value = t._value
        leaves = [v if isinstance(v, TensorLeaf) else _leaf_of(v) for v in self.operands]
        if None in leaves or any(leaf.committed for leaf in leaves):  # type: ignore[union-attr]
            return None

        def computed(wanted: Wanted) -> Found:
            found = [wanted.get(id(member())) for member in self.members]
            members = [each for each in found if each is not None and each[0]._history is self]
            if not len(members) == len(self.members) == len(wanted):
                return _usual_way()(wanted)
            buffers = dict(zip([v for _, v in members], self.program().run(leaves, current()), strict=True))  # type: ignore[arg-type]
            EVALUATOR.settle(members, (), Computed(buffers, (), 0))
            return buffers

        return EVALUATOR.claimed((t,), computed).get(value)


def _leaf_of(operand: Value) -> TensorLeaf | None:
    """The leaf with the elements of an operand, which are computed now where they are few."""
    leaf = known_leaf(operand)
    if leaf is None and type(operand) is Noted and operand.type.nbytes <= MOST_FIRST:  # type: ignore[union-attr]
        t = passing(operand)
        _elements()(t)
        leaf = known_leaf(operand)
    return leaf


@cache
def _elements() -> Callable[[TensorCore], Buffer]:
    from loopgrad.lazy.tensor.evaluation import buffer_of  # late: see the circle above

    return buffer_of


@cache
def _usual_way() -> Callable[[Wanted], Found]:
    from loopgrad.lazy.tensor.evaluation import settled  # late: see the circle above

    return settled
