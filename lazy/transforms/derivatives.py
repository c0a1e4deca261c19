"""Derivatives of functions over trees.

A transform calls the function once on aliases of its arguments, so that the graph between the aliases
and the results is the function, and asks `autodiff` for what it needs. Everything stays lazy: value and
gradient that are evaluated together run as one program, loops share their forward pass.

Arguments to be differentiated hold floats only; a Python float counts as a weak scalar. What doesn't
depend on an argument has derivative zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.autodiff.forward import jvp_emit
from loopgrad.autodiff.reverse import vjp_emit
from loopgrad.graph import ops
from loopgrad.graph.build import emit
from loopgrad.graph.complex_numbers.arithmetic import conjugate
from loopgrad.graph.errors import DTypeError, GradientError, ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.numpy.complex_functions import conj
from loopgrad.lazy.numpy.creation import eye
from loopgrad.lazy.numpy.movement import expand_dims
from loopgrad.lazy.tensor.core import Siblings, TensorCore, as_tensor, is_scalar, wrap
from loopgrad.lazy.tensor.ongoing_derivations import derivation
from loopgrad.lazy.tensor.promotion import promote, promote_weak
from loopgrad.lazy.tensor.repeated_calls import traced_once
from loopgrad.lazy.tensor.storage import as_array, is_array_without_axes, private
from loopgrad.lazy.tensor.trees import (
    Tree,
    check_function,
    flatten,
    is_dynamic,
    leaf_names,
    map_leaves,
    matching,
    unflatten,
)
from loopgrad.lazy.transforms.transformed import TransformedFunction
from loopgrad.lazy.transforms.vmap import vmap

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "grad hessian hvp jacfwd jacrev jvp linearize value_and_grad vjp"
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A function called on aliases: `wrt` are the aliases' values, `structures` those of the arguments."""

    wrt: list[Value]
    structures: list[Any]
    result: Any

    def rebuilt(self, leaves: Sequence[Value | None], along: Sequence[Tensor] = ()) -> list[Tree]:
        """One tree per argument; None becomes zeros. They, and `along`, are evaluated together."""
        tensors = [wrap(ops.zeros_like(w) if v is None else v) for v, w in zip(leaves, self.wrt, strict=True)]
        Siblings([*along, *tensors])
        trees, start = [], 0
        for structure in self.structures:
            trees.append(unflatten(structure, tensors[start : start + structure.num_leaves]))
            start += structure.num_leaves
        return trees


def _call(
    what: str,
    fun: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    argnums: Sequence[int],
    integers: bool = False,
) -> Point:
    """Call `fun` with the arguments at `argnums` replaced by aliases; what it writes to its arguments stays inside.
    `integers`: they may be among what is differentiated."""
    check_function(what, fun)
    arguments = [x if i in argnums else private(x) for i, x in enumerate(args)]
    kwargs = {name: private(x) for name, x in kwargs.items()}
    wrt, structures = list[Value](), list[Any]()
    for position in argnums:
        leaves, structure = flatten(args[position])
        names = leaf_names(structure, f"argument {position}")
        aliases = [_alias(what, x, name, integers) for x, name in zip(leaves, names, strict=True)]
        wrt.extend(a._value for a in aliases)
        structures.append(structure)
        arguments[position] = unflatten(structure, aliases)
    with derivation(wrt):
        result = fun(*arguments, **kwargs)
    return Point(wrt, structures, result)


def _alias(what: str, x: Any, name: str, integers: bool) -> Tensor:
    if not is_dynamic(x):
        fix = "leave it out of argnums, or mark it static: field(metadata={'static': True})"
        raise GradientError(explained(what, f"{name} to hold float tensors", repr(x), fix))
    t = as_tensor(x)
    if not (integers or t._value.dtype.differentiable):
        fix = "convert it with .astype(lg.float64), or leave it out of argnums"
        if what in ("grad", "value_and_grad"):
            fix += "; allow_int=True gives it zeros"
        raise GradientError(explained(what, f"{name} to be of a float dtype", t._value.type, fix))
    alias = wrap(emit("alias", (t._value,))[0], t._weak and is_scalar(x))
    return as_array(alias) if is_array_without_axes(x) else alias


