"""Where lanes, or the examples of a batch, meet.

`psum(x)` and its like without a name are reductions over axis 0, the lanes that the processes of a mesh share; with the
`axis_name` of an `lg.vmap` around they are over the examples of its batch, for whose function they are written, with
JAX's signatures. Of several names, `("i", "j")`, all examples meet; an example's position is counted row by row then.

Every example has the result as its own. So a derivative that is taken inside, of each example's result, is by JAX's
convention that of the sum of all of them: `psum` is its own transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import ops
from loopgrad.graph.errors import ShapeError, explained
from loopgrad.graph.nodes import Value
from loopgrad.lazy.mesh.sharding import gather_all
from loopgrad.lazy.numpy.creation import arange
from loopgrad.lazy.numpy.movement import moveaxis, reshape
from loopgrad.lazy.numpy.reduction import max as largest
from loopgrad.lazy.numpy.reduction import mean
from loopgrad.lazy.numpy.reduction import min as smallest
from loopgrad.lazy.numpy.reduction import sum as total
from loopgrad.lazy.numpy.special_values import where
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, is_scalar, wrap
from loopgrad.lazy.tensor.operands import normal_axis
from loopgrad.lazy.tensor.trees import Tree, map_leaves
from loopgrad.lazy.transforms.named_axes import NamedAxis, named_axes

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = (
    "all_gather all_to_all axis_index axis_size pmax pmean pmin ppermute pshuffle psum psum_scatter pswapaxes"
)
Names = Hashable | Sequence[Hashable]
Axes = tuple[NamedAxis, ...]


def _gathered(x: ArrayLike, axes: Axes) -> Tensor:
    """What all examples have, along a new axis in front: it exists once."""
    t = as_tensor(x)
    value = t._value
    for axis in reversed(axes):
        value = axis.gathered(value)
    return wrap(ops.reshape(value, (_size(axes), *t._value.shape)), t._weak)


def _size(axes: Axes) -> int:
    return prod([axis.size for axis in axes])


def _shared(x: Tensor, axes: Axes) -> Tensor:
    """What exists once, as each example's own."""
    value = x._value
    for axis in axes:
        value = axis.shared(value)
    return wrap(value, x._weak)


def _split(x: Tensor, axes: Axes) -> Tensor:
    """Each example's own row of what exists once."""
    value: Value = ops.reshape(x._value, (*[axis.size for axis in axes], *x._value.shape[1:]))
    for axis in axes:
        value = axis.split(value)
    return wrap(value, x._weak)


def _reduced(what: str, reduction: Callable[..., Tensor], x: Tree, names: Names | None) -> Any:
    if names is None:
        return map_leaves(lambda leaf: reduction(leaf, axis=0), x)
    axes = named_axes(what, names)
    return map_leaves(lambda leaf: _shared(reduction(_gathered(leaf, axes), axis=0), axes), x)


def psum(x: Tree, axis_name: Names | None = None) -> Any:
    """The sum over all examples of the `lg.vmap` whose axis has this name; without a name the sum over lanes (axis 0)
    of a mesh, on every process: `lg.sum(x, axis=0)`, whose bits don't depend on the number of processes.

    `x`: a tensor, or a tree of them. Shapes stay with a name, and lose axis 0 without; dtypes are those of `lg.sum`. A
    Python number is multiplied by the number of examples: `psum(1, "i")` is that number, an int.

    Raises NamedAxisError where no axis has the name, and where examples don't meet: in a loop whose trips differ
    between them, in a branch that not all take.

    >>> lg.psum(lg.shard(lg.arange(4.0), lg.mesh()))
    Tensor(6., dtype=float64)
    >>> lg.vmap(lambda x: x / lg.psum(x, "i"), axis_name="i")(lg.asarray([1.0, 3.0]))
    Tensor([0.25, 0.75], dtype=float64)
    """
    if axis_name is None:
        return _reduced("psum", total, x, None)
    axes = named_axes("psum", axis_name)
    n = _size(axes)
    return map_leaves(lambda leaf: leaf * n if is_scalar(leaf) else _reduced("psum", total, leaf, axis_name), x)


def pmean(x: Tree, axis_name: Names | None = None) -> Any:
    """The mean over the examples of a named axis, or over lanes (axis 0): see `lg.psum` and `lg.mean`.

    Raises NamedAxisError as `lg.psum` does. Shapes are those of `lg.psum`, dtypes those of `lg.mean`.

    >>> lg.pmean(lg.shard(lg.arange(4.0), lg.mesh()))
    Tensor(1.5, dtype=float64)
    >>> lg.vmap(lambda x: x - lg.pmean(x, "i"), axis_name="i")(lg.asarray([1.0, 3.0]))
    Tensor([-1.,  1.], dtype=float64)
    """
    return _reduced("pmean", mean, x, axis_name)


