"""The reverse walker: cotangents from outputs to inputs of a piece of the ambient DAG.

Enters: outputs, their cotangents, and the values `wrt` that bound the piece from below. Leaves: one
cotangent (None for zero) per wrt. The walker emits adjoint nodes into the ambient scope; primal values are
referenced as they are. One rule per primitive comes from `autodiff.rules`, region nodes are given to the
context's region rules, so that loops can call the walker again on their bodies.

    y = mul(sin(x), c)     y_adj     ->     sin_adj = mul(y_adj, c);  x_adj = mul(sin_adj, cos(x))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from loopgrad.autodiff.activity import active_values, differentiable
from loopgrad.autodiff.rules import ACCUMULATE, NONDIFFERENTIABLE, PARTIALS, REFUSED, VJP, guarded, is_singular
from loopgrad.graph import ops
from loopgrad.graph.build import at
from loopgrad.graph.extract import extract
from loopgrad.graph.nodes import Node, Value
from loopgrad.graph.primitives import PRIMITIVES
from loopgrad.graph.types import StackType


class Adjoints:
    """The cotangents accumulated so far; only active values have one."""

    def __init__(self, active: set[Value]) -> None:
        self.active = active
        self._known: dict[Value, Value] = {}

    def get(self, value: Value) -> Value | None:
        return self._known.get(value)

    def put(self, value: Value, cotangent: Value) -> None:
        """Replace what has accumulated: `cotangent` contains it already."""
        self._known[value] = cotangent

    def add(self, value: Value, cotangent: Value | None) -> None:
        if cotangent is None or value not in self.active:
            return
        known = self._known.get(value)
        assert known is None or not isinstance(value.type, StackType), "a stack is consumed once"
        self._known[value] = cotangent if known is None else ops.accumulate(known, cotangent)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What was entered inside is forgotten where that raises."""
        active, known = set(self.active), dict(self._known)
        try:
            yield
        except BaseException:
            self.active.clear()
            self.active.update(active)
            self._known = known
            raise


def _always(value: Value) -> bool:
    return True


class Freedom:
    """Whether the reverse of a region has a value for free: computed from free inputs, by no inner region.
    `known` says it of the inputs that aren't free as a matter of course."""

    def __init__(self, known: Mapping[Value, bool]) -> None:
        self._known = dict(known)

    def __call__(self, value: Value) -> bool:
        pending = [value]
        while pending:
            v = pending[-1]
            node = v.node
            if v in self._known or node is None or node.regions or node.op == "pop":
                self._known.setdefault(v, node is None)
                pending.pop()
                continue
            unknown = [u for u in node.operands if u not in self._known]
            if unknown:
                pending += unknown
            else:
                self._known[v] = all(self._known[u] for u in node.operands)
        return self._known[value]


def explicit(values: Sequence[Value], cotangents: Cotangents) -> list[Value]:
    """`cotangents` of `values` with zeros spelled out."""
    return [zero_cotangent(v) if ct is None else ct for v, ct in zip(values, cotangents, strict=True)]


def zero_cotangent(like: Value) -> Value:
    """An explicit zero; for a stack, one that holds nothing yet."""
    if isinstance(like.type, StackType):
        return ops.stack_new(like.type.element, None, "cotangents")
    return ops.zeros_like(like)


@dataclass(frozen=True, slots=True)
class Context:
    """Where the walker runs.

    regions: rule per region op.  nested: inside the joint body of a loop, whose rule will thread new stacks
    through that loop.  masked: a select further on may discard the outputs.  lanes: shape of the enclosing
    lane loop.  is_free: whether the reverse pass can have a value without anybody saving it.
    """

    regions: Mapping[str, RegionRule]
    nested: bool = False
    masked: bool = False
    lanes: tuple[int, ...] = ()
    is_free: Callable[[Value], bool] = _always


Cotangents = Sequence[Value | None]
RegionRule = Callable[[Node, Cotangents, Adjoints, Context], None]


def pull(
    outputs: Sequence[Value],
    cotangents: Cotangents,
    wrt: Sequence[Value],
    context: Context,
    accumulated: Cotangents = (),
    bounds: Sequence[Value] = (),
) -> list[Value | None]:
    """Cotangents of `wrt`; `accumulated[i]`, where given, is what wrt[i] has gathered before. The walk ends at
    `bounds` too."""
    graph = extract(outputs, (*wrt, *bounds))
    wanted = set(wrt)
    adjoints = Adjoints(active_values(graph, [v in wanted for v in graph.inputs]))
    for value, known in zip(wrt, accumulated, strict=False):
        if known is not None:
            adjoints.put(value, known)
    for value, ct in zip(graph.outputs, cotangents, strict=True):
        adjoints.add(value, ct)
    kept = set() if context.masked else {v.node for v in graph.outputs}  # not every use ends in a select
    for node in reversed(graph.nodes):
        if node.op in NONDIFFERENTIABLE or not any(r in adjoints.active for r in node.results):
            continue
        received = [adjoints.get(r) for r in node.results]
        if node.op == "pop" or any(ct is not None for ct in received):  # each push needs its pop, zero or not
            if node in kept and node.op != "select":
                kept.update(v.node for v in node.operands)
            with at(node.loc):
                _step(node, received, adjoints, context, node not in kept)
    return [adjoints.get(v) for v in wrt]


def _step(node: Node, received: Cotangents, adjoints: Adjoints, context: Context, masked: bool) -> None:
    """Pass the cotangents of a node's results on to its operands."""
    op = node.op
    if op in PARTIALS:
        ct = received[0]
        assert ct is not None
        _elementwise(node, ct, adjoints, masked)
    elif op in ACCUMULATE:
        table, ct = node.operands[0], received[0]
        assert ct is not None
        adjoints.put(table, ACCUMULATE[op](node, ct, adjoints.get(table)))
    elif op in VJP:
        if op in REFUSED:
            REFUSED[op](node, [ct is not None for ct in received])
        for operand, contribution in zip(node.operands, VJP[op](node, received), strict=True):
            adjoints.add(operand, contribution)
    else:
        region_context = context if masked == context.masked else _masked(context)
        context.regions[op](node, received, adjoints, region_context)


def _masked(context: Context) -> Context:
    return replace(context, masked=True)


def _elementwise(node: Node, ct: Value, adjoints: Adjoints, masked: bool) -> None:
    guard = is_singular(node) or (masked and not PRIMITIVES[node.op].linear)
    for operand, partial in zip(node.operands, PARTIALS[node.op], strict=True):
        if partial is None or operand not in adjoints.active:
            continue
        contribution = partial(ct, node)
        adjoints.add(operand, guarded(ct, contribution) if guard else contribution)


def as_seeds(given: Cotangents) -> list[Value | None]:
    """Tangents or cotangents by which somebody may differentiate: rules look into what complex ones are made of, and
    stop here."""
    return [ops.alias(v) if v is not None and v.dtype.kind == "c" else v for v in given]


def require_cotangents(outputs: Sequence[Value], cotangents: Cotangents) -> None:
    """Cotangents have the types of their outputs."""
    for output, ct in zip(outputs, cotangents, strict=True):
        if ct is not None and (ct.type != output.type or not differentiable(output.type)):
            raise TypeError(f"vjp: expected a cotangent of type {output.type}, got {ct.type}")
