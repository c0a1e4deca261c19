"""`custom_vjp` and `custom_jvp`: functions that bring their derivative.

When such a function is called it is traced, and its rules with it, into one call node: what it computes is the
function, what a derivative of it is the rule says. Rules are ordinary functions, so second derivatives go through them.
Conventions and names are JAX's, except that a rule may give None for any derivative that is zero.

A rule may call the function itself, whose rules are traced again, for the next order of derivatives: as many as
transforms are under way, and no less than ORDERS.
"""

from __future__ import annotations

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph import ops, region_ops
from loopgrad.graph.build import trace
from loopgrad.graph.errors import DTypeError, GradientError, ShapeError, explained
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.region_ops import Traced as Region
from loopgrad.graph.types import TensorType
from loopgrad.lazy.loops.traced_functions import LeafType, Traced, kind_of, trace_tree
from loopgrad.lazy.tensor.core import as_tensor, cast_value, is_scalar, wrap
from loopgrad.lazy.tensor.errors import StructureError
from loopgrad.lazy.tensor.ongoing_derivations import derivations
from loopgrad.lazy.tensor.promotion import promote_weak
from loopgrad.lazy.tensor.trees import (
    Tree,
    check_function,
    flatten,
    is_dynamic,
    leaf_names,
    leaves_or_none,
    map_leaves,
    matching,
    show,
    unflatten,
)

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "custom_jvp custom_vjp"
Function = Callable[..., Any]
ORDERS: Final = 2  # that are taken of what was computed before, without naming a function; transforms ask for theirs


class _Tracing(threading.local):
    """How many orders of derivatives will be taken of the rules that are being traced, `inside` so many derivations
    (None: no rule is being traced)."""

    orders: int = 0
    inside: int | None = None


_tracing = _Tracing()


def _orders() -> int:
    """Of how many orders a function called now shall have rules. In a rule those that are taken of it come to the
    derivations that have begun in it."""
    if _tracing.inside is None:
        return max(ORDERS, derivations())
    return _tracing.orders + derivations() - _tracing.inside


@contextmanager
def _for_orders(orders: int) -> Iterator[None]:
    outer = _tracing.orders, _tracing.inside
    _tracing.orders, _tracing.inside = orders, derivations()
    try:
        yield
    finally:
        _tracing.orders, _tracing.inside = outer