def _positions(what: str, argnums: int | Sequence[int], count: int) -> list[int]:
    given = list(argnums) if isinstance(argnums, Sequence) else [argnums]
    for a in given:
        if not isinstance(a, int | np.integer) or not -count <= a < count:
            fix = "arguments to differentiate are passed by position"
            raise GradientError(explained(what, f"argnums below {count} (the positional arguments)", repr(a), fix))
    found = [int(a) % count for a in given]
    if len(set(found)) != len(found):
        raise GradientError(explained(what, "argnums that name each argument once", argnums, "leave one of them out"))
    return found


def _require_kind(what: str, values: Sequence[Value], holomorphic: bool, which: str) -> None:
    """Complex arguments and results for a complex derivative, real ones where there would be several."""
    for v in values:
        if holomorphic and v.dtype.kind != "c":
            fix = "convert it to a complex dtype, or drop holomorphic=True"
            raise GradientError(explained(what, f"{which} of a complex dtype, for holomorphic=True", v.type, fix))
        if not holomorphic and v.dtype.kind == "c":
            fix = "of a holomorphic function take holomorphic=True, of any other the derivatives of .real and .imag"
            raise GradientError(explained(what, f"{which} of a real dtype", v.type, fix))


def _conjugates(values: Sequence[Value | None]) -> list[Value | None]:
    """Complex derivatives: a cotangent of 1 comes back as the conjugate of the derivative."""
    return [None if v is None else conjugate(v) for v in values]


def _loss(what: str, value: Any, holomorphic: bool = False) -> Value:
    """The scalar float, or complex number, a gradient is taken of."""
    if is_dynamic(value) and not isinstance(value, TensorCore):
        fix = "return the tensor itself: float(), .item() and np.asarray() end what a gradient can follow"
        raise GradientError(explained(what, "a tensor as the loss", f"a number, {type(value).__name__}", fix))
    if not is_dynamic(value):
        fix = "return one scalar (with has_aux=True: a pair of it and anything)"
        raise GradientError(explained(what, "a scalar loss", type(value).__name__, fix))
    t = as_tensor(value)
    if t._value.shape:
        fix = "reduce it with lg.sum or lg.mean, or use lg.vjp or lg.jacrev"
        raise GradientError(explained(what, "a scalar loss", t._value.type, fix))
    if t._value.dtype.kind == "c" and not holomorphic:
        fix = "take .real or lg.abs of it, or say holomorphic=True for the complex derivative"
        raise GradientError(explained(what, "a real loss", t._value.type, fix))
    if holomorphic:
        _require_kind(what, [t._value], True, "a loss")
    if not t._value.dtype.differentiable:
        fix = "compute it in floats (integers have no derivative)"
        raise GradientError(explained(what, "a float loss", t._value.type, fix))
    return t._value


def _pair(what: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        fix = "return (result, aux), or drop has_aux"
        raise GradientError(explained(what, "a pair because of has_aux=True", type(result).__name__, fix))
    return result


# ---- reverse


def value_and_grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False,
) -> Function:  # fmt: skip
    """A function that returns `(value, gradient)` of a scalar function; with `has_aux` `((value, aux), gradient)`.

    `argnums` names the positional arguments to differentiate: one, or several for a tuple of gradients. Each may be a
    tree of float tensors; its gradient has its structure, shapes and dtypes. `fun` returns one float of shape (), with
    `has_aux` a pair of that and anything. Value and gradient that are evaluated together run as one program. With
    `allow_int` arguments may hold integers and bools: their gradients are zeros of their own dtype.

    The gradient by a complex array points where the loss grows fastest: dL/d(re z) + i dL/d(im z). With `holomorphic`
    arguments and loss are complex, and the result is the complex derivative of a holomorphic function.

    Raises GradientError for arguments that aren't float, a loss that isn't one float, and argnums out of range or named
    twice.

    >>> lg.value_and_grad(lambda x: lg.sum(x**2))(lg.asarray([1.0, 2.0, 3.0]))
    (Tensor(14., dtype=float64), Tensor([2., 4., 6.], dtype=float64))
    """
    again = partial(value_and_grad, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int)
    evaluate = _gradient_function("value_and_grad", fun, argnums, has_aux, holomorphic, allow_int)
    return TransformedFunction(again, fun, evaluate)


