"""How tests of the graph layer run a graph: trace a function of Values, interpret it on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from loopgrad.graph.build import emit, trace
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Leaf, Value
from loopgrad.graph.types import DTYPES, TensorType


def type_of(array: np.ndarray) -> TensorType:
    return TensorType(array.shape, DTYPES[array.dtype.name])


def run_function(function: Callable[..., Sequence[Value]], *arrays: Any) -> list[np.ndarray]:
    given = [np.asarray(a) for a in arrays]
    graph, captures = trace(function, [type_of(a) for a in given])
    assert captures == ()
    return interpret(graph, given)


@pytest.fixture
def run() -> Callable[..., list[np.ndarray]]:
    """run(function, *arrays): what the traced function gives for the arrays."""
    return run_function


@pytest.fixture
def apply() -> Callable[..., Any]:
    """apply(op, *arrays, **attrs): the result of one primitive, through its inference and its reference."""

    def one(op: str, *arrays: Any, **attrs: Any) -> np.ndarray:
        return run_function(lambda *values: emit(op, values, attrs), *arrays)[0]

    return one


@pytest.fixture
def leaf() -> Callable[..., Leaf]:
    """leaf(dtype name, *shape): a value to infer with; it has no elements."""
    return lambda name, *shape: Leaf(TensorType(shape, DTYPES[name]), None)
