"""Tensors that were noted alike and are asked for one after the other, as `np.array` of a list of them does: after a
few all that wait are computed as one array.

    np.array([2.0 * x[i] for i in range(1000)])      the sixth that is asked for brings the other 994 along

Only small elementwise values on the host, which can't fail, are computed for who hasn't asked: to the same bits.
"""

from __future__ import annotations

from typing import Final

from loopgrad.graph.expressions import OPAQUE, Expression, expression_of
from loopgrad.graph.nodes import Leaf, Noted, Value
from loopgrad.graph.noted_lists import noted_rows
from loopgrad.graph.passes.alike import MANY
from loopgrad.graph.types import TensorType
from loopgrad.lazy.tensor.config import current
from loopgrad.lazy.tensor.core import LIVE, TensorCore, TensorLeaf, array_leaf, few_elements
from loopgrad.lazy.tensor.evaluator import EVALUATOR, Computed, known_leaf
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.devices import HOST_KINDS, get_device
from loopgrad.runtime.rare_collection import RARE_COLLECTION
from loopgrad.runtime.session import evaluate_graph

FIRST: Final = 5  # evaluations of one expression in a row, before others that wait are looked for
MORE: Final = 4  # times as many until the next look
MOST_BYTES: Final = 1 << 10  # of one value


class _InARow:
    """The expression that was evaluated last, how often in a row, and when others are looked for. Threads may disturb
    each other's counts, which say no more than when it may be worth while to look."""

    def __init__(self) -> None:
        self.expression: Expression = OPAQUE
        self.count = 0
        self.next = FIRST

    def begin(self, expression: Expression) -> None:
        """The first evaluation of another one."""
        self.expression, self.count, self.next = expression, 0, FIRST

    def again(self, expression: Expression) -> bool:
        """One more evaluation; whether to look for others."""
        if self.expression is not expression:
            self.begin(expression)
            return False
        self.count = count = self.count + 1
        if count < self.next:
            return False
        self.next = MORE * count
        return True


IN_A_ROW: Final = _InARow()


def computed_in_a_row(expression: Expression, t: TensorCore, value: Noted) -> Buffer | None:
    """As `computed_together`, of the latest of tensors that come in a row, where it is time to look for others."""
    return computed_together(t, value, expression) if IN_A_ROW.again(expression) else None


@RARE_COLLECTION
def computed_together(t: TensorCore, value: Noted, expression: Expression) -> Buffer | None:
    """The elements of a tensor, which becomes a leaf, as all do that wait with the same expression; None where those
    aren't many, or make no array."""
    config, type = current(), value.type
    device = get_device(config.device)
    if device.kind not in HOST_KINDS or not isinstance(type, TensorType) or type.nbytes > MOST_BYTES:
        return None
    waiting = _waiting(t, value, expression)
    found = noted_rows([v for _, v in waiting], known_leaf, few_elements) if len(waiting) >= MANY else None
    if found is None:
        return None
    if TensorLeaf.any_committed and any(isinstance(x, TensorLeaf) and x.committed for x in found.given):
        return None
    mine = EVALUATOR.claim(value)
    if mine is None:
        return None
    more = EVALUATOR.claim_too([v for _, v in waiting], mine)
    try:
        if t._value is not value:
            return None
        leaves = [x if isinstance(x, Leaf) else array_leaf(x, copy=False) for x in found.given]
        (buffer,) = evaluate_graph(found.graph, leaves, config.device, config.options)
        rows = buffer.array.reshape(len(waiting), *type.shape)
        each = [Buffer(rows[i, ...], device.name, type) for i in range(len(waiting))]
        outputs: dict[Value, Buffer] = {v: b for (_, v), b in zip(waiting, each, strict=True) if v in more}
        EVALUATOR.settle([(other, v) for other, v in waiting if v in more], (), Computed(outputs, (), 0))
        IN_A_ROW.count, IN_A_ROW.next = 0, FIRST  # the next list is looked for as soon as this one was
        return each[0]
    finally:
        EVALUATOR.release(value, mine, more)


def _waiting(t: TensorCore, value: Noted, expression: Expression) -> list[tuple[TensorCore, Noted]]:
    """The tensors of this thread that wait with that expression, this one first, each value once."""
    op, type_ = value.note[0], value.type
    found: dict[Noted, TensorCore] = {value: t}
    live = LIVE.tensors
    live[:] = [reference for reference in live if reference() is not None]  # the next look sees what came since
    for reference in live:
        other = reference()
        if other is None or other._view is not None or other._history is not None:
            continue
        v = other._value
        if type(v) is not Noted or v.known is not None or v.note[0] != op or v.type != type_:
            continue
        if expression_of(v) is expression:
            found.setdefault(v, other)
    return [(other, v) for v, other in found.items()]
