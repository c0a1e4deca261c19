"""Derivatives of joining and taking the parts of complex numbers.

A cotangent of z is the pair of those of its parts: ct = dL/d(re z) + i dL/d(im z), the direction in which a real loss
grows fastest. So every rule here, and whatever is linear and the same for both parts, is that of two reals.
"""

from __future__ import annotations

from typing import Final

from loopgrad.autodiff.rules.elementwise import Partials
from loopgrad.autodiff.rules.movement import Rule, Values
from loopgrad.graph import ops
from loopgrad.graph.nodes import Node, Value


def _real_part(t: Value, node: Node) -> Value:
    """Between a real number and the real part of a complex one: a cotangent goes the one way, a tangent the other."""
    return ops.real_part(t) if t.dtype.kind == "c" else ops.join(t, ops.zeros_like(t))


def _imaginary_part(t: Value, node: Node) -> Value:
    return ops.imaginary_part(t) if t.dtype.kind == "c" else ops.join(ops.zeros_like(t), t)


PARTIALS: Final[dict[str, Partials]] = {
    "complex": (_real_part, _imaginary_part),
    "real": (_real_part,),
    "imag": (_imaginary_part,),
}


def _as_pairs(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,) = tangents
    assert t is not None
    return (ops.pairs(t),)


def _from_pairs(node: Node, tangents: Values) -> tuple[Value | None, ...]:
    (t,) = tangents
    assert t is not None
    return (ops.from_pairs(t),)


JVP: Final[dict[str, Rule]] = {"pairs": _as_pairs, "from_pairs": _from_pairs}
VJP: Final[dict[str, Rule]] = {"pairs": _from_pairs, "from_pairs": _as_pairs}
