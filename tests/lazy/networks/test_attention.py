"""Attention by blocks of keys against NumPy: values, derivatives of every argument, masks, dtypes, memory."""

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.errors import DTypeError, GradientError, ShapeError
from loopgrad.lazy.networks import attention as module


def by_numpy(q, k, v, bias=0.0, mask=True, scale=None, is_causal=False):
    """The weights and the result; queries that see nothing have weights of 0."""
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale) + bias
    rows, keys = scores.shape[-2:]
    seen = np.broadcast_to(mask, scores.shape) & (np.tri(rows, keys, dtype=bool) | (not is_causal))
    scores = np.where(seen, scores, -np.inf)
    most = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(most), most, 0.0))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1.0, total)
    return weights, weights @ v


def derivatives(q, k, v, ct, bias, weights, result, scale):
    by_scores = weights * (ct @ v.swapaxes(-1, -2) - (ct * result).sum(-1, keepdims=True))
    axes = tuple([d for d, n in enumerate((1,) * (by_scores.ndim - bias.ndim) + bias.shape) if n == 1])
    by_bias = by_scores.sum(axes, keepdims=True).reshape(bias.shape)
    by_k = by_scores.swapaxes(-1, -2) @ q * scale
    return by_scores @ k * scale, by_k, weights.swapaxes(-1, -2) @ ct, by_bias


# batch, queries, keys, features of keys and values, shapes of bias and mask, causal
CASES = [
    ((2, 3), 5, 7, 4, 6, (2, 3, 5, 7), (5, 7), True),
    ((2, 3), 5, 7, 4, 6, (1, 7), (5, 1), False),
    ((), 9, 8, 3, 2, (9, 1), (9, 8), True),
    ((2,), 1, 13, 2, 1, (1, 1), (1, 13), False),
    ((1,), 4, 1, 3, 3, (4, 1), (4, 1), False),
]


@pytest.mark.in_turns
@pytest.mark.parametrize("block", [4, 16])
def test_values_and_derivatives(monkeypatch, block):
    monkeypatch.setattr(module, "ONE_BLOCK", block)
    monkeypatch.setattr(module, "BLOCK", block)
    rng = np.random.default_rng(block)
    for batch, t, s, d, e, bias_shape, mask_shape, causal in CASES:
        q, k, v, ct = (rng.normal(size=(*batch, *n)) for n in ((t, d), (s, d), (s, e), (t, e)))
        bias, mask = rng.normal(size=bias_shape), rng.random(mask_shape) < 0.7
        mask[-1] = False  # the last query sees nothing

        def loss(q, k, v, bias, ct=ct, mask=mask, causal=causal):
            result = lg.attention(q, k, v, bias, mask, scale=0.3, is_causal=causal)
            return lg.sum(result * ct), result

        weights, wanted = by_numpy(q, k, v, bias, mask, 0.3, causal)
        (_, got), slopes = lg.value_and_grad(loss, argnums=(0, 1, 2, 3), has_aux=True)(
            *map(lg.asarray, (q, k, v, bias))
        )
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=0, atol=1e-13)
        assert not np.asarray(got)[..., -1, :].any()
        for slope, right in zip(slopes, derivatives(q, k, v, ct, bias, weights, wanted, 0.3), strict=True):
            np.testing.assert_allclose(np.asarray(slope), right, rtol=0, atol=1e-12, err_msg=f"{batch} {t} {s}")


