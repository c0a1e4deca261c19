"""Attention by matrix units, of the simulator and of CUDA: values and derivatives against NumPy, and who does it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.codegen.schedule.attention import FORMS
from loopgrad.codegen.targets.gpu.routines import attention
from loopgrad.codegen.targets.gpu.routines.attention import FEW, tiling
from loopgrad.codegen.targets.gpu.routines.attention_gradients import AttentionGradients
from loopgrad.codegen.targets.gpu.routines.attention_rows import AttentionRows
from loopgrad.codegen.targets.gpu.routines.attention_scores import Shapes
from loopgrad.graph.primitives.attention import ROWS
from tests.lazy.networks.test_attention import by_numpy, derivatives

NEAR = {"float16": 2e-3, "bfloat16": 1.5e-2, "float32": 2e-6}


def narrow(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [lg.asarray(rng.normal(size=shape)).astype(getattr(lg, dtype)) for shape in shapes]


def wide(*tensors: Any) -> list[np.ndarray]:
    return [np.asarray(x.astype(lg.float64)) for x in tensors]


def near(got: Any, wanted: np.ndarray, dtype: str) -> None:
    assert np.linalg.norm(wide(got)[0] - wanted) <= NEAR[dtype] * np.linalg.norm(wanted)


# batch, queries, keys, features of keys and values, shapes of bias and mask, causal, scale
CASES: list[Any] = [
    ("bfloat16", (2,), 20, 70, 24, 8, None, None, True, 2.0),  # scores far apart
    ("float16", (2, 3), 17, 130, 8, 16, (3, 17, 1), (2, 1, 17, 130), True, 0.7),
    ("float16", (), 33, 64, 16, 24, (1, 64), None, False, -0.5),
    ("float32", (2,), 20, 70, 24, 40, None, (2, 20, 70), True, 2.0),
    ("float32", (), 33, 40, 13, 7, (33, 1), None, False, -0.5),  # rows that are padded
]


@pytest.mark.parametrize("case", CASES)
def test_values(units: str, case: Any) -> None:
    dtype, batch, t, s, d, e, bias_shape, mask_shape, causal, scale = case
    rng = np.random.default_rng(1)
    bias = None if bias_shape is None else rng.normal(size=bias_shape).astype(np.float32)
    mask = None if mask_shape is None else rng.random(mask_shape) < 0.7
    if mask is not None:
        mask[..., 3, :] = False  # a query that sees nothing
    with lg.default_device(units):
        q, k, v = narrow(dtype, (*batch, t, d), (*batch, s, d), (*batch, s, e))
        function = lg.compile(lambda q, k, v: lg.attention(q, k, v, bias, mask, scale=scale, is_causal=causal))
        (row,) = function.plan(q, k, v).routines
        assert "matrix units" in row.provider
        got = function(q, k, v)
        assert got.dtype is q.dtype
        sides = (0.0 if bias is None else bias, True if mask is None else mask)
        _, wanted = by_numpy(*wide(q, k, v), *sides, scale, causal)
        near(got, wanted, dtype)
        if mask is not None:
            assert not wide(got)[0][..., 3, :].any()


@pytest.mark.parametrize(
    ("dtype", "causal", "scale", "width"),
    [
        ("bfloat16", True, 0.4, 16),
        ("float16", False, -0.4, 15),
        ("float32", True, 0.4, 16),
        ("float32", False, -0.4, 5),
    ],
)
def test_derivatives(units: str, dtype: str, causal: bool, scale: float, width: int) -> None:
    """With a mask and a bias where it isn't causal; who wants that of the bias has blocks."""
    rng = np.random.default_rng(2)
    mask = None if causal else rng.random((2, 20, 70)) < 0.7
    bias = None if causal else rng.normal(size=(20, 70)).astype(np.float32)
    ct = rng.normal(size=(2, 20, width)).astype(np.float32)
    with lg.default_device(units):
        q, k, v = narrow(dtype, (2, 20, 8), (2, 70, 8), (2, 70, width))

        def loss(q: Any, k: Any, v: Any, bias: Any = bias) -> Any:
            result = lg.attention(q, k, v, bias, mask, scale=scale, is_causal=causal)
            return lg.sum(result.astype(lg.float32) * ct)

        function = lg.compile(lg.grad(loss, argnums=(0, 1, 2)))
        assert {row.name for row in function.plan(q, k, v).routines} == set(ROWS)
        given = np.zeros((1, 1)) if bias is None else bias
        weights, result = by_numpy(*wide(q, k, v), given, True if mask is None else mask, scale, causal)
        wanted = derivatives(*wide(q, k, v), ct, given, weights, result, scale)
        for got, right in zip(function(q, k, v), wanted, strict=False):
            near(got, right, dtype)
        if bias is not None and dtype == "float32":
            by_bias = lg.compile(lg.grad(loss, argnums=3))
            assert "attention_gradient" not in {row.name for row in by_bias.plan(q, k, v, bias).routines}
            near(by_bias(q, k, v, lg.asarray(bias)), wanted[3], dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_tall_tiles_and_rows_in_memory(units: str, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """What large attentions get."""
    monkeypatch.setattr(attention, "FEW", 1)
    usual = attention.gradient_tiling

    def short(shapes: Shapes, warps: int) -> attention.AttentionTiling:
        return usual(shapes, warps) if shapes.panels else attention.AttentionTiling(1, 1, 16, True)

    monkeypatch.setattr(attention, "gradient_tiling", short)
    with lg.default_device(units):
        q, k, v, ct = narrow(dtype, (40, 8), (70, 8), (70, 16), (40, 16))
        function = lg.compile(
            lambda q, k, v, ct: (lambda found: (found[0], *found[1](ct)))(lg.vjp(lg.attention, q, k, v))
        )
        weights, result = by_numpy(*wide(q, k, v))
        wanted = derivatives(*wide(q, k, v), *wide(ct), np.zeros((1, 1)), weights, result, 8**-0.5)
        for got, right in zip(function(q, k, v, ct), (result, *wanted), strict=False):
            near(got, right, dtype)


def test_keys_that_there_are_not_have_no_weight(units: str) -> None:
    """The last block of 70 keys is filled up with zeros, whose scores would be 181 above all others."""
    with lg.default_device(units):
        q, k = lg.full((20, 8), 8.0, dtype=lg.bfloat16), lg.full((70, 8), -8.0, dtype=lg.bfloat16)
        v, ct = narrow("bfloat16", (70, 16), (20, 16))
        slopes = lg.compile(lg.grad(lambda *qkv: lg.sum(lg.attention(*qkv) * ct), argnums=(0, 1, 2)))
        by_query, by_key, by_value = slopes(q, k, v)
        near(by_value, np.tile(wide(ct)[0].sum(0) / 70, (70, 1)), "bfloat16")
        assert all(np.isfinite(x).all() for x in wide(by_query, by_key))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_keys_of_few_queries_are_shared_out(units: str, dtype: str) -> None:
    """Some parts see nothing of a query's keys, and none sees any of the last query's."""
    rng = np.random.default_rng(4)
    mask = rng.random((3, 1100)) < 0.5
    mask[0, 100:], mask[1, :-100], mask[2] = False, False, False
    with lg.default_device(units):
        q, k, v = narrow(dtype, (2, 3, 8), (2, 1100, 8), (2, 1100, 16))
        function = lg.compile(lambda q, k, v: lg.vjp(lambda *x: lg.attention(*x, mask=mask), q, k, v)[0])
        near(function(q, k, v), by_numpy(*wide(q, k, v), 0.0, mask)[1], dtype)
        slopes = lg.compile(lg.grad(lambda q, k, v: lg.sum(lg.attention(q, k, v).astype(lg.float32) ** 2)))
        weights, result = by_numpy(*wide(q, k, v))
        (wanted, *_) = derivatives(*wide(q, k, v), 2 * result, np.zeros((1, 1)), weights, result, 8**-0.5)
        near(slopes(q, k, v), wanted, dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_shared_keys_and_values_are_not_repeated(units: str, causal: bool) -> None:
    """By leading axes of 1, by `repeat`, and by a batch of queries; derivatives are of what was repeated."""

    def all_ways(q: Any, k: Any, v: Any) -> tuple[Any, ...]:
        heads = lg.reshape(q, (2, 6, 5, 8))
        again = [lg.repeat(x, 3, axis=1) for x in (k, v)]
        found = lg.attention(q, k[:, :, None], v[:, :, None], is_causal=causal)
        return found, lg.reshape(lg.attention(heads, *again, is_causal=causal), found.shape)

    with lg.default_device(units):
        q, k, v = narrow("bfloat16", (2, 2, 3, 5, 8), (2, 2, 9, 8), (2, 2, 9, 16))
        function = lg.compile(all_ways)
        assert all("[2,2,9,8]" in row.operands for row in function.plan(q, k, v).routines)
        of_each = [wide(q)[0], *[np.repeat(x[:, :, None], 3, axis=2) for x in wide(k, v)]]
        weights, result = by_numpy(*of_each, is_causal=causal)
        for got in function(q, k, v):
            near(got, result, "bfloat16")
        slopes = lg.compile(lg.grad(lambda *x: lg.sum(all_ways(*x)[0].astype(lg.float32) ** 2), argnums=(0, 1, 2)))
        assert all("[2,2,9,8]" in row.operands for row in slopes.plan(q, k, v).routines)
        wanted = derivatives(*of_each, 2 * result, np.zeros((1, 1)), weights, result, 8**-0.5)
        for got, right, shared in zip(slopes(q, k, v), wanted, (False, True, True), strict=False):
            near(got, right.sum(2) if shared else right, "bfloat16")


def test_the_reference_knows_shared_heads() -> None:
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=shape).astype(np.float32) for shape in ((6, 5, 8), (2, 9, 8), (2, 9, 4)))
    mask = rng.random((1, 5, 9)) < 0.7
    attrs = {"scale": 0.3, "sides": "m", "causal": True, "precision": "float32", "heads": ((2, 3), (2, 1))}
    result, normal = ROWS["attention"].reference(attrs, q, k, v, mask)
    again = [np.repeat(x, 3, axis=0) for x in (k, v)]
    _, wanted = by_numpy(q, *again, 0.0, mask, 0.3, True)
    assert normal.shape == (6, 5, 1)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def test_who_does_it(units: str) -> None:
    """Batches are one launch, layers of a loop as well; lanes, other dtypes and long rows have no routine."""
    with lg.default_device(units):
        q, k, v = narrow("bfloat16", (3, 16, 8), (16, 8), (3, 16, 8))
        batch = lg.compile(lg.vmap(lg.attention, in_axes=(0, None, 0)))
        (row,) = batch.plan(q, k, v).routines
        assert "matrix units" in row.provider
        near(batch(q, k, v), by_numpy(*wide(q, k, v))[1], "bfloat16")
        layers = lg.compile(lambda x: lg.fori_loop(0, 2, lambda _, x: lg.attention(x, x, x), x))
        (row,) = layers.plan(q).routines
        assert "matrix units" in row.provider
        once = wide(lg.attention(q, q, q))[0]
        near(layers(q), by_numpy(once, once, once)[1], "bfloat16")
        for dtype, width in (("float64", 8), ("bfloat16", 264)):
            (x,) = narrow(dtype, (2, 16, width))
            rows = lg.compile(lambda x: lg.attention(x, x, x)).plan(x).routines
            assert "attention" not in {row.name for row in rows}


def test_without_matrix_units(device: str) -> None:
    """The same function elsewhere, to the precision of its factors."""
    q, k, v = narrow("bfloat16", (2, 9, 8), (2, 12, 8), (2, 12, 8))
    near(lg.attention(q, k, v, is_causal=True), by_numpy(*wide(q, k, v), is_causal=True)[1], "bfloat16")


def test_tiles_cover_all_rows() -> None:
    """And workgroups have the memory."""
    types = (("b16", False), ("b16", True), ("f32", False), ("tf32", False))
    for (type, panels), width in itertools.product(types, (8, 64, 128, 256)):
        for queries, count, tiles in ((1000, 4, 1), (1000, FEW, 2), (1, 1, 1)):
            shapes = Shapes(type, count, queries, 77, width, 64, True, 0.1, panels=panels)
            found = tiling(shapes, 4)
            program = AttentionRows(shapes, found.warps, found.tiles, found.block, found.held, found.ahead)
            assert found.tiles == tiles or width > 64 or panels
            assert program.memory < (227 if panels else 99) << 10
            assert program.rows * (program.row_blocks - 1) < queries <= program.rows * program.row_blocks
            check_gradients(shapes)


def check_gradients(shapes: Shapes) -> None:
    if shapes.width <= FORMS["attention_gradient"].widest:
        warps, _, block, held, *_ = attention.gradient_tiling(shapes, 4)
        for of_keys, rows in ((True, shapes.keys), (False, shapes.queries)):
            gradient = AttentionGradients(shapes, warps, block, of_keys, held)
            assert gradient.memory < 99 << 10
            assert gradient.rows * (gradient.row_blocks - 1) < rows <= gradient.rows * gradient.row_blocks
