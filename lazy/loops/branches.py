"""Choices: `cond` and `switch`.

Every branch is traced; only the chosen one runs. An array predicate of shape S chooses for each
element by itself: results then start with S (scalars are stretched to it), and a branch that wasn't
chosen for a lane leaves no trace there, not even a NaN in a derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loopgrad.graph import region_ops
from loopgrad.graph.accumulators import chain_from
from loopgrad.graph.build import emit, inline, trace
from loopgrad.graph.errors import DTypeError, ShapeError, explained
from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.types import DType, TensorType
from loopgrad.lazy.loops.traced_functions import Traced, kind_of, trace_tree
from loopgrad.lazy.tensor.core import ArrayLike, as_tensor, broadcast_value, cast_value, copied, is_scalar, wrap
from loopgrad.lazy.tensor.operands import Shape, as_bool
from loopgrad.lazy.tensor.promotion import promote_all, promote_weak
from loopgrad.lazy.tensor.repeated_calls import traced_once
from loopgrad.lazy.tensor.storage import private
from loopgrad.lazy.tensor.trees import Tree, check_function, flatten, leaf_names, map_leaves, structure_error, unflatten

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC: Final = "cond switch"
Branch = Callable[..., Any]


@traced_once
def cond(pred: ArrayLike, true_fun: Branch, false_fun: Branch, *operands: Tree) -> Tree:
    """`true_fun(*operands)` where `pred` holds, else `false_fun(*operands)`.

    A Python bool decides now. A tensor of shape () decides when the program runs: only one side does. One of shape S
    decides for each element: results then start with S (scalars are stretched to it), and the side that wasn't chosen
    leaves no trace, not even a NaN in a derivative. Both sides return trees of one structure; numbers give way to
    arrays in dtype. `operands` are trees; what the functions read from around them is differentiated as well.

    Raises DTypeError for a float predicate and where the sides' dtypes differ, ShapeError or StructureError where their
    shapes or structures do, TypeError for a side that isn't a function.

    >>> x = lg.asarray([4.0, -1.0])
    >>> lg.cond(x > 0, lg.sqrt, lambda v: 0.0, x)
    Tensor([2., 0.], dtype=float64)
    """
    check_function("cond true_fun", true_fun)
    check_function("cond false_fun", false_fun)
    if is_scalar(pred) or isinstance(pred, np.bool_):
        return _decided(true_fun if pred else false_fun, operands)
    predicate = as_tensor(pred)
    if predicate._value.dtype.kind not in "biu":
        fix = "compare with something, as in `x > 0`"
        raise DTypeError(explained("cond", "a bool predicate", predicate._value.type, fix))
    return _choose("cond", as_bool(predicate)._value, [true_fun, false_fun], operands, ("true_fun", "false_fun"))


@traced_once
def switch(index: ArrayLike, branches: Sequence[Branch], *operands: Tree) -> Tree:
    """`branches[index](*operands)`; an index out of range takes the nearest branch.

    A Python int decides now, an integer tensor of shape () when the program runs, one of shape S for each element.
    Results are as for `cond`.

    Raises ValueError without branches, TypeError for one that isn't a function, DTypeError for a float index.

    >>> lg.switch(lg.asarray([0, 1, 7]), [lg.negative, lg.square, lg.sqrt], lg.asarray([4.0, 4.0, 4.0]))
    Tensor([-4., 16.,  2.], dtype=float64)
    """
    if not isinstance(branches, Sequence):
        raise TypeError(explained("switch", "a list or tuple of functions", repr(branches), "write [f, g]"))
    if not branches:
        raise ValueError(explained("switch", "at least one branch", "none", "pass a branch"))
    names = [f"branches[{i}]" for i in range(len(branches))]
    for name, branch in zip(names, branches, strict=True):
        check_function(f"switch {name}", branch)
    if isinstance(index, int | np.integer):
        return _decided(branches[min(max(int(index), 0), len(branches) - 1)], operands)
    t = as_tensor(index)
    if t._value.dtype.kind not in "biu":
        fix = "round and convert it with .astype(lg.int32)"
        raise DTypeError(explained("switch", "an integer index", t._value.type, fix))
    return _choose("switch", t._value, list(branches), operands, names)


def _decided(branch: Branch, operands: Tree) -> Tree:
    """What a branch gives that is known to be taken, with arguments and results of its own, as traced branches have."""
    result = branch(*map_leaves(private, tuple(operands)))
    return map_leaves(lambda leaf: private(as_tensor(leaf) if is_scalar(leaf) else leaf), result)


def _choose(what: str, index: Value, branches: list[Branch], operands: Tree, names: Sequence[str]) -> Tree:
    leaves, structure = flatten(tuple(operands))
    tensors = [as_tensor(x) for x in leaves]
    kinds = [kind_of(x) for x in leaves]
    traced = [
        trace_tree(f"{what} {n}", _spread(f), structure, kinds, leaves=tensors)
        for f, n in zip(branches, names, strict=True)
    ]
    for other, name in zip(traced[1:], names[1:], strict=True):
        if other.structure != traced[0].structure:
            raise structure_error(f"{what} {name} (to match {names[0]})", traced[0].structure, other.structure)
    lanes = index.shape
    handed = _handed_on(traced)
    made = [j for j in range(len(traced[0].graph.outputs)) if j not in handed]
    results: dict[int, Tensor] = {j: copied(tensors[i]) for j, i in handed.items()}
    results.update(zip(made, _made(what, index, [_only(t, made) for t in traced], tensors, names, lanes), strict=True))
    return unflatten(traced[0].structure, [results[j] for j in range(len(results))])


def _handed_on(traced: Sequence[Traced]) -> dict[int, int]:
    """Result -> operand, for results that are one operand in every branch: there is nothing to choose."""
    first = traced[0].graph
    own = len(first.inputs) - len(traced[0].captures)
    found = {j: first.inputs.index(v) for j, v in enumerate(first.outputs) if v in first.inputs[:own]}
    return {j: i for j, i in found.items() if all(t.graph.outputs[j] is t.graph.inputs[i] for t in traced)}


def _only(traced: Traced, results: Sequence[int]) -> Traced:
    graph = traced.graph
    kept = Graph(graph.inputs, graph.nodes, tuple([graph.outputs[j] for j in results]))
    return replace(traced, graph=kept, weak=tuple([traced.weak[j] for j in results]))


def _made(
    what: str, index: Value, traced: list[Traced], tensors: list[Tensor], names: Sequence[str], lanes: Shape
) -> list[Tensor]:
    """The results that the chosen branch makes."""
    count = len(traced[0].graph.outputs)
    if not count:
        return []
    shared = [j for j in range(count) if lanes and _is_shared_output(traced, j, lanes)]
    weak = tuple([all(t.weak[j] for t in traced) for j in range(count)])
    types = [_result_type(what, names, traced, j, lanes, j in shared) for j in range(count)]
    read = [i for i in range(len(tensors)) if any(_reads(t.graph, i) for t in traced)]
    regions = [(_with_operands(_converted(t, types, lanes).graph, read, len(tensors)), t.captures) for t in traced]
    if what == "cond":
        regions.reverse()  # False is 0
    graphs, captures = region_ops.share_captures(regions)
    values = [*(tensors[i]._value for i in read), *captures]
    results = region_ops.switch(index, graphs, values, shared=shared)
    return [wrap(v, w) for v, w in zip(results, weak, strict=True)]


def _reads(branch: Graph, argument: int) -> bool:
    value = branch.inputs[argument]
    return value in branch.outputs or any(value in node.operands for node in branch.nodes)


def _with_operands(branch: Graph, kept: Sequence[int], count: int) -> Graph:
    """The branch without the operands that no branch reads."""
    return Graph((*[branch.inputs[i] for i in kept], *branch.inputs[count:]), branch.nodes, branch.outputs)


def _spread(function: Branch) -> Callable[[Any], Any]:
    return lambda operands: function(*operands)


def _result_type(
    what: str, names: Sequence[str], traced: Sequence[Traced], position: int, lanes: Shape, shared: bool
) -> TensorType:
    """The type that every branch's result at a position is given."""
    found = [(t.graph.outputs[position], t.weak[position]) for t in traced]
    types = [TensorType(v.shape, v.dtype) for v, _ in found]
    leaf = leaf_names(traced[0].structure, "result")[position]
    dtype = _same_dtype([(t, w) for t, (_, w) in zip(types, found, strict=True)])
    if dtype is None:
        other = next(i for i, t in enumerate(types) if t.dtype is not types[0].dtype)
        raise _differs(what, names, other, leaf, types)
    if shared:
        return TensorType(types[0].shape, dtype)
    shapes = [t.shape for t, (_, w) in zip(types, found, strict=True) if t.shape or not (w or lanes)] or [lanes]
    shape = max(shapes, key=len)
    if shape[: len(lanes)] != lanes:
        fix = "give each lane its own: stretch the result to the lanes"
        raise ShapeError(explained(what, f"{leaf} with a shape that starts with the lanes {lanes}", shape, fix))
    if any(s != shape and not (lanes and s == lanes) for s in shapes):
        other = next(i for i, t in enumerate(types) if t.shape != types[0].shape)
        raise _differs(what, names, other, leaf, types)
    return TensorType(shape, dtype)