@dataclass(frozen=True, slots=True, eq=False)
class RuleArguments:
    """The arguments of one call: `fixed` by place those that rules aren't about, `leaves` those of the others, of which
    the ones at `moving` are tensors of these kinds. Numbers, and what can't be a tensor, stay as they are."""

    what: str
    fixed: dict[int, Any]
    leaves: list[Any]
    structure: Any
    moving: list[int]
    kinds: list[LeafType]

    @property
    def types(self) -> list[TensorType]:
        return [k.type for k in self.kinds]

    @property
    def ruled(self) -> list[int]:
        """Those of the tensors that have a derivative."""
        return [i for i, k in enumerate(self.kinds) if k.type.dtype.differentiable]

    def handles(self, values: Sequence[Value]) -> list[Tensor]:
        """Values of the tensors' types as what a traced function is called with."""
        return [k.handle(v) for k, v in zip(self.kinds, values, strict=True)]

    def own(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments that rules are about, with these tensors."""
        given = list(self.leaves)
        for i, t in zip(self.moving, tensors, strict=True):
            given[i] = t
        arguments: tuple[Any, ...] = unflatten(self.structure, given)
        return arguments

    def arguments(self, tensors: Sequence[Any]) -> list[Any]:
        """All arguments, with these tensors."""
        rest = iter(self.own(tensors))
        count = len(self.fixed) + self.structure.num_children
        return [self.fixed[i] if i in self.fixed else next(rest) for i in range(count)]

    def fixed_first(self) -> list[Any]:
        return [self.fixed[i] for i in sorted(self.fixed)]


class OwnRule(ABC):
    """A function with a rule of its own, stated by a subclass."""

    def __init__(
        self, fun: Function, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()
    ) -> None:
        what = type(self).__name__
        check_function(what, fun)
        self.fun = fun
        self.nondiff_argnums = (*_places(what, nondiff_argnums), *_named_places(what, fun, nondiff_argnames))
        update_wrapper(self, fun)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else lambda *args, **kwargs: self(instance, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._require_rule()
        call = self._bound(args, kwargs)
        if not call.ruled:
            return self.fun(*args, **kwargs)
        tensors = [as_tensor(call.leaves[i]) for i in call.moving]
        structure = flatten(tuple(tensors))[1]
        orders = _orders()
        with _for_orders(max(orders - 1, 0)):
            primal = trace_tree(
                call.what, lambda given: self.fun(*call.arguments(given)), structure, call.kinds, leaves=tensors
            )
            if orders:
                kind, regions, captures = self._traced(call, primal)
            else:
                kind, regions, captures = "opaque", (primal.graph,), primal.captures
        operands = (*(t._value for t in tensors), *captures)
        results = region_ops.call(operands, regions, kind, arguments=len(tensors), name=call.what)
        return unflatten(primal.structure, [wrap(v, w) for v, w in zip(results, primal.weak, strict=True)])

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RuleArguments:
        """The arguments in the order of the function's parameters, those left out as their defaults."""
        what = getattr(self.fun, "__name__", type(self).__name__)
        signature = _signature(self.fun)
        if signature is not None:
            bound = _bound_to(what, signature, args, kwargs)
            left_out = [p for p in signature.parameters.values() if p.name not in bound.arguments]
            bound.apply_defaults()
            known = {p.name for p in left_out if p.kind is p.KEYWORD_ONLY}  # to the function itself
            args, kwargs = bound.args, {k: v for k, v in bound.kwargs.items() if k not in known}
            if any(p.name == "out" for p in left_out):  # an array to write to that isn't there is no argument
                place = [*signature.parameters].index("out")
                args = (*args[:place], *args[place + 1 :])
        if kwargs:
            fix = "declare them without *, or bind them with functools.partial"
            raise GradientError(explained(what, "arguments with a position", ", ".join(kwargs), fix))
        for i in self.nondiff_argnums:
            if not -len(args) <= i < len(args):
                expected = f"nondiff_argnums of its {len(args)} arguments"
                raise GradientError(explained(what, expected, i, "count from 0, or from -1 at the end"))
        fixed = {i % len(args): args[i % len(args)] for i in self.nondiff_argnums}
        leaves, structure = flatten(tuple([x for i, x in enumerate(args) if i not in fixed]))
        moving = [i for i, x in enumerate(leaves) if is_dynamic(x) and not is_scalar(x)]
        return RuleArguments(what, fixed, leaves, structure, moving, [kind_of(leaves[i]) for i in moving])

    @abstractmethod
    def _require_rule(self) -> None:
        """GradientError where no rule has been stated yet."""

    @abstractmethod
    def _traced(self, call: RuleArguments, primal: Traced) -> tuple[str, Sequence[Graph], Sequence[Value]]:
        """The kind of the call node, its regions, and what these capture."""

    def _no_rule(self, method: str) -> GradientError:
        what = getattr(self.fun, "__name__", type(self).__name__)
        return GradientError(explained(what, "its rule to be stated before it is called", "none", f"call .{method}"))


def _places(what: str, argnums: Any) -> tuple[int, ...]:
    places = argnums if isinstance(argnums, tuple | list) else (argnums,)
    if any(isinstance(i, bool) or not isinstance(i, int) for i in places):
        fix = "write nondiff_argnums=(0,)"
        raise TypeError(explained(what, "nondiff_argnums that are integers", repr(argnums), fix))
    return tuple(places)


def _named_places(what: str, fun: Function, argnames: Sequence[str]) -> tuple[int, ...]:
    wanted = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    signature = _signature(fun)
    names = [] if signature is None else list(signature.parameters)
    for name in wanted:
        if name not in names:
            expected = f"nondiff_argnames among {', '.join(names) or 'no names'}"
            raise TypeError(explained(what, expected, repr(name), "name a parameter of the function"))
    return tuple([names.index(name) for name in wanted])


def _signature(fun: Function) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except ValueError:  # of a function in C
        return None


def _bound_to(
    what: str, signature: inspect.Signature, args: Sequence[Any], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        got = f"{len(args)} of them{''.join(f', {k}=...' for k in kwargs)}: {error}"
        raise TypeError(explained(what, f"arguments for {signature}", got, "call it with these")) from None


def _require_taken(what: str, rule: Function, arguments: Sequence[Any], names: str) -> None:
    """A rule must take what it is called with."""
    signature = _signature(rule)
    if signature is not None:
        try:
            signature.bind(*arguments)
        except TypeError:
            expected = f"a rule that takes {len(arguments)} arguments: {names}"
            raise TypeError(explained(what, expected, f"one of {signature}", "declare these")) from None


def _refuse_options(what: str, options: dict[str, bool]) -> None:
    """Keywords of JAX's that ask for what isn't done here."""
    for name, value in options.items():
        if value:
            fix = "leave it out: what nobody asks for isn't computed, and None is a zero"
            raise GradientError(explained(what, f"{name}=False", value, fix))


# ---- reverse


class custom_vjp(OwnRule):  # a decorator
    """A function that brings its reverse-mode derivative.

    `f.defvjp(fwd, bwd)`: `fwd(*args)` returns `(f(*args), residuals)`, a tree of what the reverse needs;
    `bwd(residuals, cotangent)` returns a tuple with one cotangent per argument, each a tree like the argument, or None
    for zero. Arguments at `nondiff_argnums` are handed to `bwd` first, as they are, and get no cotangent. Integers
    get None. `vmap`, loops and compilation take it like any function; forward mode raises GradientError.

    >>> f = lg.custom_vjp(lambda x: lg.sin(x))
    >>> f.defvjp(lambda x: (lg.sin(x), lg.cos(x)), lambda c, ct: (2 * c * ct,))
    >>> lg.grad(f)(0.0)
    Tensor(2., dtype=float64)
    """

    _rule: tuple[Function, Function] | None = None

    def defvjp(
        self, fwd: Function, bwd: Function, *, symbolic_zeros: bool = False, optimize_remat: bool = False
    ) -> None:
        """State the rule. The keywords are JAX's and must be False."""
        _refuse_options("defvjp", {"symbolic_zeros": symbolic_zeros, "optimize_remat": optimize_remat})
        check_function("defvjp", fwd)
        check_function("defvjp", bwd)
        self._rule = fwd, bwd

    def _require_rule(self) -> None:
        if self._rule is None:
            raise self._no_rule("defvjp(fwd, bwd)")

    def _traced(self, call: RuleArguments, primal: Traced) -> tuple[str, Sequence[Graph], Sequence[Value]]:
        assert self._rule is not None
        fwd, bwd = self._rule
        residuals: list[Tree] = []
        saved: list[Value] = []

        def forward(*values: Value) -> list[Value]:
            arguments = call.arguments(call.handles(values))
            _require_taken(f"{call.what} fwd", fwd, arguments, "those of the function")
            result = fwd(*arguments)
            if not isinstance(result, tuple) or len(result) != 2:
                fix = "return (result, residuals)"
                raise StructureError(explained(f"{call.what} fwd", "a pair", type(result).__name__, fix))
            residuals.append(result[1])
            saved[:] = [as_tensor(x)._value for x in flatten(result[1])[0] if _moves(x)]
            return [*_results(f"{call.what} fwd", primal, result[0]), *saved]

        def backward(*values: Value) -> list[Value]:
            given = iter([wrap(v) for v in values])
            held = map_leaves(lambda x: next(given) if _moves(x) else x, residuals[0])
            received = _beside(primal, given)
            arguments = (*call.fixed_first(), held, received)
            _require_taken(f"{call.what} bwd", bwd, arguments, "those of nondiff_argnums, residuals, cotangent")
            found = bwd(*arguments)
            return _cotangents(call, found)

        forward_region = trace(forward, call.types)
        types = [*(v.type for v in saved), *(t for t in primal.graph.output_types if _differentiable(t))]
        backward_graph, captured = trace(backward, types)
        forward_region = _saving(forward_region, captured)
        backward_region = _moved_inputs(backward_graph, len(saved), len(captured))
        (first, second), captures = region_ops.share_captures([(primal.graph, primal.captures), forward_region])
        return "vjp", (first, second, backward_region), captures


def _cotangents(call: RuleArguments, found: Any) -> list[Value]:
    """What the backward rule returned, for the tensors that have cotangents."""
    what, count = f"{call.what} bwd", call.structure.num_children
    if not isinstance(found, tuple | list) or len(found) != count:
        got = f"{len(found)} of them" if isinstance(found, tuple | list) else type(found).__name__
        raise StructureError(explained(what, f"a tuple of {count} cotangents", got, "return one for each argument"))
    leaves = leaves_or_none(what, call.structure, tuple(found))
    names = leaf_names(call.structure, "the cotangent of arguments")
    places = [call.moving[i] for i in call.ruled]
    return [_typed(what, names[p], leaves[p], call.types[i]) for i, p in zip(call.ruled, places, strict=True)]


def _saving(forward: Region, captured: Sequence[Value]) -> Region:
    """The forward rule with what the backward rule captures as further residuals."""
    graph, captures = forward
    known = dict(zip(captures, graph.inputs[len(graph.inputs) - len(captures) :], strict=True))
    extra = {v: Value(v.type) for v in captured if v not in known}
    outputs = (*graph.outputs, *[known.get(v) or extra[v] for v in captured])
    return Graph((*graph.inputs, *extra.values()), graph.nodes, outputs), (*captures, *extra)


def _moved_inputs(graph: Graph, place: int, last: int) -> Graph:
    """`graph` with its last inputs, so many, moved to a place."""
    end = len(graph.inputs) - last
    inputs = (*graph.inputs[:place], *graph.inputs[end:], *graph.inputs[place:end])
    return Graph(inputs, graph.nodes, graph.outputs)


# ---- forward


class custom_jvp(OwnRule):  # a decorator
    """A function that brings its derivative as a tangent rule, which serves forward and reverse mode.

    `f.defjvp(rule)`: `rule(primals, tangents)`, two tuples like the arguments, returns `(f(*primals), tangent)`, where
    the tangent is linear in the tangents. Arguments at `nondiff_argnums` are handed to the rule first, as they are.
    Tangents of integers are zeros.

    >>> f = lg.custom_jvp(lambda x: lg.sin(x))
    >>> f.defjvps(lambda t, ans, x: 2 * lg.cos(x) * t)
    >>> lg.grad(f)(0.0), lg.jvp(f, (0.0,), (1.0,))[1]
    (Tensor(2., dtype=float64), Tensor(2., dtype=float64))
    """

    _rule: Function | None = None

    def defjvp(self, jvp: Function, *, symbolic_zeros: bool = False) -> Function:
        """State the rule; returned as it is, so this can be a decorator. The keyword is JAX's and must be False."""
        _refuse_options("defjvp", {"symbolic_zeros": symbolic_zeros})
        check_function("defjvp", jvp)
        self._rule = jvp
        return jvp

    def defjvps(self, *jvps: Function | None) -> None:
        """State one rule for each argument: `rule(tangent, result, *primals)` gives what the argument adds to the
        tangent of the result; None adds nothing."""
        if self.nondiff_argnums:
            raise GradientError(explained("defjvps", "no nondiff_argnums", self.nondiff_argnums, "use .defjvp"))

        def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            if len(jvps) != len(primals):
                fix = "pass None for an argument that adds nothing"
                raise GradientError(explained("defjvps", f"{len(primals)} rules", len(jvps), fix))
            result = self(*primals)
            total: list[Any] | None = None
            leaves, structure = flatten(result)
            for jvp, t in zip(jvps, tangents, strict=True):
                if jvp is not None:
                    part = matching("defjvps", structure, jvp(t, result, *primals))
                    total = part if total is None else [a + b for a, b in zip(total, part, strict=True)]
            return result, unflatten(structure, [None] * len(leaves) if total is None else total)

        self._rule = rule

    def _require_rule(self) -> None:
        if self._rule is None:
            raise self._no_rule("defjvp(rule)")

    def _traced(self, call: RuleArguments, primal: Traced) -> tuple[str, Sequence[Graph], Sequence[Value]]:
        rule = self._rule
        assert rule is not None
        what, n = f"{call.what} jvp", len(call.moving)

        def tangent(*values: Value) -> list[Value]:
            moving = dict(zip(call.ruled, values[n:], strict=True))
            zeros = [ops.zeros_like(v) for v in values[:n]]
            tangents = [wrap(moving.get(i, z)) for i, z in enumerate(zeros)]
            arguments = (*call.fixed_first(), call.own(call.handles(values[:n])), _like(call, tangents))
            _require_taken(what, rule, arguments, "those of nondiff_argnums, primals, tangents")
            result = rule(*arguments)
            if not isinstance(result, tuple) or len(result) != 2:
                fix = "return (result, tangent of the result)"
                raise StructureError(explained(what, "a pair", type(result).__name__, fix))
            leaves = leaves_or_none(what, primal.structure, result[1])
            names = leaf_names(primal.structure, "the tangent of the result")
            types = primal.graph.output_types
            found = [_typed(what, m, x, t) for m, x, t in zip(names, leaves, types, strict=True) if _differentiable(t)]
            return [*_results(what, primal, result[0]), *found]

        types = [*call.types, *(call.types[i] for i in call.ruled)]
        region = trace(tangent, types)
        (first, second), captures = region_ops.share_captures([(primal.graph, primal.captures), region])
        return "jvp", (first, _moved_inputs(second, n, len(captures))), captures


def _like(call: RuleArguments, tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The tangents of the arguments that the rule is about; numbers have zeros, what can't be a tensor None."""
    given: list[Any] = [0 * x if is_scalar(x) else None for x in call.leaves]
    for i, t in zip(call.moving, tangents, strict=True):
        given[i] = t
    tree: tuple[Any, ...] = unflatten(call.structure, given)
    return tree


# ---- what rules return


def _moves(x: Any) -> bool:
    return is_dynamic(x) and not is_scalar(x)


def _differentiable(type: Any) -> bool:
    return isinstance(type, TensorType) and type.dtype.differentiable


def _results(what: str, primal: Traced, result: Tree) -> list[Value]:
    """A rule's result as the function itself has it."""
    leaves, structure = flatten(result)
    if structure != primal.structure:
        fix = "return what the function returns"
        raise StructureError(explained(what, f"the structure {show(primal.structure)}", show(structure), fix))
    names = leaf_names(structure, "the result")
    types = primal.graph.output_types
    return [_typed(what, n, x, t) for n, x, t in zip(names, leaves, types, strict=True)]


def _typed(what: str, name: str, x: Any, type: Any) -> Value:
    """A leaf that must be of a type; None is zero."""
    assert isinstance(type, TensorType)
    if x is None:
        return ops.full(0, type)
    t = as_tensor(x)
    dtype = t._value.dtype
    if dtype is not type.dtype and not (t._weak and promote_weak(type.dtype, dtype) is type.dtype):
        raise DTypeError(explained(what, f"{name} of type {type}", t._value.type, "convert it with .astype"))
    if t._value.shape != type.shape:
        raise ShapeError(explained(what, f"{name} of type {type}", t._value.type, "give it that shape"))
    return cast_value(t._value, type.dtype)


def _beside(primal: Traced, given: Iterator[Any]) -> Tree:
    """The cotangents of the results: zeros for those that have none."""
    types = primal.graph.output_types
    leaves = [next(given) if _differentiable(t) else wrap(ops.full(0, t)) for t in types]  # type: ignore[arg-type]
    return unflatten(primal.structure, leaves)
