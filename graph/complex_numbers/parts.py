"""From complex values to their parts and back."""

from __future__ import annotations

from loopgrad.graph import ops
from loopgrad.graph.nodes import Value

Parts = tuple[Value, Value]


def parts(z: Value) -> Parts:
    """The real and the imaginary part; of a constant its numbers."""
    if complex_constant(z) is not None:
        return ops.real_part(z), ops.imaginary_part(z)
    return ops.real(z), ops.imag(z)


def complex_constant(z: Value) -> complex | None:
    """The number that all elements are, where the value is made of constants."""
    if z.dtype.kind != "c" or z.node is None or z.node.op != "complex":
        return None
    re, im = [v.node for v in z.node.operands]
    if re is None or im is None or not re.op == im.op == "const":
        return None
    return complex(re.attrs["value"], im.attrs["value"])


def joined(z: Parts) -> Value:
    return ops.join(*z)
