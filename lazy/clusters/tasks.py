"""What a worker of a Dask cluster runs: exported functions on trees of NumPy arrays.

Programs travel as data (`lg.export`), never as Python code: a worker keeps those that it was sent last, and takes their
machine code from its cache on disk where it is there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from loopgrad.lazy.files.exported import Exported, export
from loopgrad.lazy.numpy.creation import asarray
from loopgrad.lazy.tensor.core import TensorCore
from loopgrad.lazy.tensor.evaluation import arrays_of
from loopgrad.lazy.tensor.trees import Tree, flatten, is_dynamic, unflatten
from loopgrad.lazy.transforms.compiled_arguments import type_of
from loopgrad.lazy.transforms.shape_evaluation import ShapeDtypeStruct

PROGRAMS: Final = 16  # that a worker remembers
HALVES: Final = ("float16", "bfloat16")
Kind = tuple[Any, tuple[Any, ...]]


def as_arrays(tree: Tree) -> Tree:
    """The tree with NumPy arrays in place of tensors, which other processes take as they are."""
    leaves, structure = flatten(tree)
    arrays = iter(arrays_of([x for x in leaves if isinstance(x, TensorCore)]))
    return unflatten(structure, [next(arrays) if isinstance(x, TensorCore) else x for x in leaves])


def signature(tree: Tree) -> Tree:
    """The tree with shapes and dtypes in place of arrays; numbers and other leaves are as they were."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [_described(x) for x in leaves])


def _described(leaf: Any) -> Any:
    if not is_dynamic(leaf) or isinstance(leaf, bool | int | float | complex):
        return leaf
    type = type_of(leaf)
    return ShapeDtypeStruct(type.shape, type.dtype)


def program(fun: Callable[..., Any], args: Sequence[Any]) -> bytes:
    """The function for such arguments, as data."""
    exported = fun if isinstance(fun, Exported) else export(fun, *args)
    return pickle.dumps(exported)


@lru_cache(PROGRAMS)
def _function(data: bytes) -> Exported:
    exported: Exported = pickle.loads(data)
    return exported


def same(data: Any) -> Any:
    """What all tasks need, as the result of one: unlike scattered data it is made again where its workers died."""
    return data


def loaded(shard: Any) -> Tree:
    """A shard, where it is given as the function that reads it."""
    return as_arrays(shard()) if callable(shard) else shard


class Unknown(NamedTuple):
    """In place of a result: what a shard is like, for which the worker was sent no program."""

    signature: Tree


def kind_of(described: Tree) -> Kind:
    """What tells signatures apart. Of numbers it is their type."""
    leaves, structure = flatten(described)
    return structure, tuple([type(x) if is_dynamic(x) else (type(x), x) for x in leaves])


def described(shard: Any) -> Tree:
    """The signature of a shard."""
    return signature(loaded(shard))


def run(programs: Mapping[Kind, bytes], parameters: Tree, shard: Any) -> Tree:
    """The result for one shard, or an `Unknown`."""
    read = loaded(shard)
    found = signature(read)
    data = programs.get(kind_of(found))
    return Unknown(found) if data is None else as_arrays(_function(data)(parameters, read))


def unknown(result: Tree) -> Tree:
    """The signature of a shard that is to be tried again, None where there is a result."""
    return result.signature if isinstance(result, Unknown) else None


def run_points(data: bytes, points: Sequence[dict[str, Any]]) -> list[Tree]:
    """The results for some points of a grid."""
    function = _function(data)
    return [as_arrays(function(point)) for point in points]


class Partial(NamedTuple):
    """The sum of some results: totals of leaves, and the rests that their additions lost (None of integers)."""

    totals: Tree
    rests: tuple[Any, ...]


def added(one: Tree, other: Tree) -> Partial:
    """The sum of two results or sums, leaf by leaf, as a mesh adds what shards give
    (`graph.placement.sums.Combination`)."""
    (left, left_rests), (right, right_rests) = _parts(one), _parts(other)
    structure = flatten(one.totals if isinstance(one, Partial) else one)[1]
    with np.errstate(all="ignore"):
        pairs = [_joined(*each) for each in zip(left, right, left_rests, right_rests, strict=True)]
    return Partial(unflatten(structure, [total for total, _ in pairs]), tuple([rest for _, rest in pairs]))


def _parts(tree: Tree) -> tuple[Sequence[Any], Sequence[Any]]:
    if isinstance(tree, Partial):
        return flatten(tree.totals)[0], tree.rests
    leaves = [_wide(np.asarray(x)) for x in flatten(tree)[0]]
    return leaves, [None] * len(leaves)


def _wide(array: Any) -> Any:
    """Halves are added up as float32."""
    return array.astype(np.float32) if array.dtype.name in HALVES else array


def _joined(x: Any, y: Any, x_rest: Any, y_rest: Any) -> tuple[Any, Any]:
    total = np.add(x, y)
    if total.dtype.kind not in "fc":
        return total, None
    moved = total - x
    rests = [rest for rest in (x_rest, y_rest) if rest is not None]
    rests.append((y - moved) - ((total - moved) - x))
    rest = rests[0]
    for other in rests[1:]:
        rest = rest + other
    return total, rest


def rounded(tree: Tree, like: Tree) -> Tree:
    """A sum as numbers of the dtypes that results have."""
    if not isinstance(tree, Partial):
        return tree
    totals, structure = flatten(tree.totals)
    leaves = flatten(like)[0]
    with np.errstate(all="ignore"):
        sums = [np.asarray(_one(t, r), np.asarray(x).dtype) for t, r, x in zip(totals, tree.rests, leaves, strict=True)]
    return unflatten(structure, sums)


def _one(total: Any, rest: Any) -> Any:
    """The total where the rest says nothing, as beside infinities."""
    if rest is None:
        return total
    if total.dtype.kind == "c":
        found = np.empty_like(total)
        found.real, found.imag = _one(total.real, rest.real), _one(total.imag, rest.imag)
        return found
    value = total + rest
    return np.where(np.isnan(rest) | (value == total), total, value)


def as_tensors(tree: Tree) -> Tree:
    """The tree with tensors in place of NumPy arrays."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [asarray(x) for x in leaves])
