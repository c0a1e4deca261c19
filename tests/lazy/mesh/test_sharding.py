"""A mesh of one process: what `lg.shard` takes and refuses, and what tensors of a mesh are."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg


@pytest.fixture
def mesh():
    return lg.mesh("interpreter")


def test_an_array_of_the_mesh_is_a_tensor_like_others(mesh):
    given = np.arange(6.0).reshape(3, 2)
    x = lg.shard(given, mesh)
    assert (x.shape, x.dtype, x.device) == ((3, 2), lg.float64, mesh.device)
    given[:] = 0.0  # the tensor has its own elements
    np.testing.assert_array_equal(np.asarray(lg.gather_all(x)), np.arange(6.0).reshape(3, 2))
    assert "3 of 3 lanes" in repr(x)
    assert "3 of 3 lanes" in str(x)
    with pytest.raises(lg.DeviceError, match="gather_all"):
        np.asarray(x)
    again = lg.shard(x, mesh)
    assert again is not x
    np.testing.assert_array_equal(np.asarray(lg.all_gather(again)), np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(np.asarray(lg.gather_all(lg.shard(lg.sum(x, axis=0), mesh))), [6.0, 9.0])
    assert lg.gather_all([1.0, 2.0]).shape == (2,)  # what isn't sharded


def test_parts_may_be_trees(mesh):
    def load(start, stop):
        return {"x": np.arange(start, stop), "y": (lg.ones((stop - start, 2)),)}

    found = lg.shard(load, 5, mesh)
    assert found["x"].shape == (5,)
    assert found["y"][0].shape == (5, 2)
    empty = lg.shard(lambda start, stop: np.zeros(stop - start), 0, mesh)
    assert float(lg.sum(empty)) == 0.0


@pytest.mark.parametrize("arguments", [(np.ones(3),), (np.ones(3), 3), (np.ones(3), 3, 3), (np.ones(3), "mesh")])
def test_shard_says_what_it_takes(arguments):
    with pytest.raises(TypeError):
        lg.shard(*arguments)


def test_wrong_shapes_are_refused(mesh):
    with pytest.raises(lg.ShapeError, match="a scalar"):
        lg.shard(1.0, mesh)
    with pytest.raises(lg.ShapeError, match="the 5 rows from 0 to 5"):
        lg.shard(lambda start, stop: np.ones(stop - start + 1), 5, mesh)
    with pytest.raises(TypeError, match="a function of start and stop"):
        lg.shard(np.ones(3), 3, mesh)
    with pytest.raises(ValueError, match="nowhere"):
        lg.mesh("nowhere")


@pytest.mark.parametrize("kind", ["interpreter", "cpu"])
@pytest.mark.parametrize("collective", [lg.psum, lg.pmean, lg.pmax, lambda x: lg.all_gather(x)[1]])
def test_derivatives_of_collectives_against_finite_differences(collective, kind):
    mesh = lg.mesh(kind)
    x = lg.shard(np.linspace(0.2, 1.3, 7), mesh)

    def loss(p, x):
        return lg.sin(collective(lg.exp(p * x) + x)) ** 2

    value, slope = lg.value_and_grad(loss)(0.7, x)
    up, down = (float(loss(lg.asarray(0.7 + h), x)) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(float(slope), (up - down) / 2e-6, rtol=1e-6)
    by_lanes = np.asarray(lg.gather_all(lg.grad(lambda x: loss(0.7, x))(x)))
    _, tangent = lg.jvp(lambda p: loss(p, x), (lg.asarray(0.7),), (lg.asarray(1.0),))
    np.testing.assert_allclose(float(tangent), float(slope), rtol=1e-12)
    whole = lg.grad(lambda v: loss(0.7, v))(np.linspace(0.2, 1.3, 7))
    np.testing.assert_allclose(by_lanes, np.asarray(whole), rtol=1e-12)
    np.testing.assert_allclose(float(value), float(loss(0.7, np.linspace(0.2, 1.3, 7))), rtol=1e-12)


def test_plans_say_where_things_are(mesh):
    x = lg.shard(np.arange(8.0), mesh)
    step = lg.compile(lambda p, x: (lg.sum(x * p), lg.cumsum(lg.reshape(x, (8, 1)), axis=1)))
    notes = str(step.plan(2.0, x))  # nothing was called yet
    assert "process 0 of 1" in notes
    assert "input 1: lanes 0:8 of float64[8]" in notes
    assert "result 1: lanes 0:8" in notes
    assert "cumsum" in notes
    assert "bits may depend" in notes
    text = step.text("placement", 2.0, x)
    assert "%1: float64[8]  lanes" in text
    assert "reduce_sum: float64[] replicated" in text
    assert "process 0 of 1" in step.explain()


def test_numbers_that_change_are_inputs(mesh):
    x = lg.shard(np.arange(4.0), mesh)
    assert [float(lg.sum(x * rate)) for rate in (1.0, 0.5, 0.25, 0.125)] == [6.0, 3.0, 1.5, 0.75]
