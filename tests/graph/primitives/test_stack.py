from __future__ import annotations

import pytest

from loopgrad.graph import ops
from loopgrad.graph import types as T
from loopgrad.graph.errors import DTypeError, VerifyError
from loopgrad.graph.types import StackType, TensorType

VEC = TensorType((2,), T.float64)


def test_last_in_first_out(run):
    def program(x, y):
        stack = ops.push(ops.push(ops.stack_new(VEC, name="s"), x), y)
        stack, first = ops.pop(stack)
        _, second = ops.pop(stack)
        return first, second

    first, second = run(program, [1.0, 2.0], [3.0, 4.0])
    assert first.tolist() == [3, 4]
    assert second.tolist() == [1, 2]


def test_types(leaf):
    stack = ops.stack_new(VEC, leaf("int64"))
    assert stack.type == StackType(VEC)
    rest, value = ops.pop(stack)
    assert (rest.type, value.type) == (StackType(VEC), VEC)


def test_refusals(leaf, run):
    stack = ops.stack_new(VEC)
    with pytest.raises(DTypeError, match=r"a value of type float64\[2\], got float32\[2\]"):
        ops.push(stack, leaf("float32", 2))
    with pytest.raises(DTypeError, match="expected a stack"):
        ops.pop(leaf("float64", 2))
    with pytest.raises(DTypeError, match="one depth of type int64"):
        ops.stack_new(VEC, leaf("int32"))
    with pytest.raises(VerifyError, match="pop from an empty stack"):
        run(lambda: (ops.pop(ops.stack_new(VEC))[1],))
