"""`lg.gradients`: derivatives of what has been computed already, without naming a function.

Evaluating a tensor cuts its graph off: later nodes refer to the elements. Here the cut is undone
wherever what was evaluated still leads to one of the `xs`, so that printing a value never changes a
gradient. Where the way is lost (the evaluated tensor is gone, or a compiled function made it) and might
have led to one of the `xs`, HistoryError is raised: never a gradient with a part missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.build import current_scope, emit, inline
from loopgrad.graph.cached_property import cached_property
from loopgrad.graph.errors import GradientError, explained
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Graph, Leaf, Value
from loopgrad.lazy.tensor.core import TensorCore, TensorLeaf, computed_as, wrap
from loopgrad.lazy.tensor.errors import HistoryError

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "gradients"


def gradients(loss: Any, xs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of a scalar tensor with respect to float tensors that it was computed from; lazy.

    One tensor for each of `xs`, of its shape and dtype; zeros where the loss doesn't depend on it. What was evaluated
    on the way changes nothing.

    Raises GradientError for a loss that isn't one float or an x that isn't a float tensor, HistoryError where a tensor
    between loss and xs is gone or came from a compiled function.

    >>> x = lg.asarray([1.0, 2.0])
    >>> lg.gradients(lg.sum(x**2), [x])
    [Tensor([2., 4.], dtype=float64)]
    """
    if isinstance(xs, TensorCore):
        fix = "write lg.gradients(loss, [x])"
        raise GradientError(explained("gradients", "a list of tensors", "one tensor", fix))
    value = _scalar(loss)
    for position, x in enumerate(xs):
        if not isinstance(x, TensorCore) or not x._value.dtype.differentiable:
            got = x._value.type if isinstance(x, TensorCore) else type(x).__name__
            fix = "compute the loss from a float tensor"
            raise GradientError(explained("gradients", f"a float tensor at xs[{position}]", got, fix))
        if x._value.scope is not current_scope():
            fix = "pass it to the function as an argument (or through the carry), or use lg.grad"
            seen = "one made outside: what else was computed from it there is out of sight"
            expected = f"at xs[{position}] a tensor of the function being traced"
            raise GradientError(explained("gradients", expected, seen, fix))
    if _nested(xs):  # a gradient passes through the other xs, it doesn't end there
        return [_independent(value, [x])[0] for x in xs]
    return _independent(value, xs)


def _independent(loss: Value, xs: Sequence[Tensor]) -> list[Tensor]:
    output, aliases = _Rejoining(xs).rejoined(loss)
    found = vjp_emit([output], [ops.ones_like(output)], aliases)
    return [wrap(ops.zeros_like(a) if g is None else g) for a, g in zip(aliases, found, strict=True)]


def _nested(xs: Sequence[Tensor]) -> bool:
    """Whether one of the xs was computed from another."""
    for i, x in enumerate(xs):
        value = computed_as(x)
        others = [y for j, y in enumerate(xs) if j != i and computed_as(y) is not value]
        if others and not isinstance(value, Leaf) and _Rejoining(others).leads_to_x(value):
            return True
    return False


def _scalar(loss: Any) -> Value:
    if not isinstance(loss, TensorCore) or loss._value.shape or not loss._value.dtype.differentiable:
        got = loss._value.type if isinstance(loss, TensorCore) else type(loss).__name__
        fix = "reduce it with lg.sum or lg.mean"
        raise GradientError(explained("gradients", "a scalar float loss", got, fix))
    return computed_as(loss)


class _Rejoining:
    """Puts the graphs of evaluated tensors back in place of their leaves."""

    def __init__(self, xs: Sequence[Tensor]) -> None:
        values = [x._value for x in xs]  # once: another thread may be evaluating them
        self.aliases = [emit("alias", (value,))[0] for value in values]
        self.bounds: dict[Value, Value] = {}  # what stands for an x in some graph -> its alias
        for x, value, alias in zip(xs, values, self.aliases, strict=True):
            self.bounds.setdefault(value, alias)
            self.bounds.setdefault(computed_as(x), alias)
        # whoever passes the same tensor twice gets the gradient in both places
        self.aliases = [self.bounds[value] for value in values]
        self.xs = xs
        self._leads: dict[Value, bool] = {}

    @cached_property
    def oldest(self) -> int:
        """The age of the oldest x. Finding it walks all that the xs were computed from, so only who needs it asks."""
        return min([_age(x) for x in self.xs], default=0)

    def rejoined(self, output: Value) -> tuple[Value, list[Value]]:
        """The output as a function of the aliases."""
        if output in self.bounds:
            return self.bounds[output], self.aliases
        stops = list(self.bounds)
        replaced = dict(self.bounds)
        while True:
            graph = extract([output], stops)
            histories = {v: h for v in graph.inputs[len(stops) :] if (h := self._history_to_x(v)) is not None}
            arguments = [replaced.get(v, histories.get(v, v)) for v in graph.inputs]
            (output,) = inline(graph, arguments, replacing=True)
            if not histories:
                return output, self.aliases
            stops = list(dict.fromkeys([*self.bounds, *self.aliases]))
            replaced = {**self.bounds, **{a: a for a in self.aliases}}

    def _history_to_x(self, leaf: Value) -> Value | None:
        """What the leaf was computed as, where that depends on an x."""
        if not isinstance(leaf, TensorLeaf) or not leaf.computed:
            return None
        history = leaf.history() if leaf.history is not None else None
        if history is None:
            if leaf.serial > self.oldest:
                raise _lost(leaf)
            return None
        return history.value if self.leads_to_x(history.value) else None

    def leads_to_x(self, value: Value) -> bool:
        """Whether a value was computed from one of the xs, evaluations in between included."""
        known = self._leads.get(value)
        if known is None:
            self._leads[value] = False  # histories form no cycle; this only ends repeated visits
            graph = extract([value], list(self.bounds))
            further = [self._history_to_x(v) for v in graph.inputs[len(self.bounds) :]]
            known = bool(_used(graph) & set(self.bounds)) or any(h is not None for h in further)
            self._leads[value] = known
        return known


def _used(graph: Graph) -> set[Value]:
    return {v for node in graph.nodes for v in node.operands} | set(graph.outputs)


def _age(x: Tensor) -> int:
    """A serial number that is at most the time when x was made: leaves evaluated before don't depend on it."""
    value = x._value
    if isinstance(value, TensorLeaf) and not value.computed:
        return value.serial
    serials = [v.serial for v in extract([computed_as(x)]).inputs if isinstance(v, TensorLeaf)]
    return max(serials, default=-1)


def _lost(leaf: Leaf) -> HistoryError:
    fix = (
        "call lg.gradients before the tensor goes out of scope, differentiate a function with lg.grad, or wrap the "
        "value in lg.stop_gradient if it shall count as a constant"
    )
    got = f"a value of type {leaf.type} that was evaluated earlier, or came from a compiled function"
    return HistoryError(explained("gradients", "a loss whose whole computation is known", got, fix))
