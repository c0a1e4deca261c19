"""Launches that go on with products: which ones, that these are one kernel, that the numbers are right."""

import numpy as np
import pytest

from loopgrad.codegen.options import DEFAULT_OPTIONS
from loopgrad.codegen.program import MatmulStep
from loopgrad.codegen.schedule import schedule
from loopgrad.codegen.steps import all_steps
from loopgrad.codegen.targets.gpu.lanes import product_plan
from loopgrad.codegen.targets.gpu.lanes.product_epilogues import with_epilogues
from loopgrad.codegen.targets.nvptx.target import compile_program
from loopgrad.graph import ops
from loopgrad.graph.build import trace
from loopgrad.graph.region_ops import traced_for
from loopgrad.graph.types import TensorType, float32, int64
from tests.codegen.targets.gpu.gpu_harness import device, executable_of


def scheduled(function, arrays):
    types = [TensorType(a.shape, int64 if a.dtype == np.int64 else float32) for a in arrays]
    graph, captured = trace(function, types)
    assert not captured
    return schedule(graph, DEFAULT_OPTIONS)


def epilogues(program):
    """Of every product: whether it has one, and whether it is stored."""
    steps = [step for step in all_steps(with_epilogues(program).steps) if isinstance(step, MatmulStep)]
    return [(step.epilogue is not None, step.stored) for step in steps]


def run(program, arrays):
    return [device().get(r) for r in executable_of(program).run([device().put(a) for a in arrays])]


