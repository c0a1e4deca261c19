"""`lg.tree`: functions over trees of arrays, by the names and with the arguments of `jax.tree`.

A tree is what compiled functions, loops and derivatives take (`lazy.tensor.trees`): tuples, lists, dicts,
`OrderedDict`, `defaultdict`, `deque`, named tuples, dataclasses, classes of attrs, None (a tree without leaves), and
classes given to `lg.register_pytree`. Anything else is a leaf, tensors or not. Dicts have their leaves in the order of
their keys, `OrderedDict` in its own.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.numpy import elementwise_compositions as compositions
from loopgrad.lazy.numpy import movement
from loopgrad.lazy.numpy.creation import zeros
from loopgrad.lazy.numpy.elementwise import logical_and
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor
from loopgrad.lazy.tensor.errors import StructureError
from loopgrad.lazy.tensor.trees import Tree, check_function, matching, spread, structure_error, with_paths
from loopgrad.lazy.tensor.trees import flatten as flattened
from loopgrad.lazy.tensor.trees import unflatten as unflattened

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_TREE: Final = (
    "all allclose broadcast flatten flatten_with_path leaves leaves_with_path map map_with_path ravel reduce stack "
    "structure transpose unflatten unstack"
)
IsLeaf = Callable[[Any], bool] | None
_MISSING: Final = object()


def flatten(tree: Tree, is_leaf: IsLeaf = None) -> tuple[list[Any], Any]:
    """The leaves of a tree in order, and its structure.

    What `is_leaf` is true of isn't looked into. Structures are compared with `==`, can be keys of dicts, and know their
    `num_leaves`.

    >>> lg.tree.flatten({"b": (1, None), "a": 2.0})[0]
    [2.0, 1]
    """
    return flattened(tree, is_leaf)


def unflatten(treedef: Any, leaves: Sequence[Any]) -> Tree:
    """The tree of a structure with these leaves. Raises StructureError for another number of leaves.

    >>> leaves, structure = lg.tree.flatten({"a": 1, "b": [2, 3]})
    >>> lg.tree.unflatten(structure, [10 * x for x in leaves])
    {'a': 10, 'b': [20, 30]}
    """
    if not hasattr(treedef, "num_leaves"):
        raise TypeError(explained("tree.unflatten", "a structure", type(treedef).__name__, "tree.structure gives one"))
    given = list(leaves)
    if len(given) != treedef.num_leaves:
        raise StructureError(explained("tree.unflatten", f"{treedef.num_leaves} leaves", len(given), "give each one"))
    return unflattened(treedef, given)


def leaves(tree: Tree, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree in order.

    >>> lg.tree.leaves([1, (2, {"x": 3}), None])
    [1, 2, 3]
    """
    return flattened(tree, is_leaf)[0]


def structure(tree: Tree, is_leaf: IsLeaf = None) -> Any:
    """The structure of a tree: what is left without its leaves.

    >>> lg.tree.structure([1, 2]) == lg.tree.structure([3.0, "x"])
    True
    """
    return flattened(tree, is_leaf)[1]


def map(f: Callable[..., Any], tree: Tree, *rest: Tree, is_leaf: IsLeaf = None) -> Tree:
    """A tree of `f(leaf)`; with more trees of `f(leaf, what stands there in each of them)`.

    Trees in `rest` have the first one's structure, or subtrees where it has leaves. Raises StructureError for others.

    >>> lg.tree.map(lambda p, g: p - 0.5 * g, {"w": lg.ones(2)}, {"w": lg.asarray([1.0, 2.0])})
    {'w': Tensor([0.5, 0. ], dtype=float64)}
    """
    check_function("tree.map", f)
    first, outer = flattened(tree, is_leaf)
    others = [_up_to("tree.map", outer, other) for other in rest]
    return unflattened(outer, [f(*each) for each in zip(first, *others, strict=True)])


def _up_to(what: str, outer: Any, tree: Tree) -> list[Any]:
    try:
        return outer.flatten_up_to(tree)  # type: ignore[no-any-return]
    except ValueError as error:
        raise structure_error(what, outer, flattened(tree)[1]) from error


