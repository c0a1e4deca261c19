"""`check`: schedule a traced function, interpret the Program, compare with the graph's own meaning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from loopgrad.codegen.interpret_program import interpret_program
from loopgrad.codegen.kernel.verify import verify_kernel
from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.schedule import schedule
from loopgrad.graph.build import trace
from loopgrad.graph.interpret import interpret


def checked(function, types, arrays, kernels=None, rtol=1e-6, atol=1e-7, options=DEFAULT_OPTIONS):
    """The Program of `function` over inputs of `types`, once its outputs are the graph's on `arrays`."""
    graph, captured = trace(function, types)
    assert not captured
    program = schedule(graph, options)
    for kernel in program.kernels:
        verify_kernel(kernel)
    given = [np.asarray(a, t.dtype.np) for a, t in zip(arrays, types, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of NaN casts that both sides make alike
        wanted, got = interpret(graph, given), interpret_program(program, given)
    for position, (w, g) in enumerate(zip(wanted, got, strict=True)):
        assert w.shape == g.shape
        assert w.dtype == g.dtype
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, err_msg=f"output {position}")
    if kernels is not None:
        assert len(program.kernels) == kernels, [k.domain for k in program.kernels]
    return program


@pytest.fixture
def check():
    return checked


@pytest.fixture
def rng():
    return np.random.default_rng(0)
