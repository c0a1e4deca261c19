"""What a program that runs directly holds: its constants, and what is computed of those that stay."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.graph.lift import slots
from loopgrad.graph.nodes import Node
from loopgrad.graph.primitives import INDEXING, PRIMITIVES
from loopgrad.graph.primitives.primitive import Attrs
from loopgrad.graph.types import TensorType, bfloat16
from loopgrad.runtime.cpu.direct_program import filled

KEPT: Final = 1 << 12
"""Elements of a constant that a program holds, and of the values that it holds until it ends."""


def is_done_now(node: Node) -> bool:
    """Whether a program needs only the result of an operation on what it holds."""
    primitive = PRIMITIVES[node.op]
    if primitive.exact is None or not primitive.exact(node) or node.attrs.get("contract"):
        return False
    return not (primitive.collective or node.op in INDEXING or slots(node))


def constant_elements(attrs: Attrs, type: TensorType) -> Any:
    """What a program holds of a constant with these attributes."""
    if type.dtype is not bfloat16 and (not type.shape or type.size > KEPT):
        return filled(type, attrs["value"])
    reference = PRIMITIVES["const"].reference
    assert reference is not None
    return reference(attrs)[0]


def held_elements(node: Node, type: TensorType) -> Any:
    """What a node without operands gives."""
    if node.op == "const":
        return constant_elements(node.attrs, type)
    reference = PRIMITIVES[node.op].reference
    assert reference is not None
    return reference(node.attrs)[0]