def array(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def row(b, like):
    return ops.broadcast(b, like.shape, (len(like.shape) - 1,))


def relu(x, w, b):
    z = ops.matmul(x, w)
    return [ops.max(ops.add(z, row(b, z)), ops.zeros_like(z))]


def residual(x, w, b):
    return [ops.add(ops.tanh(ops.add(ops.matmul(x, w), row(b, x))), x)]


def kept(x, w, b):
    z = ops.matmul(x, w)
    return [ops.tanh(ops.add(z, row(b, z))), ops.matmul(z, w)]


def chain_once(x, w, b):
    z = ops.matmul(x, w)
    return [ops.tanh(ops.add(z, row(b, z)))]


def chain(x, w, b):
    for _ in range(4):
        (x,) = chain_once(x, w, b)
    return [x]


def loop(n, x, w, b):
    return traced_for(n, [x], lambda _, v: chain_once(w, v, b))  # rows don't stay rows


def turned(x, w, b):
    z = ops.matmul(x, w)
    return [ops.add(ops.flip(z, (0,)), row(b, z))]


def test_which_launches_go_on_with_a_product():
    x, w, b = array(40, 40), array(40, 40), array(40)
    assert epilogues(scheduled(relu, [x, w, b])) == [(True, False)]
    assert epilogues(scheduled(residual, [x, w, b])) == [(True, False)]
    assert epilogues(scheduled(kept, [x, w, b])) == [(True, True), (False, True)]
    assert epilogues(scheduled(chain, [x, w, b])) == [(True, False)] * 4
    assert epilogues(scheduled(turned, [x, w, b])) == [(False, True)]


def wanted(x, w, b, times=1):
    for _ in range(times):
        x = np.tanh(x.astype(np.float64) @ w + b)
    return x


def test_numbers():
    """In squares whose edges don't exist, by a lane for each element, stored and read, in batches."""
    x, w, b = array(40, 40) / 6, array(40, 40, seed=1) / 6, array(40, seed=2)
    near = {"rtol": 0, "atol": 2e-6}
    tall = array(70, 40, seed=3)
    np.testing.assert_allclose(run(scheduled(relu, [tall, w, b]), [tall, w, b])[0], np.maximum(tall @ w + b, 0), **near)
    (got,) = run(scheduled(residual, [x, w, b]), [x, w, b])
    np.testing.assert_allclose(got, wanted(x, w, b) + x, **near)
    got, product = run(scheduled(kept, [x, w, b]), [x, w, b])
    np.testing.assert_allclose(got, wanted(x, w, b), **near)
    np.testing.assert_allclose(product, x @ w @ w, **near)
    (got,) = run(scheduled(chain, [x, w, b]), [x, w, b])
    np.testing.assert_allclose(got, wanted(x, w, b, 4), **near)
    small = array(3, 40), array(40, 7) / 6, array(7)
    (got,) = run(scheduled(chain_once, small), small)
    np.testing.assert_allclose(got, wanted(*small), **near)
    batch = array(5, 20, 30), array(5, 30, 9) / 6, array(9)
    (got,) = run(scheduled(chain_once, batch), batch)
    np.testing.assert_allclose(got, wanted(*batch), **near)


@pytest.mark.costly
@pytest.mark.parametrize("few", [1, 6])
def test_long_epilogues_of_large_squares_are_one_piece_of_code(monkeypatch, few):
    """tanh of 64 elements of an invocation: their sums go through memory of the workgroup."""
    monkeypatch.setattr(product_plan, "FEW_RECTANGLES", few)
    x, w, b = array(140, 37), array(37, 133) / 6, array(133)
    (got,) = run(scheduled(chain_once, [x, w, b]), [x, w, b])
    np.testing.assert_allclose(got, wanted(x, w, b), rtol=0, atol=2e-6)


@pytest.mark.costly
def test_epilogues_in_loops():
    n, x, w, b = np.array(3), array(40, 40) / 6, array(40, 40, seed=1) / 6, array(40, seed=2)
    assert epilogues(scheduled(loop, [n, x, w, b])) == [(True, False)]
    (got,) = run(scheduled(loop, [n, x, w, b]), [n, x, w, b])
    for _ in range(3):
        x = wanted(w, x, b)
    np.testing.assert_allclose(got, x, rtol=0, atol=2e-6)


def gated(x, w, y):
    return [ops.mul(ops.matmul(x, w), ops.sub(y, ops.mul(y, y)))]


def test_epilogues_read_and_write_vectors(monkeypatch):
    """Of sums in registers."""
    monkeypatch.setattr(product_plan, "FEW_RECTANGLES", 1)
    shapes = [(128, 32), (32, 128), (128, 128)]
    code = bytes(compile_program(scheduled(gated, [array(*shape) for shape in shapes]), DEFAULT_OPTIONS).code).decode()
    (product,) = [kernel for kernel in code.split(".entry")[1:] if "fma.rn.f32" in kernel]
    assert {line.split()[0] for line in product.splitlines() if "\tst.global" in line} == {"st.global.v4.b32"}
    arrays = [array(*shape, seed=i) for i, shape in enumerate(shapes)]
    (got,) = run(scheduled(gated, arrays), arrays)
    x, w, y = arrays
    np.testing.assert_allclose(got, (x.astype(np.float64) @ w) * (y - y * y), rtol=1e-5, atol=1e-4)


def pulled(x, w, y):
    return [ops.tanh(ops.add(ops.matmul(x, w), y))]


def test_long_epilogues_read_for_several_elements_at_once(monkeypatch):
    """Whose sums go through memory of the workgroup: one after the other, each would wait for its own."""
    monkeypatch.setattr(product_plan, "FEW_RECTANGLES", 1)
    arrays = [array(*shape, seed=i) for i, shape in enumerate([(256, 32), (32, 128), (256, 128)])]
    program = scheduled(pulled, arrays)
    code = bytes(compile_program(program, DEFAULT_OPTIONS).code).decode()
    (product,) = [kernel for kernel in code.split(".entry")[1:] if "bar.sync" in kernel]
    words = [line.split()[0] for line in product.splitlines() if line.strip()]
    finished = [word[:2] for word in words if word in ("ld.global.nc.b32", "st.global.b32")]
    assert "ld ld ld ld" in " ".join(finished)
    (got,) = run(program, arrays)
    x, w, y = arrays
    np.testing.assert_allclose(got, np.tanh(x.astype(np.float64) @ w + y), rtol=0, atol=2e-6)