def _gradient_function(
    what: str, fun: Function, argnums: int | Sequence[int], has_aux: bool, holomorphic: bool, allow_int: bool
) -> Function:
    check_function(what, fun)

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        point = _call(what, fun, args, kwargs, _positions(what, argnums, len(args)), allow_int)
        value, aux = _pair(what, point.result) if has_aux else (point.result, None)
        loss = _loss(what, value, holomorphic)
        primal = wrap(loss)
        floats = [w for w in point.wrt if w.dtype.differentiable]
        found = vjp_emit([loss], [ops.ones_like(loss)], floats)
        if holomorphic:
            _require_kind(what, floats, True, "arguments")
            found = _conjugates(found)
        known = dict(zip(floats, found, strict=True))
        gradients = point.rebuilt([known.get(w) for w in point.wrt], [primal])
        gradient = gradients[0] if not isinstance(argnums, Sequence) else tuple(gradients)
        return ((primal, aux) if has_aux else primal), gradient

    return evaluate


def grad(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False,
    allow_int: bool = False,
) -> Function:  # fmt: skip
    """A function that returns the gradient of a scalar function; with `has_aux` `(gradient, aux)`.

    Arguments, shapes, dtypes and errors are those of `value_and_grad`. Gradients of gradients have no limit but memory.

    >>> lg.grad(lambda z: z**3, holomorphic=True)(1.0 + 1.0j)
    Tensor(0.+6.j, dtype=complex128)
    >>> lg.grad(lambda x: x**3)(2.0), lg.grad(lg.grad(lambda x: x**3))(2.0)
    (Tensor(12., dtype=float64), Tensor(12., dtype=float64))
    >>> lg.grad(lambda p: lg.sum(p["w"] * p["x"]))({"w": lg.ones(2), "x": lg.asarray([3.0, 4.0])})["w"]
    Tensor([3., 4.], dtype=float64)
    """
    again = partial(grad, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic, allow_int=allow_int)
    both = _gradient_function("grad", fun, argnums, has_aux, holomorphic, allow_int)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, result = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return TransformedFunction(again, fun, gradient)