def _differs(
    what: str, names: Sequence[str], other: int, leaf: str, types: Sequence[TensorType]
) -> DTypeError | ShapeError:
    error = DTypeError if types[other].dtype is not types[0].dtype else ShapeError
    fix = "make the branches' results agree (.astype, lg.broadcast_to)"
    expected = f"{leaf} of type {types[0]}, as {names[0]} returns"
    return error(explained(f"{what} {names[other]}", expected, types[other], fix))


def _converted(traced: Traced, types: Sequence[TensorType], lanes: Shape) -> Traced:
    graph = traced.graph
    if graph.output_types == tuple(types):
        return traced

    def run(*values: Value) -> list[Value]:
        results = inline(graph, values)
        return [_stretch_lanes(cast_value(v, t.dtype), t.shape) for v, t in zip(results, types, strict=True)]

    converted, captured = trace(run, graph.input_types)
    assert not captured
    return replace(traced, graph=converted)


def _is_shared_output(traced: Sequence[Traced], position: int, lanes: Shape) -> bool:
    """Whether a result is one operand, in every branch only scattered into or passed on."""
    arguments = set()
    scatters = 0
    for t in traced:
        found = None
        for i, v in enumerate(t.graph.inputs[: len(t.graph.inputs) - len(t.captures)]):
            chain = chain_from(t.graph, i) if v.shape[: len(lanes)] != lanes else None
            if chain is not None and chain.output == position and chain.over(lanes):
                found, scatters = i, scatters + chain.scatters
        if found is None:
            return False
        arguments.add(found)
    return len(arguments) == 1 and scatters > 0


def _stretch_lanes(value: Value, shape: Shape) -> Value:
    """`broadcast_value`, but dims are aligned at the front where the value has the lanes already."""
    if value.shape == shape[: len(value.shape)]:
        return value if value.shape == shape else _leading(value, shape)
    return broadcast_value(value, shape)


def _leading(value: Value, shape: Shape) -> Value:
    return emit("broadcast", (value,), {"shape": shape, "dims": tuple(range(len(value.shape)))})[0]


def _same_dtype(types: Sequence[tuple[TensorType, bool]]) -> DType | None:
    """The one dtype of several results, of which weak ones give way; None where arrays differ."""
    strong = [t.dtype for t, weak in types if not weak]
    if not strong:
        dtype, _ = promote_all(*[(t.dtype, True) for t, _ in types])
        return dtype
    first = strong[0]
    if any(d is not first for d in strong):
        return None
    fits = all(promote_weak(first, t.dtype) is first for t, weak in types if weak)
    return first if fits else None
