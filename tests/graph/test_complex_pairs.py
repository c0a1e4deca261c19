"""Graphs of complex numbers and the graphs of pairs that they become compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.complex_pairs import in_pairs, is_complex
from loopgrad.graph.interpret import interpret
from loopgrad.graph.nodes import Graph
from loopgrad.graph.types import TensorType, complex64, complex128, float64
from loopgrad.graph.verify import verify
from loopgrad.lazy.tensor.core import wrap

Z = np.array([[1 + 2j, -0.5j, 3.0], [0.25 - 1j, 2j, -1.0]])

PROGRAMS: list[Callable[[Any], Any]] = [
    lambda z: z[::-1, 1:].T + 2.0j,
    lambda z: lg.real(z) + lg.imag(z),
    lambda z: lg.where(lg.real(z) > 0, z, -z),
    lambda z: lg.fori_loop(0, 3, lambda k, v: (v[1], v[0] + z, v[2] + k), (z, z - 1, 0))[1],
    lambda z: lg.while_loop(lambda v: lg.real(v) < 5, lambda v: v + (1 + 0.5j), z),
    lambda z: lg.switch(lg.sum(lg.real(z)) > 1, [lambda v: v, lambda v: v + z], z),
    lambda z: lg.asarray([1j, 2.0])[lg.asarray([1, 0, 1])].at[0].add(z[0, 0]),
    lambda z: lg.grad(lambda z: lg.sum(lg.fori_loop(0, 3, lambda _, v: lg.sin(lg.real(v)) + v, z).real))(z),
    lambda z: lg.checkpoint(lambda z: z + lg.real(z))(z) == z,
    lambda z: lg.isnan(z) | (z != z[0]),
    lambda z: lg.fft.ifft(lg.fft.fft(z), axis=0) + lg.fft.fft(z * 2, axis=0),
    lambda z: lg.fori_loop(0, 2, lambda _, v: lg.fft.fft(v).T.reshape(2, 3), z),
    lambda z: lg.asin(z) + lg.asin(z * 2) * lg.acosh(lg.asin(z)) + lg.power(z, z) * lg.power(z, z + 1),
    lambda z: lg.vmap(lambda v: lg.fori_loop(0, 2, lambda _, u: lg.acos(u) + lg.acos(u - 1), v))(z),
    lambda z: lg.pad(lg.flip(z)[:, ::2], ((1, 0), (0, 2)), constant_values=1j) + lg.pad(z, ((0, 1), (0, 1))),
    lambda z: z.at[1, 0].set(0),  # a number that is moved
]


def complex_types(graph: Graph) -> bool:
    nodes = [r.type for node in graph.nodes for r in node.results]
    inner = [region for node in graph.nodes for region in node.regions]
    return any(map(is_complex, (*graph.input_types, *nodes))) or any(map(complex_types, inner))


@pytest.mark.parametrize("program", PROGRAMS, ids=[str(i) for i in range(len(PROGRAMS))])
def test_the_same_results(program: Callable[[Any], Any]) -> None:
    graph, captures = trace(lambda z: (program(wrap(z))._value, z), [TensorType(Z.shape, complex128)])
    constants = [v.buffer.array for v in captures]  # type: ignore[attr-defined]
    pairs = in_pairs(graph)
    verify(pairs)
    assert complex_types(graph)
    assert not complex_types(pairs)
    expected = interpret(graph, [Z, *constants])
    got = interpret(pairs, [_pairs(x) for x in (Z, *constants)])
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, _pairs(e), 1e-15)


def _pairs(array: Any) -> Any:
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array


@pytest.mark.parametrize("move", [
    lambda z: z[:, 1:], lambda z: lg.flip(z), lambda z: lg.pad(z, ((0, 1), (0, 2))), lambda z: lg.concat([z, z.T.T])
], ids=["slice", "flip", "pad", "concat"])  # fmt: skip
def test_numbers_that_only_move_are_read_side_by_side(move: Callable[[Any], Any]) -> None:
    """What is made of pairs that lie together isn't put together of parts."""
    graph, _ = trace(lambda z: (move(wrap(z))._value,), [TensorType(Z.shape, complex128)])
    node = in_pairs(graph).outputs[0].node
    assert node is not None
    assert node.op == graph.outputs[0].node.op  # type: ignore[union-attr]
    assert node.operands[0].shape[-1] == 2


def test_real_graphs_stay_as_they_are() -> None:
    graph, _ = trace(lambda x: (ops.sin(x),), [TensorType((3,), float64)])
    assert in_pairs(graph) is graph


def test_constants_are_split() -> None:
    type = TensorType((2,), complex64)
    numbers = np.array([1 + 2j, 3 - 4j], np.complex64)
    graph, _ = trace(lambda: (ops.literal(numbers, complex64), ops.full(2 - 1j, type)), [])
    first, second = interpret(in_pairs(graph), [])
    np.testing.assert_array_equal(first, _pairs(numbers))
    np.testing.assert_array_equal(second, _pairs(np.full(2, 2 - 1j, np.complex64)))
