"""Errors that docstrings name: each call raises its own."""

from __future__ import annotations

import builtins
from typing import Final

import numpy as np
import pytest

import loopgrad as lg

ERRORS: Final = {
    "DTypeError": """
        lg.finfo(lg.int8)
        lg.iinfo(lg.float32)
        lg.isdtype(lg.float32, 'x')
        lg.bincount(lg.ones(2))
        lg.vmap(lg.bincount)(lg.asarray([[1]]))
        lg.repeat(lg.ones(2), [1.0, 2.0])
        lg.vmap(lambda n: lg.repeat(lg.ones(2), n))(lg.asarray([1, 2]))
        lg.cummax([True])
        lg.delete(lg.ones(2), lg.asarray(0))
        lg.subtract([True], [False])
        lg.negative([True])
        lg.bitwise_and(1.0, 2.0)
        lg.power([True], [True])
        lg.ldexp(1.0, 1.0)
        lg.gcd(1.0, 2.0)
        lg.lcm(1.0, 2.0)
        lg.bitwise_count(1.0)
        lg.asarray('x')
        lg.from_dlpack(1)
        lg.arange(lg.asarray(3))
        lg.set_default_dtype(lg.int8)
        lg.compile(lg.sin).capture(lg.ones(2))(lg.ones(2, dtype=lg.float32))
        lg.while_loop(lambda v: v, lambda v: v + 1, 1)
        lg.fori_loop(0, 2.5, lambda i, v: v, 1)
        lg.scan(lambda c, x: c, 0.0, lg.ones(2))
        lg.cond(lg.ones(2), lg.sin, lg.cos, lg.ones(2))
        lg.cond(lg.asarray(True), lambda: lg.ones(2), lambda: lg.ones(2).astype(lg.int32))
        lg.switch(lg.asarray(0.0), [lg.sin], lg.ones(2))
        lg.vjp(lg.sin, lg.ones(2, dtype=lg.float32))[1](lg.ones(2))
        lg.vmap(lambda x: x)('a')
    """,
    "EndlessLoopError": """
        lg.while_loop(lambda v: True, lambda v: v + 1, 1)
    """,
    "GradientError": """
        lg.grad(lambda x: x)(1)
        lg.grad(lambda x: x)(lg.ones(2))
        lg.grad(lambda x: x, argnums=2)(1.0)
        lg.jvp(lg.sin, 1.0, 1.0)
        lg.jvp(lg.sin, (1.0,), (1.0, 2.0))
        lg.gradients(lg.ones(2), [lg.ones(2)])
        lg.gradients(lg.sum(lg.ones(2)), [1.0])
    """,
    "IndexRangeError": """
        lg.delete(lg.ones(2), 5)
    """,
    "LoopLimitError": """
        lg.while_loop(lambda v: v < 100, lambda v: v + 1, 1, max_steps=3).item()
    """,
    "OverflowError": """
        lg.full((2,), 300, dtype=lg.int8)
    """,
    "LinAlgError": """
        lg.linalg.solve(lg.ones((2, 3)), lg.ones(2))
        lg.linalg.inv(lg.ones((2, 3)))
        lg.linalg.cholesky(lg.ones((2, 3)))
        lg.linalg.cholesky(lg.ones(3))
    """,
    "ShapeError": """
        lg.linalg.solve(lg.ones((2, 2)), lg.ones(3))
        lg.linalg.solve(lg.ones((2, 2, 2)), lg.ones((3, 2, 2)))
        lg.vdot(lg.ones(2), lg.ones(3))
        lg.inner(lg.ones(2), lg.ones(3))
        lg.vecdot(lg.ones(2), lg.ones(3))
        lg.tensordot(lg.ones((2, 3)), lg.ones((2, 3)), 1)
        lg.diagonal(lg.ones(2))
        lg.diag(lg.ones((1, 1, 1)))
        lg.trace(lg.ones(2))
        lg.cross(lg.ones(2), lg.ones(2))
        lg.einsum('ij->i', lg.ones(3))
        lg.matrix_norm(lg.ones(2))
        lg.linalg.norm(lg.ones((2, 2, 2)), axis=(0, 1, 2))
        lg.linalg.matrix_power(lg.ones((2, 3)), 2)
        lg.linalg.multi_dot([])
        lg.linalg.multi_dot([lg.ones((1, 2)), lg.ones((3, 2))])
        lg.linalg.diagonal(lg.ones(2))
        lg.linalg.trace(lg.ones(2))
        lg.interp([0.0], [0.0, 1.0], [0.0])
        lg.interp([0.0], [], [])
        lg.gradient(lg.ones(1))
        lg.convolve(lg.ones(0), lg.ones(1))
        lg.vander(lg.ones((2, 2)))
        lg.ptp(lg.ones(0))
        lg.quantile(lg.ones(0), 0.5)
        lg.quantile(lg.ones(2), lg.ones((2, 2)))
        lg.median(lg.ones(0))
        lg.average(lg.ones(3), weights=lg.ones(2))
        lg.cov(lg.ones((2, 2, 2)))
        lg.corrcoef(lg.ones((2, 2, 2)))
        lg.digitize([1.0], lg.ones((2, 2)))
        lg.histogram([1.0], bins=lg.ones(1))
        lg.reshape(lg.ones(3), (2, 2))
        lg.squeeze(lg.ones(3), axis=0)
        lg.broadcast_to(lg.ones(3), (2,))
        lg.broadcast_shapes((2,), (3,))
        lg.broadcast_arrays(lg.ones(2), lg.ones(3))
        lg.permute_dims(lg.ones((2, 3)), (0, 0))
        lg.matrix_transpose(lg.ones(2))
        lg.swapaxes(lg.ones(2), 0, 1)
        lg.moveaxis(lg.ones((2, 3)), (0, 1), (0, 0))
        lg.roll(lg.ones(3), (1, 2))
        lg.concat([lg.ones((1, 2)), lg.ones((1, 3))])
        lg.concat([1.0, 2.0])
        lg.concat([])
        lg.stack([lg.ones(2), lg.ones(3)])
        lg.split(lg.ones(3), 2)
        lg.tril(lg.ones(2))
        lg.triu(lg.ones(2))
        lg.repeat(lg.ones(2), -1)
        lg.pad(lg.ones(2), -1)
        lg.pad(lg.ones(2), ((1, 1), (1, 1)))
        lg.block([[lg.ones(1)], lg.ones(1)])
        lg.block([[lg.ones((1, 1))], [lg.ones((1, 2))]])
        lg.array_split(lg.ones(2), 0)
        lg.vsplit(lg.ones(2), 2)
        lg.hsplit(1.0, 1)
        lg.dsplit(lg.ones((2, 2)), 2)
        lg.fliplr(lg.ones(2))
        lg.flipud(1.0)
        lg.rot90(lg.ones(2))
        lg.sum(lg.ones(3), where=lg.ones((2, 3)))
        lg.min(lg.ones(0))
        lg.argmin(lg.ones(0))
        lg.cumsum(lg.ones(2), axis=3)
        lg.searchsorted(lg.ones((2, 2)), 1.0)
        lg.take_along_axis(lg.ones((2, 2)), [0])
        lg.add(lg.ones(2), lg.ones(3))
        lg.divide(lg.ones(2), lg.ones(3))
        lg.equal(lg.ones(2), lg.ones(3))
        lg.logical_and(lg.ones(2), lg.ones(3))
        lg.where(lg.ones(2), lg.ones(3), 1.0)
        lg.select([], [])
        lg.asarray([[1], [1, 2]])
        lg.full((2,), lg.ones(3))
        lg.compile(lg.sin).capture(lg.ones(2))(lg.ones(3))
        lg.while_loop(lambda v: v < 3.0, lambda v: lg.concat([v, v]), lg.ones(2))
        lg.scan(lambda c, x: (c, x), 0.0, (lg.ones(2), lg.ones(3)))
        lg.scan(lambda c, x: (c, x), 0.0)
        lg.cond(lg.asarray(True), lambda: lg.ones(2), lambda: lg.ones(3))
        lg.vjp(lg.sin, lg.ones(2))[1](lg.ones(3))
        lg.vmap(lg.sin, in_axes=None)(lg.ones(2))
        lg.vmap(lg.add)(lg.ones(2), lg.ones(3))
    """,
    "StaticArgumentError": """
        lg.compile(lambda x, y: x)(lg.ones(2), object())
    """,
    "StructureError": """
        lg.while_loop(lambda v: v[0] < 3, lambda v: v[0], (1, 2))
        lg.cond(lg.asarray(True), lambda: (lg.ones(2),), lambda: lg.ones(2))
        lg.vjp(lg.sin, lg.ones(2))[1]((lg.ones(2), lg.ones(2)))
    """,
    "TracedValueError": """
        lg.vmap(lg.nonzero)(lg.ones((2, 2)))
        lg.vmap(lambda x: lg.extract(x > 0, x))(lg.ones((2, 2)))
        lg.vmap(lambda x: lg.to_device(x, 'cpu'))(lg.ones((2, 2)))
        lg.grad(lambda x: lg.to_device(x, 'interpreter'))(1.0)
        lg.vmap(lambda x: lg.eval(x))(lg.ones((2, 2)))
        lg.compile(lambda x: x * float(x[0]))(lg.ones(2))
    """,
    "TypeError": """
        lg.where([True], 1.0)
        lg.options(x=1).__enter__()
        lg.options(fast_math=1).__enter__()
    """,
    "ValueError": """
        lg.matrix_norm(lg.ones((2, 2)), ord='x')
        lg.linalg.norm(lg.ones((2, 2)), ord='x')
        lg.linalg.matrix_power(lg.ones((2, 2)), -1)
        lg.convolve(lg.ones(2), lg.ones(1), 'x')
        lg.bincount([-1])
        lg.reshape(lg.ones(3), (3,), order='A')
        lg.ravel(lg.ones(3), order='A')
        lg.pad(lg.ones(2), 1, mode='x')
        lg.meshgrid([1], [2], indexing='x')
        lg.min(lg.ones(2), where=lg.ones(2))
        lg.cummax([1], include_initial=True)
        lg.searchsorted(lg.ones(2), 1.0, side='x')
        lg.power(lg.asarray([1]), -1)
        lg.arange(np.inf)
        lg.arange(1, 2, 0)
        lg.geomspace(-1.0, 1.0)
        lg.default_device('x').__enter__()
        lg.memory_stats('x')
        lg.to_device(lg.ones(2), 'x')
        lg.compile(lg.sin).text()
        lg.compile(lg.sin).text('x', lg.ones(2))
        lg.compile(lg.sin).memory_stats()
        lg.switch(0, [])
    """,
}
CASES: Final = [(name, call.strip()) for name, calls in ERRORS.items() for call in calls.strip().splitlines()]


@pytest.mark.parametrize(("name", "call"), CASES, ids=[call for _, call in CASES])
def test_error(name: str, call: str) -> None:
    error = getattr(lg, name, None) or getattr(lg.linalg, name, None) or getattr(builtins, name)
    with pytest.raises(error):
        eval(call, {"lg": lg, "np": np})
