"""Region primitives: for, while, switch, call. The interpreter defines what they do (graph.interpret).

  for     (count, *inits, *captures) -> carries. attrs carries (how many), lanes (rank of count), shared,
          reverse, name, memory_budget. One region: (k, *carries, *captures) -> carries.
  while   (*inits, *captures) -> carries. attrs carries, lanes (rank of the predicate), shared, max_steps,
          name, memory_budget. Two regions over (*carries, *captures): -> one bool, -> carries.
  switch  (index, *operands) -> the chosen branch's results. attrs lanes (rank of index), shared (positions
          among the results). One region a branch: (*operands) -> results.
  call    (*operands) -> the results of the first region, which takes all of them. attrs kind, arguments, name, save
          (what a recomputed function keeps, see autodiff.calls), lanes (0), shared as for a switch.
            plain      stands for its region
            recompute  plain, but its reverse pass computes the region again
            again      what does so; never merged with what was computed before
            routine    plain, but stays for scheduling: a device may have a routine of that name, whose attributes are
                       those in `routine`. It keeps all operands and results
            jvp        second region (*operands, *tangents) -> results, tangents: the derivative, linear in tangents
            vjp        regions (*operands) -> results, residuals and (*residuals, *cotangents) -> cotangents; with attr
                       linear the function is linear in its arguments, so forward mode needs no rule
            opaque     no derivative is known
          Rules are about the first `arguments` operands, the others are captured: tangents and cotangents are those of
          arguments and results that are differentiable.

With lanes = 0 these mean what they say. With lanes > 0 the count, predicate or index has a shape S and
each element is a lane of its own: carries and results have shapes S + T, except the positions in
`shared` (accumulators of any shape that only scatters touch) and stacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loopgrad.graph.nodes import Graph, Value
from loopgrad.graph.primitives.primitive import (
    Attrs,
    Kind,
    Primitive,
    Types,
    dtype_error,
    require_kinds,
    shape_error,
    table,
    tensor_type,
)
from loopgrad.graph.types import StackType, TensorType

_COUNT_DTYPES: Final = ("int32", "int64")


def _expect_types(op: str, what: str, expected: Sequence[object], got: Sequence[object]) -> None:
    if len(expected) != len(got):
        raise shape_error(op, f"{len(expected)} {what}", len(got), f"return as many {what} as the loop or branch has")
    for position, (e, g) in enumerate(zip(expected, got, strict=True)):
        if e == g:
            continue
        same_dtype = isinstance(e, TensorType) and isinstance(g, TensorType) and e.dtype is g.dtype
        error = shape_error if same_dtype else dtype_error
        raise error(op, f"{what}[{position}] of type {e}", g, "give it the same type on every path")


def _expect_lanes(op: str, what: str, types: Types, lanes: tuple[int, ...], shared: Sequence[int]) -> None:
    for position, t in enumerate(types):
        if position in shared or isinstance(t, StackType):
            continue
        if t.shape[: len(lanes)] != lanes:
            raise shape_error(
                op, f"{what}[{position}] of a shape that starts with the lanes {lanes}", t, "broadcast it to the lanes"
            )


def _lanes_of(op: str, what: str, type: TensorType, lanes: int) -> tuple[int, ...]:
    if len(type.shape) != lanes:
        raise shape_error(op, f"a {what} of rank {lanes}", type, "set lanes to its rank")
    return type.shape


def _infer_for(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    (body,) = regions
    n: int = attrs["carries"]
    count = tensor_type("for", operands[0])
    if count.dtype.name not in _COUNT_DTYPES:
        raise dtype_error("for", "an int32 or int64 trip count", count, "cast the bound to an integer")
    lanes = _lanes_of("for", "trip count", count, attrs["lanes"])
    types = tuple([v.type for v in operands])
    carries = types[1 : 1 + n]
    _expect_types("for", "body inputs", types, body.input_types)
    _expect_types("for", "carries", carries, body.output_types)
    _expect_lanes("for", "carries", carries, lanes, attrs["shared"])
    return carries


def _infer_while(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    cond, body = regions
    types = tuple([v.type for v in operands])
    carries = types[: attrs["carries"]]
    _expect_types("while", "condition inputs", types, cond.input_types)
    _expect_types("while", "body inputs", types, body.input_types)
    _expect_types("while", "carries", carries, body.output_types)
    if len(cond.outputs) != 1:
        raise shape_error("while", "one result of the condition", len(cond.outputs), "return one bool")
    pred = tensor_type("while", cond.outputs[0])
    require_kinds("while", pred, "b")
    lanes = _lanes_of("while", "condition", pred, attrs["lanes"])
    _expect_lanes("while", "carries", carries, lanes, attrs["shared"])
    return carries


def _infer_switch(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    if not regions:
        raise shape_error("switch", "at least one branch", "none", "pass a branch")
    index = tensor_type("switch", operands[0])
    require_kinds("switch", index, "biu")
    lanes = _lanes_of("switch", "index", index, attrs["lanes"])
    types = tuple([v.type for v in operands[1:]])
    results = regions[0].output_types
    for branch in regions:
        _expect_types("switch", "branch inputs", types, branch.input_types)
        _expect_types("switch", "branch results", results, branch.output_types)
    _expect_lanes("switch", "branch results", results, lanes, attrs["shared"])
    return results


def differentiable_types(types: Sequence[TensorType | StackType]) -> Types:
    """Those that have tangents and cotangents."""
    return tuple([t for t in types if isinstance(t, TensorType) and t.dtype.differentiable])


def _infer_call(operands: tuple[Value, ...], attrs: Attrs, regions: tuple[Graph, ...]) -> Types:
    types, primal = tuple([v.type for v in operands]), regions[0]
    results = primal.output_types
    _expect_types("call", "inputs", types, primal.input_types)
    arguments, made = differentiable_types(types[: attrs["arguments"]]), differentiable_types(results)
    match attrs["kind"]:
        case "jvp":
            _expect_types("call", "inputs of the tangent rule", (*types, *arguments), regions[1].input_types)
            _expect_types("call", "results of the tangent rule", (*results, *made), regions[1].output_types)
        case "vjp":
            forward, backward = regions[1:]
            _expect_types("call", "inputs of the forward rule", types, forward.input_types)
            _expect_types("call", "results of the forward rule", results, forward.output_types[: len(results)])
            received = (*forward.output_types[len(results) :], *made)
            _expect_types("call", "inputs of the backward rule", received, backward.input_types)
            _expect_types("call", "results of the backward rule", arguments, backward.output_types)
    return results


_LABELS: Final = {"for": ("body",), "while": ("cond", "body")}
_RULES: Final = {"jvp": ("tangent",), "vjp": ("forward", "backward")}


def region_labels(op: str, attrs: Attrs) -> tuple[str, ...]:
    """What the regions are; () where an operation has none, or as many branches as it likes."""
    return ("primal", *_RULES.get(attrs["kind"], ())) if op == "call" else _LABELS.get(op, ())


ROWS: Final[dict[str, Primitive]] = table(
    Primitive(name="for", public="fori_loop", kind=Kind.REGION, infer=_infer_for),
    Primitive(name="while", public="while_loop", kind=Kind.REGION, infer=_infer_while),
    Primitive(name="switch", kind=Kind.REGION, infer=_infer_switch),
    Primitive(name="call", public=None, kind=Kind.REGION, infer=_infer_call),
)