def leaves_with_path(tree: Tree, is_leaf: IsLeaf = None) -> list[tuple[tuple[Any, ...], Any]]:
    """Pairs of a path and a leaf of a tree. A path is the tuple of positions, keys and names of fields that lead there.

    >>> lg.tree.leaves_with_path({"w": [1, 2]})
    [(('w', 0), 1), (('w', 1), 2)]
    """
    return flatten_with_path(tree, is_leaf)[0]


def flatten_with_path(tree: Tree, is_leaf: IsLeaf = None) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """`leaves_with_path` and the structure of a tree.

    >>> lg.tree.flatten_with_path((5,))[0]
    [((0,), 5)]
    """
    paths, found, outer = with_paths(tree, is_leaf)
    return list(zip(paths, found, strict=True)), outer


def map_with_path(f: Callable[..., Any], tree: Tree, *rest: Tree, is_leaf: IsLeaf = None) -> Tree:
    """As `lg.tree.map`, of `f(path, leaf, ...)`; paths are those of `leaves_with_path`.

    >>> lg.tree.map_with_path(lambda path, x: x if path[-1] == "w" else 0 * x, {"w": 1.0, "b": 2.0})
    {'w': 1.0, 'b': 0.0}
    """
    check_function("tree.map_with_path", f)
    paths, first, outer = with_paths(tree, is_leaf)
    others = [_up_to("tree.map_with_path", outer, other) for other in rest]
    return unflattened(outer, [f(*each) for each in zip(paths, first, *others, strict=True)])


def reduce(function: Callable[[Any, Any], Any], tree: Tree, initializer: Any = _MISSING, is_leaf: IsLeaf = None) -> Any:
    """`functools.reduce` of the leaves in order. A tree without leaves needs an initializer: else TypeError.

    >>> lg.tree.reduce(lambda total, x: total + x, {"a": 1, "b": [2, 3]}, 10)
    16
    """
    found = flattened(tree, is_leaf)[0]
    return functools.reduce(function, found, *(() if initializer is _MISSING else (initializer,)))