def pmax(x: Tree, axis_name: Names | None = None) -> Any:
    """The largest of all examples of a named axis, or of all lanes (axis 0): see `lg.psum` and `lg.max`.

    Raises NamedAxisError as `lg.psum` does, ShapeError where there is no example and no lane. The dtype stays. The
    derivative goes where that of `lg.max` goes.

    >>> lg.pmax(lg.shard(lg.arange(4.0), lg.mesh()))
    Tensor(3., dtype=float64)
    >>> lg.vmap(lambda x: x == lg.pmax(x, "i"), axis_name="i")(lg.asarray([1.0, 3.0]))
    Tensor([False,  True], dtype=bool)
    """
    return _reduced("pmax", largest, x, axis_name)


def pmin(x: Tree, axis_name: Names | None = None) -> Any:
    """The smallest of all examples of a named axis, or of all lanes (axis 0), as `lg.pmax` has the largest.

    Raises NamedAxisError as `lg.psum` does, ShapeError where there is no example and no lane. The dtype stays.

    >>> lg.pmin(lg.shard(lg.arange(4.0), lg.mesh()))
    Tensor(0., dtype=float64)
    """
    return _reduced("pmin", smallest, x, axis_name)


def all_gather(x: Tree, axis_name: Names | None = None, *, axis: int = 0, tiled: bool = False) -> Any:
    """What all examples of a named axis have as `x`, along a new axis of the result, or (`tiled`) one behind the other
    along an axis that x has. Without a name: all lanes of `x`, on every process, as `lg.gather_all(x)` gives them.

    The dtype stays; x of shape (3,) in a batch of 2 becomes (2, 3), or (6,) tiled. Raises NamedAxisError as `lg.psum`
    does, ShapeError (AxisError) for an axis that isn't there.

    >>> lg.all_gather(lg.shard(lg.arange(3.0), lg.mesh()))
    Tensor([0., 1., 2.], dtype=float64)
    >>> lg.vmap(lambda x: x * lg.all_gather(x, "i"), axis_name="i")(lg.asarray([1.0, 3.0]))
    Tensor([[1., 3.],
            [3., 9.]], dtype=float64)
    """
    if axis_name is None:
        return map_leaves(gather_all, x)
    axes = named_axes("all_gather", axis_name)

    def leaf(part: ArrayLike) -> Tensor:
        return _placed("all_gather", _shared(_gathered(part, axes), axes), axis, tiled)

    return map_leaves(leaf, x)


def _placed(what: str, rows: Tensor, axis: int, tiled: bool) -> Tensor:
    """The leading axis where it belongs; `tiled`: within the axis that is there."""
    rank = len(rows.shape)
    d = normal_axis(what, axis, rank - 1 if tiled else rank)
    moved = moveaxis(rows, 0, d)
    if not tiled:
        return moved
    shape = moved.shape
    return reshape(moved, (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2 :]))


