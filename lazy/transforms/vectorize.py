"""Functions of numbers, vectors or matrices as functions of arrays of them, and of rows one after the other.

`vectorize` is `vmap` once for each axis that broadcasts; `map` is a `scan` without a carry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.loops.scan import scan
from loopgrad.lazy.numpy.movement import concat, reshape
from loopgrad.lazy.tensor.core import as_tensor
from loopgrad.lazy.tensor.operands import Shape, joined_shape
from loopgrad.lazy.tensor.repeated_calls import traced_once
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, map_leaves
from loopgrad.lazy.transforms.transformed import TransformedFunction
from loopgrad.lazy.transforms.vmap import vmap

PUBLIC: Final = "map vectorize"
Function = Callable[..., Any]
_CORE: Final = r"\((?:\w+(?:,\w+)*)?\)"


def vectorize(pyfunc: Function, *, excluded: Collection[int | str] = (), signature: str | None = None) -> Function:
    """`pyfunc`, written for numbers (or for what `signature` says, "(m,n),(n)->(m)"), over arrays that broadcast.

    It is traced once, as by `vmap`, so it may not ask for the values of its arguments: choose with `lg.where` or
    `lg.cond`. `excluded` arguments, by position or name, are handed on as they are, as are all by name. As NumPy's and
    JAX's, without NumPy's `otypes` and `cache`: dtypes are those of the results.

    Raises ValueError for a signature that can't be read, ShapeError where shapes don't fit it or don't broadcast.

    >>> lg.vectorize(lambda x, y: lg.where(x > y, x - y, x + y))(lg.asarray([1, 2, 3, 4]), 2)
    Tensor([3, 4, 1, 2], dtype=int64)
    >>> lg.vectorize(lg.dot, signature="(n),(n)->()")(lg.ones((2, 3)), lg.arange(3.0))
    Tensor([3., 3.], dtype=float64)
    """
    check_function("vectorize", pyfunc)
    cores = None if signature is None else _cores(signature)

    def over_arrays(*args: Any, **kwargs: Any) -> Any:
        taken = [k for k in range(len(args)) if k not in excluded]
        if cores is not None and len(cores) != len(taken):
            raise ShapeError(
                explained("vectorize", f"{len(cores)} arguments, for {signature}", len(taken), "pass them")
            )
        tensors = {k: as_tensor(args[k]) for k in taken}
        ranks = [0 if cores is None else len(cores[i]) for i in range(len(taken))]
        _check_extents(cores, [tensors[k]._value.shape for k in taken], str(signature))
        loops = [t._value.shape[: len(t._value.shape) - r] for t, r in zip(tensors.values(), ranks, strict=True)]
        around = joined_shape("vectorize", loops) if loops else ()
        function: Function = lambda *xs: pyfunc(*_filled(args, taken, xs), **kwargs)  # noqa: E731
        return _batched(function, around, list(tensors.values()), loops)

    return TransformedFunction(partial(vectorize, excluded=excluded, signature=signature), pyfunc, over_arrays)


def _filled(args: tuple[Any, ...], taken: list[int], xs: tuple[Any, ...]) -> list[Any]:
    filled = list(args)
    for k, x in zip(taken, xs, strict=True):
        filled[k] = x
    return filled


def _batched(function: Function, around: Shape, tensors: list[Any], loops: list[Shape]) -> Any:
    """The function over the axes `around`, of which each argument has its `loops`, broadcast; the last axis is the
    innermost `vmap`, and an argument that lacks an axis is shared along it."""
    arguments = []
    for t, own in zip(tensors, loops, strict=True):
        kept = tuple(n for n, whole in zip(own, around[len(around) - len(own) :], strict=True) if n == whole != 1)
        arguments.append(reshape(t, (*kept, *t._value.shape[len(own) :])))
    for d in reversed(range(len(around))):
        if around[d] == 1:
            continue
        axes = [0 if (k := d - len(around) + len(own)) >= 0 and own[k] == around[d] else None for own in loops]
        function = vmap(function, in_axes=tuple(axes))
    results = function(*arguments)
    if 1 not in around:
        return results
    missing = len([n for n in around if n != 1])
    return map_leaves(lambda r: reshape(r, (*around, *as_tensor(r)._value.shape[missing:])), results)


def _cores(signature: str) -> list[list[str]]:
    """The names of the axes of each argument."""
    text = signature.replace(" ", "")
    if not re.fullmatch(rf"{_CORE}(?:,{_CORE})*->{_CORE}(?:,{_CORE})*", text):
        fix = "write one group for each argument and result"
        raise ValueError(explained("vectorize", "a signature like '(m,n),(n)->(m)'", repr(signature), fix))
    return [[n for n in group[1:-1].split(",") if n] for group in re.findall(_CORE, text.split("->")[0])]


def _check_extents(cores: list[list[str]] | None, shapes: list[Shape], signature: str) -> None:
    extents: dict[str, int] = {}
    for names, shape in zip(cores or (), shapes, strict=False):
        if len(shape) < len(names):
            raise ShapeError(explained("vectorize", f"arguments for {signature}", shape, "add the missing axes"))
        for name, extent in zip(names, shape[len(shape) - len(names) :], strict=True):
            if extents.setdefault(name, extent) != extent:
                got = f"{extents[name]} and {extent}"
                raise ShapeError(explained("vectorize", f"one extent of {name} in {signature}", got, "check the axes"))


@traced_once
def map(f: Function, xs: Tree, *, batch_size: int | None = None) -> Tree:
    """`f(x)` for each row x of `xs`, a tree of arrays with equal first axes, one after the other; the results stacked.

    `lg.vmap(f)(xs)` gives the same at once, and needs memory for all rows at once; `batch_size` rows go together.
    Raises ShapeError where the first axes differ, ValueError for a `batch_size` below 1.

    >>> lg.map(lambda x: lg.sum(x * x), lg.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([ 5., 25.], dtype=float64)
    """
    check_function("map", f)
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]
    if batch_size < 1:
        raise ValueError(explained("map", "a batch_size of at least 1", batch_size, "leave it out"))
    leaves, _ = flatten(xs)
    extents = {t._value.shape[:1] for t in (as_tensor(x) for x in leaves)}
    if len(extents) != 1 or () in extents:
        raise ShapeError(explained("map", "arrays of one first extent", sorted(extents), "slice or pad them"))
    (count,) = extents.pop()
    whole = count // batch_size * batch_size
    if not whole:
        return vmap(f)(xs)
    batches = map_leaves(lambda x: _rows(x, 0, whole).reshape((-1, batch_size, *as_tensor(x)._value.shape[1:])), xs)
    together = scan(lambda _, rows: (None, vmap(f)(rows)), None, batches)[1]
    flat = map_leaves(lambda y: y.reshape((whole, *y.shape[2:])), together)
    if whole == count:
        return flat
    rest = vmap(f)(map_leaves(lambda x: _rows(x, whole, count), xs))
    a, structure = flatten(flat)
    b, _ = flatten(rest)
    return structure.unflatten([concat([p, q]) for p, q in zip(a, b, strict=True)])


def _rows(x: Any, first: int, last: int) -> Any:
    return as_tensor(x)[first:last]
