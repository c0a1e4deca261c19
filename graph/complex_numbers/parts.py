"""From complex values to their parts and back."""

from __future__ import annotations

from loopgrad.graph import ops
from loopgrad.graph.nodes import Value, attrs_of_const, passing_node

Parts = tuple[Value, Value]


def parts(z: Value) -> Parts:
    """The real and the imaginary part; of a constant its numbers."""
    if complex_constant(z) is not None:
        return ops.real_part(z), ops.imaginary_part(z)
    return ops.real(z), ops.imag(z)


def complex_constant(z: Value) -> complex | None:
    """The number that all elements are, where the value is made of constants."""
    node = passing_node(z) if z.dtype.kind == "c" else None
    if node is None or node.op != "complex":
        return None
    re, im = map(attrs_of_const, node.operands)
    return None if re is None or im is None else complex(re["value"], im["value"])


def joined(z: Parts) -> Value:
    return ops.join(*z)