def vjp(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """`(fun(*primals), pull)`: `pull(cotangent)` gives a tuple of one cotangent for each primal.

    Primals are trees of float tensors. The cotangent has the result's structure and shapes, each primal's that of the
    primal. With `has_aux` `fun` returns `(result, aux)`, and aux comes third.

    Raises GradientError for primals that aren't float, ShapeError, DTypeError or StructureError for a cotangent that
    isn't like the result.

    >>> value, pull = lg.vjp(lambda x: lg.sin(x), lg.asarray([0.0, 1.0]))
    >>> pull(lg.asarray([1.0, 10.0]))
    (Tensor([1.        , 5.40302306], dtype=float64),)
    """
    point = _call("vjp", fun, primals, {}, range(len(primals)))
    value, aux = _pair("vjp", point.result) if has_aux else (point.result, None)
    leaves, structure = flatten(value)
    outputs = [as_tensor(x)._value for x in leaves]

    def pull(cotangent: Tree) -> tuple[Tree, ...]:
        seeds = matched("vjp cotangent", structure, outputs, cotangent)
        return tuple(point.rebuilt(vjp_emit(outputs, seeds, point.wrt)))

    result = unflatten(structure, [wrap(v) for v in outputs])
    return (result, pull, aux) if has_aux else (result, pull)


def matched(what: str, structure: Any, like: Sequence[Value], tree: Tree) -> list[Value | None]:
    """Cotangents or tangents with the types of `like`; None for values without derivative."""
    found: list[Value | None] = []
    names = leaf_names(structure, "it")
    for x, value, name in zip(matching(what, structure, tree), like, names, strict=True):
        if not value.dtype.differentiable:
            found.append(None)
            continue
        t = as_tensor(x)
        joined = (promote_weak if t._weak else promote)(value.dtype, t._value.dtype)
        if joined is not value.dtype:
            raise DTypeError(explained(what, f"{name} of type {value.type}", t._value.type, "convert with .astype"))
        if t._value.shape != value.shape and not (is_scalar(x) and not value.shape):
            raise ShapeError(explained(what, f"{name} of type {value.type}", t._value.type, "reshape it"))
        found.append(as_tensor(x, value.dtype)._value)
    return found


# ---- forward


@traced_once
def jvp(fun: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> Any:
    """`(fun(*primals), tangent)`: the derivative of `fun` along `tangents`, by forward mode.

    `primals` and `tangents` are tuples of trees, alike in structure and shapes; the tangent is like the result. With
    `has_aux` `fun` returns `(result, aux)`, and aux comes third. Costs about one more run of `fun`, and saves nothing.

    Raises GradientError for primals that aren't float or where primals and tangents aren't tuples of one length.

    >>> lg.jvp(lambda x: x**2, (lg.asarray([1.0, 2.0]),), (lg.asarray([1.0, 0.5]),))
    (Tensor([1., 4.], dtype=float64), Tensor([2., 2.], dtype=float64))
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise GradientError(explained("jvp", "tuples of primals and tangents", type(primals).__name__, "write (x,)"))
    push, value, aux = _pusher("jvp", fun, tuple(primals), has_aux)
    tangent = push(*tangents)
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(fun: Function, *primals: Any, has_aux: bool = False) -> Any:
    """`(fun(*primals), push)`: `push(*tangents)` is the derivative along them, as often as wanted.

    Shapes, dtypes and errors are those of `jvp`. With `has_aux` `fun` returns `(result, aux)`, and aux comes third.

    >>> value, push = lg.linearize(lg.exp, lg.zeros(2))
    >>> push(lg.asarray([1.0, 2.0]))
    Tensor([1., 2.], dtype=float64)
    """
    push, value, aux = _pusher("linearize", fun, primals, has_aux)
    return (value, push, aux) if has_aux else (value, push)


def _pusher(what: str, fun: Function, primals: Sequence[Any], has_aux: bool) -> tuple[Function, Any, Any]:
    point = _call(what, fun, primals, {}, range(len(primals)))
    value, aux = _pair(what, point.result) if has_aux else (point.result, None)
    leaves, structure = flatten(value)
    outputs = [as_tensor(x)._value for x in leaves]

    def push(*tangents: Any) -> Any:
        if len(tangents) != len(primals):
            fix = "pass one tangent per primal"
            raise GradientError(explained(what, f"{len(primals)} tangents", len(tangents), fix))
        seeds: list[Value | None] = []
        start = 0
        for s, t in zip(point.structures, tangents, strict=True):
            like = point.wrt[start : start + s.num_leaves]
            seeds.extend(matched(f"{what} tangent", s, like, t))
            start += s.num_leaves
        results = jvp_emit(outputs, point.wrt, seeds)
        filled = [wrap(ops.zeros_like(o) if r is None else r) for r, o in zip(results, outputs, strict=True)]
        return unflatten(structure, filled)

    return push, unflatten(structure, [wrap(v) for v in outputs]), aux


# ---- matrices of derivatives


def jacrev(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The Jacobian by reverse mode, one pass per output element (batched): shape output + input.

    For trees: the result's structure, with the argument's inside. Right for few outputs; `jacfwd` is for few inputs.
    `argnums`, `holomorphic` and errors are those of `grad`, but results of any shape are differentiated. With `has_aux`
    `fun` returns `(result, aux)`, and what this gives is `(jacobian, aux)`.

    >>> lg.jacrev(lambda x: x[1:] * x[:-1])(lg.asarray([1.0, 2.0, 3.0]))
    Tensor([[2., 1., 0.],
            [0., 3., 2.]], dtype=float64)
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _positions("jacrev", argnums, len(args))
        primals = [args[i] for i in chosen]
        call = _partial(fun, args, kwargs, chosen, has_aux)
        point = _call("jacrev", fun, args, kwargs, chosen)  # for its types, and what comes beside it
        value, aux = _pair("jacrev", point.result) if has_aux else (point.result, None)
        leaves, structure = flatten(value)
        _require_kind("jacrev", [as_tensor(x)._value for x in leaves], holomorphic, "results")
        if holomorphic:
            _require_kind("jacrev", point.wrt, True, "arguments")
        rows = []
        for i, leaf in enumerate(leaves):

            def row(seed: Tensor, i: int = i) -> Any:
                result, pull = vjp(call, *primals)  # inside the batch: a stack can't enter it from outside
                seeds = [wrap(ops.zeros_like(x._value)) for x in flatten(result)[0]]
                seeds[i] = seed
                found = pull(unflatten(structure, seeds))
                return map_leaves(conj, found) if holomorphic else found

            seeds = _basis(as_tensor(leaf))
            # one row needs no batch, in which a loop would run for several examples
            batch = vmap(row)(seeds) if len(seeds) != 1 else map_leaves(lambda x: expand_dims(x, 0), row(seeds[0]))
            rows.append(_unraveled(batch, as_tensor(leaf)._value.shape))
        chosen_rows = [r[0] if not isinstance(argnums, Sequence) else r for r in rows]
        matrix = unflatten(structure, chosen_rows)
        return (matrix, aux) if has_aux else matrix

    again = partial(jacrev, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic)
    return TransformedFunction(again, fun, jacobian)


def _partial(
    fun: Function, args: Sequence[Any], kwargs: dict[str, Any], chosen: Sequence[int], has_aux: bool
) -> Function:
    """`fun` of the arguments to differentiate; without what it returns beside its result."""

    def call(*values: Any) -> Any:
        arguments = [private(x) for x in args]
        for i, v in zip(chosen, values, strict=True):
            arguments[i] = v
        result = fun(*arguments, **{name: private(x) for name, x in kwargs.items()})
        return result[0] if has_aux else result

    return call


def _basis(leaf: Tensor) -> Tensor:
    """The unit tensors of the leaf's type, stacked."""
    value = leaf._value
    size = prod(value.shape)
    return wrap(ops.reshape(eye(size, dtype=value.dtype)._value, (size, *value.shape)))


def _unraveled(tree: Tree, shape: tuple[int, ...]) -> Tree:
    """The first axis of every leaf split into `shape`."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [wrap(ops.reshape(x._value, (*shape, *x._value.shape[1:]))) for x in leaves])


def jacfwd(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The Jacobian by forward mode, one pass per input element (batched): shape output + input.

    Structures, `argnums`, `has_aux`, `holomorphic` and errors are those of `jacrev`.

    >>> lg.jacfwd(lambda t: lg.stack([lg.cos(t), lg.sin(t)]))(0.0)
    Tensor([-0.,  1.], dtype=float64)
    """

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _positions("jacfwd", argnums, len(args))
        call = _partial(fun, args, kwargs, chosen, has_aux)
        aux = _pair("jacfwd", _call("jacfwd", fun, args, kwargs, chosen).result)[1] if has_aux else None
        primals = tuple([args[i] for i in chosen])
        flat, structure = flatten(primals)
        inputs = [as_tensor(x) for x in flat]
        _require_kind("jacfwd", [x._value for x in inputs], holomorphic, "arguments")
        zeros = [wrap(ops.zeros_like(x._value)) for x in inputs]
        columns: list[list[Tensor]] = []  # per input leaf: one tensor per output leaf
        for i, leaf in enumerate(inputs):

            def column(seed: Tensor, i: int = i) -> Any:
                return jvp(call, primals, unflatten(structure, [*zeros[:i], seed, *zeros[i + 1 :]]))[1]

            stacked, out_structure = flatten(vmap(column)(_basis(leaf)))
            if holomorphic:
                _require_kind("jacfwd", [s._value for s in stacked], True, "results")
            columns.append([_input_last(s._value, leaf._value.shape) for s in stacked])
        trees = [unflatten(structure, [c[j] for c in columns]) for j in range(len(columns[0]))]
        matrix = unflatten(out_structure, [t[0] if not isinstance(argnums, Sequence) else t for t in trees])
        return (matrix, aux) if has_aux else matrix

    again = partial(jacfwd, argnums=argnums, has_aux=has_aux, holomorphic=holomorphic)
    return TransformedFunction(again, fun, jacobian)


def _input_last(stacked: Value, shape: tuple[int, ...]) -> Tensor:
    """The first axis moved to the end and split into `shape`."""
    moved = ops.transpose(stacked, (*range(1, len(stacked.shape)), 0))
    return wrap(ops.reshape(moved, (*stacked.shape[1:], *shape)))


def hessian(
    fun: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Function:
    """The matrix of second derivatives of a scalar function, forward over reverse: shape input + input. Of a function
    with other results those of each of their elements: shape output + input + input.

    `argnums`, `has_aux`, `holomorphic` and errors are those of `jacrev`. For a product with one vector `hvp` is much
    cheaper.

    >>> lg.hessian(lambda x: x[0] ** 2 * x[1])(lg.asarray([1.0, 3.0]))
    Tensor([[6., 2.],
            [2., 0.]], dtype=float64)
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


@traced_once
def hvp(fun: Function, primals: Any, tangents: Any) -> Any:
    """The Hessian of a scalar function times a vector, without the Hessian: forward over reverse (Pearlmutter, 1994).

    With tuples, one entry per argument; otherwise of a function of one argument. Tangents and result are like the
    primals. Raises GradientError as `grad` does.

    >>> lg.hvp(lambda x: x[0] ** 2 * x[1], lg.asarray([1.0, 3.0]), lg.asarray([1.0, 0.0]))
    Tensor([6., 2.], dtype=float64)
    """
    if not isinstance(primals, tuple):
        return jvp(grad(fun), (primals,), (tangents,))[1]
    return jvp(grad(fun, tuple(range(len(primals)))), primals, tangents)[1]