def _cut(what: str, x: Tensor, axis: int, n: int, tiled: bool) -> Tensor:
    """An axis in front with a part of `x` for each of n examples."""
    d = normal_axis(what, axis, len(x.shape))
    extent = x.shape[d]
    if extent % n if tiled else extent != n:
        expected = f"an extent that {n} divides along axis {d}" if tiled else f"an extent of {n} along axis {d}"
        raise ShapeError(explained(what, expected, x._value.type, "give each example of the named axis a part"))
    if tiled:
        x = reshape(x, (*x.shape[:d], n, extent // n, *x.shape[d + 1 :]))
    return moveaxis(x, d, 0)


def psum_scatter(x: Tree, axis_name: Names, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """The sum over all examples of a named axis, of which each gets a part: its own row along `scatter_dimension`,
    whose extent is the number of examples, or (`tiled`) several rows. The transpose of `lg.all_gather`.

    x of shape (2, 3) in a batch of 2 becomes (3,); dtypes are those of `lg.sum`. Raises NamedAxisError as `lg.psum`
    does, ShapeError for another extent.

    >>> lg.vmap(lambda x: lg.psum_scatter(x, "i"), axis_name="i")(lg.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([4., 6.], dtype=float64)
    """
    axes = named_axes("psum_scatter", axis_name)

    def leaf(part: ArrayLike) -> Tensor:
        summed = total(_gathered(part, axes), axis=0)
        return _split(_cut("psum_scatter", summed, scatter_dimension, _size(axes), tiled), axes)

    return map_leaves(leaf, x)


def all_to_all(x: Tree, axis_name: Names, split_axis: int, concat_axis: int, *, tiled: bool = False) -> Any:
    """Each example of a named axis gets its part of every example's `x`, cut along `split_axis`, whose extent is the
    number of examples; the parts stand along a new axis `concat_axis`. `tiled`: parts of several rows, one behind the
    other along an axis that is there.

    x of shape (2, 3) in a batch of 2, split along 0, becomes (2, 3). The dtype stays. Raises NamedAxisError as
    `lg.psum` does, ShapeError for another extent.

    >>> lg.vmap(lambda x: lg.all_to_all(x, "i", 0, 0), axis_name="i")(lg.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[1., 3.],
            [2., 4.]], dtype=float64)
    """
    axes = named_axes("all_to_all", axis_name)

    def leaf(part: ArrayLike) -> Tensor:
        rows = moveaxis(_gathered(part, axes), 0, -1)  # examples last: cutting counts the axes of one
        d = normal_axis("all_to_all", split_axis, len(rows.shape) - 1)
        parts = moveaxis(_cut("all_to_all", rows, d, _size(axes), tiled), -1, 1)
        return _placed("all_to_all", _split(parts, axes), concat_axis, tiled)

    return map_leaves(leaf, x)


def pswapaxes(x: Tree, axis_name: Names, axis: int) -> Any:
    """The named axis exchanged with an axis of `x`, whose extent is the number of examples: `lg.all_to_all` along it.

    Shapes and dtypes stay. Raises what `lg.all_to_all` raises.

    >>> lg.vmap(lambda x: lg.pswapaxes(x, "i", 0), axis_name="i")(lg.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[1., 3.],
            [2., 4.]], dtype=float64)
    """
    return all_to_all(x, axis_name, axis, axis)


def ppermute(x: Tree, axis_name: Names, perm: Sequence[tuple[int, int]]) -> Any:
    """What other examples of a named axis have: of each pair (source, destination) the destination gets the source's
    `x`; who is no destination gets zeros.

    Shapes and dtypes stay. Raises NamedAxisError as `lg.psum` does, ValueError for a position that there isn't or that
    occurs twice.

    >>> lg.vmap(lambda x: lg.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(lg.asarray([1.0, 2.0, 3.0]))
    Tensor([0., 1., 2.], dtype=float64)
    """
    axes = named_axes("ppermute", axis_name)
    n, pairs = _size(axes), [(int(source), int(target)) for source, target in perm]
    for ends in zip(*pairs, strict=True):
        if len(set(ends)) != len(ends) or not all(0 <= end < n for end in ends):
            fix = "name each source and each destination once"
            raise ValueError(explained("ppermute", f"different positions from 0 to {n - 1}", pairs, fix))
    sources, known = np.zeros(n, np.int64), np.zeros(n, bool)
    for source, target in pairs:
        sources[target], known[target] = source, True

    def leaf(part: ArrayLike) -> Tensor:
        rows = _gathered(part, axes)[sources]
        mask = known.reshape(n, *[1] * (len(rows.shape) - 1))
        return _split(rows if known.all() else where(mask, rows, np.zeros((), rows.dtype.np)), axes)

    return map_leaves(leaf, x)


def pshuffle(x: Tree, axis_name: Names, perm: Sequence[int]) -> Any:
    """What other examples of a named axis have: example i gets the `x` of example `perm[i]`.

    Shapes and dtypes stay. Raises what `lg.ppermute` raises.

    >>> lg.vmap(lambda x: lg.pshuffle(x, "i", [2, 0, 1]), axis_name="i")(lg.asarray([1.0, 2.0, 3.0]))
    Tensor([3., 1., 2.], dtype=float64)
    """
    return ppermute(x, axis_name, [(source, target) for target, source in enumerate(perm)])


def axis_index(axis_name: Names) -> Tensor:
    """Which example of a named axis this one is, counted from 0, of several names row by row: an int64.

    Raises NamedAxisError where no axis has the name.

    >>> lg.vmap(lambda x: x * lg.axis_index("i"), axis_name="i")(lg.asarray([1.0, 2.0, 3.0]))
    Tensor([0., 2., 6.], dtype=float64)
    """
    axes = named_axes("axis_index", axis_name)
    return _split(arange(_size(axes)), axes)


def axis_size(axis_name: Names) -> int:
    """How many examples a named axis has, as an int; of several names their product.

    Raises NamedAxisError where no axis has the name.

    >>> lg.vmap(lambda x: x / lg.axis_size("i"), axis_name="i")(lg.ones(2))
    Tensor([0.5, 0.5], dtype=float64)
    """
    return _size(named_axes("axis_size", axis_name))