def test_the_scale_has_a_derivative_and_heads_broadcast():
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=shape) for shape in ((2, 4, 5, 3), (2, 1, 6, 3), (6, 2)))
    got = lg.attention(lg.asarray(q), lg.asarray(k), lg.asarray(v))
    np.testing.assert_allclose(np.asarray(got), by_numpy(q, k, v)[1], rtol=0, atol=1e-14)

    def loss(scale):
        return lg.sum(lg.attention(lg.asarray(q), lg.asarray(k), lg.asarray(v), scale=scale) ** 2)

    near = [np.sum(by_numpy(q, k, v, scale=0.5 + h)[1] ** 2) for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(lg.grad(loss)(0.5).item(), (near[0] - near[1]) / 2e-5, rtol=1e-8)


def test_second_derivatives_and_batches(monkeypatch):
    monkeypatch.setattr(module, "ONE_BLOCK", 2)
    monkeypatch.setattr(module, "BLOCK", 2)
    rng = np.random.default_rng(2)
    q, k, v, way = (rng.normal(size=(4, 3)) for _ in range(4))

    def slope(q):
        return lg.grad(lambda q: lg.sum(lg.attention(q, lg.asarray(k), lg.asarray(v), is_causal=True) ** 2))(q)

    curved = lg.grad(lambda q: lg.sum(slope(q) * lg.asarray(way)))(lg.asarray(q))
    near = [np.asarray(slope(lg.asarray(q + h * way))) for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(np.asarray(curved), (near[0] - near[1]) / 2e-5, rtol=0, atol=1e-8)
    masks = rng.random((5, 4, 4)) < 0.7
    rows = rng.normal(size=(5, 4, 3))
    got = lg.vmap(lambda x, m: lg.grad(lambda x: lg.sum(lg.attention(x, x, x, mask=m) ** 3))(x))(
        lg.asarray(rows), lg.asarray(masks)
    )
    for i in range(5):
        one = lg.grad(lambda x, i=i: lg.sum(lg.attention(x, x, x, mask=masks[i]) ** 3))(lg.asarray(rows[i]))
        np.testing.assert_allclose(np.asarray(got)[i], np.asarray(one), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_floats_are_added_up_in_float32(dtype):
    rng = np.random.default_rng(3)
    q, k, v = (lg.asarray(rng.normal(size=(600, 8))).astype(getattr(lg, dtype)) for _ in range(3))
    got = lg.attention(q, k, v)
    assert got.dtype == getattr(lg, dtype)
    wide = [np.asarray(x.astype(lg.float64)) for x in (q, k, v)]
    near = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 2e-6}[dtype]
    np.testing.assert_allclose(np.asarray(got.astype(lg.float64)), by_numpy(*wide)[1], rtol=near, atol=near / 10)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("keys", [600, 40])
def test_derivatives_of_narrow_floats_are_those_of_float32(dtype, keys):
    rng = np.random.default_rng(4)
    shapes = ((2, 70, 8), (2, keys, 8), (2, keys, 6))
    q, k, v = (lg.asarray(rng.normal(size=s)).astype(getattr(lg, dtype)) for s in shapes)
    ct = lg.asarray(rng.normal(size=(2, 70, 6)).astype(np.float32))

    def loss(q, k, v):
        return lg.sum(lg.attention(q, k, v, is_causal=True).astype(lg.float32) * ct)

    got = lg.grad(loss, argnums=(0, 1, 2))(q, k, v)
    wanted = lg.grad(loss, argnums=(0, 1, 2))(*[x.astype(lg.float32) for x in (q, k, v)])
    near = 2e-3 if dtype == "float16" else 2e-2
    for g, w, x in zip(got, wanted, (q, k, v), strict=True):
        assert g.dtype is x.dtype
        g, w = np.asarray(g.astype(lg.float32)), np.asarray(w)
        assert np.linalg.norm(g - w) <= near * np.linalg.norm(w)


def test_nothing_to_see_and_large_scores():
    x = lg.ones((3, 2))
    np.testing.assert_array_equal(np.asarray(lg.attention(x, lg.zeros((0, 2)), lg.zeros((0, 5)))), np.zeros((3, 5)))
    assert lg.attention(lg.zeros((0, 2)), x, x).shape == (0, 2)
    slope = lg.grad(lambda k: lg.sum(lg.attention(x, k, x, mask=np.zeros((3, 3), bool))))(x)
    np.testing.assert_array_equal(np.asarray(slope), np.zeros((3, 2)))
    got = lg.attention(1e4 * x, lg.asarray([[1e4, 0.0], [0.0, 0.0], [-1e4, 0.0]]), lg.asarray([[1.0], [2.0], [3.0]]))
    np.testing.assert_array_equal(np.asarray(got), np.ones((3, 1)))


def test_no_matrix_of_scores_is_kept():
    x = lg.zeros((2048, 16), dtype=lg.float32)
    step = lg.compile(lg.grad(lambda q, k, v: lg.sum(lg.attention(q, k, v, is_causal=True)), argnums=(0, 1, 2)))
    plan = step.plan(x, x, x)
    assert plan.arena_bytes + plan.stack_bytes < 2048 * 2048 * 4 * 0.75


def test_what_is_refused():
    x, y = lg.ones((3, 2)), lg.ones((4, 3))
    with pytest.raises(ShapeError, match=r"\(\.\.\., t, d\)"):
        lg.attention(x, y, y)
    with pytest.raises(ShapeError, match="broadcasts to"):
        lg.attention(x, x, x, mask=np.ones((2, 3), bool))
    with pytest.raises(DTypeError, match="use mask= for bools"):
        lg.attention(x, x, x, mask=np.ones((3, 3)))
    with pytest.raises(DTypeError, match="floats"):
        lg.attention(*[lg.ones((3, 2), dtype=lg.int64)] * 3)
    with pytest.raises(GradientError, match="reverse mode"):
        lg.jvp(lambda q: lg.attention(q, x, x), (x,), (x,))


def test_a_cpu_computes_by_blocks():
    """What is a routine on GPUs is products and kernels; the routine's reference makes all scores."""
    q = lg.zeros((2, 64, 32), dtype=lg.float32)
    with lg.default_device("cpu"):
        plan = lg.compile(lg.grad(lambda q: lg.sum(lg.attention(q, q, q)))).plan(q)
    assert not plan.routines
