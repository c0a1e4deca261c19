"""`reduce_window`, dynamic slices, and JAX's general products, against loops over places in NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import loopgrad as lg

# shape, window, strides, padding, base_dilation, window_dilation
WINDOWS: list[tuple[Any, ...]] = [
    ((7,), (3,), None, "valid", None, None), ((13,), (11,), None, "same", None, None),
    ((5,), (2,), (3,), "VALID", None, None), ((13,), (9,), (2,), ((1, 4),), None, None),
    ((6, 5), (2, 3), (2, 1), "SAME_LOWER", None, None), ((6, 5), (3, 2), (1, 2), ((2, 0), (0, 1)), (2, 1), None),
    ((9, 7), (2, 3), (2, 2), "same", None, (3, 2)), ((24,), (10,), None, ((3, 3),), (2,), (2,)),
    ((2, 3, 4), (1, 2, 2), None, "same", None, None), ((4,), (6,), None, "valid", None, None),
    ((0, 3), (1, 2), None, "same", None, None), ((1, 1), (1, 1), None, "valid", None, None),
    ((), (), None, "valid", None, None),
]  # fmt: skip
COMBINATIONS = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf, "multiply": 1.0}


def by_places(x: np.ndarray, name: str, case: tuple[Any, ...], weights: np.ndarray | None = None) -> np.ndarray:
    """The result, or with weights their gradient: of equal extrema the first has it all."""
    shape, window, strides, padding, base, apart = case
    ones = (1,) * len(shape)
    strides, base, apart = strides or ones, base or ones, apart or ones
    origin = np.arange(x.size).reshape(shape)
    spread = np.full([max((n - 1) * b + 1, 0) for n, b in zip(shape, base, strict=True)], -1)
    spread[tuple(slice(None, None, b) for b in base)] = origin
    if isinstance(padding, str):
        reach = [(k - 1) * d + 1 for k, d in zip(window, apart, strict=True)]
        gaps = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(shape, strides, reach, strict=True)]
        less, more = [g // 2 for g in gaps], [g - g // 2 for g in gaps]
        borders = {"valid": [(0, 0)] * len(shape), "same": list(zip(less, more, strict=True))}
        padding = borders.get(padding.lower(), list(zip(more, less, strict=True)))
    spread = np.pad(spread, padding, constant_values=-1) if shape else spread
    places = [range(0, n - (k - 1) * d, s) for n, k, d, s in zip(spread.shape, window, apart, strides, strict=True)]
    result, slope = np.zeros([len(p) for p in places]), np.zeros(x.size)
    for at in product(*map(enumerate, places)):
        box = spread[tuple(slice(p, p + k * d, d) for (_, p), k, d in zip(at, window, apart, strict=True))].ravel()
        values = np.where(box < 0, COMBINATIONS[name], x.ravel()[box] if x.size else 0.0)
        index = tuple(i for i, _ in at)
        result[index] = getattr(np, name).reduce(values)
        if weights is None:
            continue
        for k, source in enumerate(box):
            if source >= 0 and name == "add":
                slope[source] += weights[index]
            elif source >= 0 and name == "multiply":
                slope[source] += weights[index] * np.delete(values, k).prod()
            elif source >= 0 and k == (values.argmax() if name == "maximum" else values.argmin()):
                slope[source] += weights[index]
    return result if weights is None else slope.reshape(shape)


@pytest.mark.costly
@pytest.mark.in_turns
@pytest.mark.parametrize("number", range(len(WINDOWS)))
def test_windows(device: str, number: int) -> None:
    draw, case = np.random.default_rng(number), WINDOWS[number]
    made, wanted = [], []
    for name, start in COMBINATIONS.items():
        x = draw.integers(-3, 4, case[0]).astype(float)
        reduce = lambda v, f=getattr(lg, name), s=start: lg.reduce_window(v, s, f, *case[1:])  # noqa: E731, B008
        result = by_places(x, name, case)
        weights = draw.integers(-3, 4, result.shape).astype(float)
        weights = np.where(np.isfinite(result), weights, 0.0)
        slope = lg.grad(lambda v, f=reduce, w=weights: lg.sum(lg.where(w != 0, f(v), 0.0) * w))
        made += [reduce(lg.asarray(x)), slope(lg.asarray(x))]
        wanted += [result, by_places(x, name, case, weights)]
    lg.eval(made)
    for k, (ours, theirs) in enumerate(zip(made, wanted, strict=True)):
        np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=f"result {k}")


def test_windows_of_all_kinds(device: str) -> None:
    x = np.array([3, -1, 4, 1, -5, 9, 2, 6])
    for dtype in ("int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64"):
        t = lg.asarray(abs(x)).astype(getattr(lg, dtype))
        for function, start in ((lg.add, 0), (lg.max, 0), (lambda a, b: lg.maximum(a, b), 0)):
            found = lg.compile(lambda t, f=function, s=start: lg.reduce_window(t, s, f, (3,)))(t)
            assert found.dtype is t.dtype
            rows = np.lib.stride_tricks.sliding_window_view(abs(x), 3)
            assert found.tolist() == (rows.sum(1) if function is lg.add else rows.max(1)).tolist()
    assert np.isnan(np.asarray(lg.reduce_window([1.0, np.nan, 2.0, 3.0], -np.inf, lg.maximum, (2,)))).tolist() == [
        True, True, False,
    ]  # fmt: skip
    z = lg.reduce_window(lg.asarray([1.0, 2.0j, 3.0]), 0.0, lg.add, (2,))
    assert z.tolist() == [1 + 2j, 3 + 2j]
    pooled = lg.vmap(lambda row: lg.reduce_window(row, -np.inf, lg.maximum, (2,), (2,)))
    assert pooled(lg.asarray(x.reshape(2, 4) * 1.0)).tolist() == [[3.0, 4.0], [9.0, 6.0]]
    smooth = lambda _, v: lg.reduce_window(v, 0.0, lg.add, (3,), padding="same") / 3.0  # noqa: E731
    slope = lg.grad(lambda v: lg.fori_loop(0, 3, smooth, v)[0])(lg.asarray(x * 1.0))
    np.testing.assert_allclose(np.asarray(slope) * 27, [4, 5, 3, 1, 0, 0, 0, 0], atol=1e-12)  # paths of three steps


def test_dynamic_slices(device: str) -> None:
    """Starts from the end, and beyond it; in a loop, compiled, and with their derivatives."""
    x = np.arange(20.0).reshape(4, 5)
    t = lg.asarray(x)
    for start in ((0, 0), (2, 1), (-2, -3), (9, 9), (-9, 3)):
        low = [min(max(s + n if s < 0 else s, 0), n - k) for s, n, k in zip(start, x.shape, (2, 3), strict=True)]
        box = np.s_[low[0] : low[0] + 2, low[1] : low[1] + 3]
        at = [lg.asarray(s, dtype=lg.int32) for s in start]
        assert lg.compile(lambda t, *at: lg.dynamic_slice(t, at, (2, 3)))(t, *at).tolist() == x[box].tolist()
        new = x.copy()
        new[box] = -1.0
        assert lg.dynamic_update_slice(t, lg.full((2, 3), -1.0), at).tolist() == new.tolist()
        slope = lg.grad(lambda t, at=at: lg.sum(lg.dynamic_slice(t, at, (2, 3)) ** 2))(t)
        assert (np.asarray(slope)[box] == 2 * x[box]).all()
        assert np.count_nonzero(np.asarray(slope)) == np.count_nonzero(x[box])
    rows = lg.fori_loop(
        0,
        3,
        lambda k, c: lg.dynamic_update_slice_in_dim(c, lg.dynamic_slice_in_dim(t, k, 1), k + 1, 0),
        lg.zeros((4, 5)),
    )
    assert rows.tolist() == [[0.0] * 5, *x[:3].tolist()]
    assert lg.dynamic_index_in_dim(t, -1).tolist() == x[-1:].tolist()
    assert lg.dynamic_slice(lg.asarray(3.0), (), ()).tolist() == 3.0


def test_general_products(device: str) -> None:
    draw = np.random.default_rng(0).normal
    a, b = draw(size=(2, 3, 4, 5)), draw(size=(5, 4, 6, 2))
    found = lg.dot_general(a, b, (((3, 2), (0, 1)), ((0,), (3,))))
    np.testing.assert_allclose(np.asarray(found), np.einsum("bmij,jinb->bmn", a, b), rtol=1e-12)
    x, kernel = draw(size=(2, 6, 7, 4)), draw(size=(3, 2, 2, 6))
    plain = lg.conv(np.moveaxis(x, -1, 1), kernel.transpose(3, 2, 0, 1), stride=(2, 1), padding="same", groups=2)
    found = lg.conv_general_dilated(
        x, kernel, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2
    )
    np.testing.assert_allclose(np.asarray(found), np.moveaxis(np.asarray(plain), 1, -1), rtol=1e-12)
    found = lg.conv_general_dilated(
        np.moveaxis(x, -1, 1), kernel.transpose(3, 2, 0, 1), (1, 1), [(0, 1), (1, 0)], None, (1, 2), None, 2
    )
    assert found.shape == (2, 6, 5, 6)


def test_windows_longer_than_an_axis_have_no_place() -> None:
    for size in (4, 40, 2**62):  # as JAX's
        assert lg.reduce_window(lg.ones((3, 4)), 0.0, lg.add, (size, 1)).shape == (0, 4)


def test_refusals() -> None:
    x = lg.ones((3, 4))
    for error, call in (
        (ValueError, lambda: lg.reduce_window(x, 0.0, lg.add, (2,))),
        (ValueError, lambda: lg.reduce_window(x, 0.0, lg.add, (2, 0))),
        (ValueError, lambda: lg.reduce_window(x, 0.0, lg.add, (2, 1.5))),
        (ValueError, lambda: lg.reduce_window(x, 0.0, lg.add, (2, 2), padding="odd")),
        (ValueError, lambda: lg.reduce_window(x, 0.0, lg.add, (2, 2), padding=((0, 1), (-1, 0)))),
        (lg.ShapeError, lambda: lg.reduce_window(x, [0.0, 0.0], lg.add, (2, 2))),
        (lg.ShapeError, lambda: lg.reduce_window(x, 0.0, lambda a, b: lg.sum(a + b), (2, 2))),
        (lg.DTypeError, lambda: lg.reduce_window(x, 0.0, lg.less, (2, 2))),
        (lg.ShapeError, lambda: lg.dynamic_slice(x, [0], [1, 1])),
        (lg.ShapeError, lambda: lg.dynamic_slice(x, [0, 0], [4, 1])),
        (lg.DTypeError, lambda: lg.dynamic_slice(x, [0.0, 0], [1, 1])),
        (lg.ShapeError, lambda: lg.dynamic_slice_in_dim(x, 0, 9)),
        (lg.ShapeError, lambda: lg.dot_general(x, x, (([1], []), ([], [])))),
        (lg.ShapeError, lambda: lg.conv_general_dilated(
            lg.ones((1, 1, 3)), lg.ones((1, 1, 2)), (1,), "VALID", dimension_numbers=("NC", "OIW", "NCW"))),
    ):  # fmt: skip
        with pytest.raises(error, match=r"expected .*, got .*; "):
            call()


def test_the_derivative_of_pooling_is_gathered():
    """Two kernels over all of x and the windows, between which lie the windows' values and numbers, and no array of x's
    size; derivatives of all orders and modes are those of shifted windows."""

    def pooled(x, step):
        return lg.reduce_window(x, -lg.inf, lg.maximum, (1, 3, 2), (1, step, step), "same")

    x = lg.asarray(np.random.default_rng(0).normal(size=(3, 60, 40)))
    with lg.default_device("cpu"):
        plan = lg.compile(lg.grad(lambda x: lg.sum(pooled(x, 2) ** 2))).plan(x)
    assert [b for b in plan.buffers if b.kind == "temp" and str(3 * 60 * 40) in b.type] == []
    assert sum(b.bytes for b in plan.buffers if b.kind == "temp") < x.nbytes

    def apart(x):
        return lg.sum(pooled(x, 2) ** 3)

    def shifted(x):
        return lg.sum(pooled(x, 1)[:, ::2, ::2] ** 3)

    small = lg.asarray(np.random.default_rng(1).normal(size=(1, 5, 5)))  # odd: both begin at the same places
    batched = lambda f: lambda x: lg.vmap(lg.grad(f))(x[None])  # noqa: E731
    for order in (lg.grad, lg.hessian, lambda f: lg.jacfwd(lg.jacfwd(f)), batched):
        np.testing.assert_allclose(np.asarray(order(apart)(small)), np.asarray(order(shifted)(small)), rtol=1e-12)