def all(tree: Tree, *, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves are true, as Python's `all` of them; tensors of shape () are evaluated.

    >>> lg.tree.all([True, {"a": lg.asarray(1) > 0}])
    True
    """
    return functools.reduce(lambda so_far, leaf: so_far and bool(leaf), flattened(tree, is_leaf)[0], True)


def broadcast(prefix_tree: Tree, full_tree: Tree, is_leaf: IsLeaf = None) -> Tree:
    """The full tree with leaves of the prefix: each stands for all leaves below its place.

    Raises StructureError where the prefix isn't one.

    >>> lg.tree.broadcast({"a": 1, "b": 2}, {"a": [5, 6], "b": 7})
    {'a': [1, 1], 'b': 2}
    """
    return spread("tree.broadcast", prefix_tree, full_tree, is_leaf)


def transpose(outer_treedef: Any, inner_treedef: Any | None, pytree_to_transpose: Tree) -> Tree:
    """A tree of trees turned inside out: the inner structure with trees of the outer one as leaves.

    Without an inner structure it is that of the first tree within. Raises StructureError where the tree isn't made of
    both.

    >>> outer = lg.tree.structure([0, 0])
    >>> lg.tree.transpose(outer, None, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    for name, given in (("outer", outer_treedef), ("inner", inner_treedef)):
        if given is not None and not hasattr(given, "flatten_up_to"):
            fix = "pass lg.tree.structure of a tree"
            raise StructureError(explained("tree.transpose", f"a structure as the {name} one", repr(given), fix))
    parts = _up_to("tree.transpose", outer_treedef, pytree_to_transpose)
    inner = flattened(parts[0])[1] if inner_treedef is None and parts else inner_treedef
    if inner is None:
        fix = "name the inner structure"
        raise StructureError(explained("tree.transpose", "a tree with leaves", "one without", fix))
    rows = [matching("tree.transpose", inner, part) for part in parts]
    return unflattened(inner, [unflattened(outer_treedef, [row[i] for row in rows]) for i in range(inner.num_leaves)])


def stack(trees: Sequence[Tree], axis: int = 0) -> Tree:
    """One tree of trees of one structure: `lg.stack` of their leaves along a new axis.

    Raises StructureError where structures differ or there is no tree, ShapeError where shapes of leaves do.

    >>> lg.tree.stack([{"x": 1.0}, {"x": 2.0}])
    {'x': Tensor([1., 2.], dtype=float64)}
    """
    given = list(trees)
    if not given:
        raise StructureError(explained("tree.stack", "trees to stack", "none", "give one at least"))
    _, outer = flattened(given[0])
    rows = [matching("tree.stack", outer, tree) for tree in given]
    return unflattened(outer, [movement.stack(column, axis) for column in zip(*rows, strict=True)])


def unstack(tree: Tree, axis: int = 0) -> list[Tree]:
    """The trees that `lg.tree.stack` made one of: one for each element along the axis, which all leaves share.

    Raises ShapeError where extents differ or a leaf has no axes, StructureError for a tree without leaves.

    >>> lg.tree.unstack({"x": lg.asarray([1.0, 2.0])})[1]
    {'x': Tensor(2., dtype=float64)}
    """
    found, outer = flattened(tree)
    if not found:
        raise StructureError(
            explained("tree.unstack", "a tree with leaves", "one without", "there is nothing to split")
        )
    columns = [movement.unstack(as_tensor(x), axis=axis) for x in found]
    extents = sorted({len(column) for column in columns})
    if len(extents) > 1:
        got = f"extents {', '.join(str(n) for n in extents)}"
        raise ShapeError(explained("tree.unstack", "one extent along the axis", got, "split leaves by themselves"))
    return [unflattened(outer, row) for row in zip(*columns, strict=True)]


def ravel(tree: Tree) -> tuple[Tensor, Callable[[ArrayLike], Tree]]:
    """All elements of a tree as one vector, and the function that makes such a tree of such a vector, as JAX's
    `ravel_pytree`.

    The vector has the dtype to which all leaves are promoted, which the way back undoes; a tree without leaves gives an
    empty one. `unravel` raises ShapeError for a vector of another length.

    >>> vector, unravel = lg.tree.ravel({"w": lg.ones((2, 1)), "b": 3.0})
    >>> vector, unravel(2 * vector)["b"]
    (Tensor([3., 1., 1.], dtype=float64), Tensor(6., dtype=float64))
    """
    found, outer = flattened(tree)
    tensors = [as_tensor(x) for x in found]
    shapes = [t._value.shape for t in tensors]
    sizes = [prod(shape) for shape in shapes]
    vector = movement.concat([t.reshape(-1) for t in tensors]) if tensors else zeros(0)

    def unravel(v: ArrayLike) -> Tree:
        given = as_tensor(v)
        if given._value.shape != (total := (builtins.sum(sizes),)):
            fix = "pass a vector such as this one was made with"
            raise ShapeError(explained("tree.ravel", f"a vector of shape {total}", given._value.type, fix))
        parts, start = [], 0
        for t, shape, size in zip(tensors, shapes, sizes, strict=True):
            parts.append(given[start : start + size].reshape(shape).astype(t.dtype))
            start += size
        return unflattened(outer, parts)

    return vector, unravel


def allclose(a: Tree, b: Tree, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether `lg.allclose` holds for all leaves, as a bool tensor of shape ().

    Leaves have one shape in both trees: broadcasting would hide what is missing. Raises StructureError or ShapeError
    where the trees aren't alike.

    >>> lg.tree.allclose({"w": lg.ones(2)}, {"w": lg.ones(2) + 1e-9})
    Tensor(True, dtype=bool)
    """
    first, outer = flattened(a)
    so_far = as_tensor(True)
    for x, y in zip(first, matching("tree.allclose", outer, b), strict=True):
        left, right = as_tensor(x), as_tensor(y)
        if left._value.shape != right._value.shape:
            got = f"{left._value.type} and {right._value.type}"
            raise ShapeError(explained("tree.allclose", "leaves of one shape", got, "compare trees that are alike"))
        so_far = logical_and(so_far, compositions.allclose(left, right, rtol, atol, equal_nan))
    return so_far
