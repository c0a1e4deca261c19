"""`lg.ndimage` beside SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import loopgrad as lg
from tests.lazy.oracle import check

RNG = np.random.default_rng(5)
IMAGE = RNG.normal(size=(9, 7))
MODES = ["reflect", "grid-mirror", "constant", "grid-constant", "nearest", "mirror", "wrap", "grid-wrap"]
OURS = lg.ndimage


@pytest.mark.parametrize("mode", MODES)
def test_filters_at_borders(mode: str) -> None:
    x, weights = lg.asarray(IMAGE), RNG.normal(size=(3, 4))
    around = {"mode": mode, "cval": 0.5}
    for name, arguments, options in (
        ("gaussian_filter", (1.3,), {}), ("gaussian_filter", ((0.8, 1.0), (1, 2)), {}),
        ("correlate1d", ([1.0, 2.0, 4.0], 0), {"origin": 1}), ("convolve1d", ([1.0, 2.0, 4.0, 3.0],), {"origin": 1}),
        ("correlate", (weights,), {"origin": (1, -1)}), ("convolve", (weights,), {"origin": (1, -1)}),
        ("sobel", (0,), {}), ("prewitt", (), {}), ("laplace", (), {}), ("gaussian_laplace", (1.0,), {}),
        ("gaussian_gradient_magnitude", (1.0,), {}), ("uniform_filter", ((3, 4),), {}),
        ("maximum_filter", ((3, 4),), {}), ("minimum_filter", (), {"footprint": np.eye(3)}),
        ("median_filter", (3,), {}), ("rank_filter", (-2, 3), {}), ("percentile_filter", (30, 3), {}),
    ):  # fmt: skip
        expected = getattr(ndimage, name)(IMAGE, *arguments, **options, **around)
        check(getattr(OURS, name)(x, *arguments, **options, **around), expected, 1e-11)


@pytest.mark.in_turns
@pytest.mark.parametrize("mode", MODES)
def test_splines_between_pixels(mode: str) -> None:
    """Within, beyond and on the borders; SciPy's start of a recursion is rough for images that are mirrored."""
    inside, around = RNG.uniform(0, 6, size=(2, 20)), RNG.uniform(-5, 12, size=(2, 20))
    at = np.concatenate([inside, around, [[0.0, 8.0, 0.0, 8.0], [0.0, 6.0, 6.0, 0.0]]], axis=1)
    rough = mode in ("reflect", "grid-mirror")
    for order in (0, 1, 2, 3, 5):
        expected = ndimage.map_coordinates(IMAGE, at, order=order, mode=mode, cval=0.7)
        tolerance = 1e-5 if rough and order > 1 else 1e-10
        check(OURS.map_coordinates(lg.asarray(IMAGE), at, order=order, mode=mode, cval=0.7), expected, tolerance)
    pixels = np.stack(np.meshgrid(np.arange(9.0), np.arange(7.0), indexing="ij"))
    check(OURS.map_coordinates(lg.asarray(IMAGE), pixels, order=3, mode=mode), IMAGE, 1e-12)


@pytest.mark.in_turns
def test_moved_turned_and_scaled(device: str) -> None:
    x, matrix = lg.asarray(IMAGE), np.array([[1.1, 0.2], [-0.1, 0.9]])
    for name, arguments, options in (
        ("shift", ((0.3, -1.2),), {}), ("zoom", ((1.5, 0.7),), {}), ("rotate", (30,), {}), ("rotate", (-90,), {}),
        ("zoom", ((1.5, 0.7),), {"grid_mode": True, "mode": "nearest"}),
        ("rotate", (-17.5,), {"reshape": False, "mode": "nearest"}), ("affine_transform", (matrix, [0.3, 0.1]), {}),
        ("affine_transform", ([1.1, 0.9],), {"output_shape": (5, 6)}), ("spline_filter", (4,), {}),
    ):  # fmt: skip
        for order in (1, 3) if name != "spline_filter" else (4,):
            more = {**options, "order": order} if name != "spline_filter" else options
            expected = getattr(ndimage, name)(IMAGE, *arguments, **more)
            check(getattr(OURS, name)(x, *arguments, **more), expected, 1e-9)


@pytest.mark.in_turns
def test_slopes(device: str) -> None:
    """By pixels, coordinates and widths of filters."""
    x, at = lg.asarray(IMAGE[:4, :4]), lg.asarray(RNG.uniform(0.1, 2.9, size=(2, 3)))

    def value(x, at):
        return lg.sum(OURS.map_coordinates(x, at, order=3, mode="mirror") ** 2)

    lg.testing.check_grads(value, (x, at), order=1)

    def smoothed(sigma):
        return lg.sum(OURS.gaussian_filter1d(x, sigma, radius=3) ** 2)

    lg.testing.check_grads(smoothed, (lg.asarray(0.8),), order=1)


def test_what_cannot_be_filtered_is_refused() -> None:
    x = lg.asarray(IMAGE)
    with pytest.raises(ValueError, match="a mode among"):
        OURS.gaussian_filter(x, 1.0, mode="odd")
    with pytest.raises(lg.ShapeError, match="2 coordinates"):
        OURS.map_coordinates(x, [[0.0]], order=1)
    with pytest.raises(ValueError, match="order from 0 to 5"):
        OURS.map_coordinates(x, [[0.0], [0.0]], order=6)
    with pytest.raises(lg.ShapeError, match="as many axes"):
        OURS.correlate(x, [1.0])
    with pytest.raises(ValueError, match="size or a footprint"):
        OURS.median_filter(x)
    for call in (
        lambda: OURS.correlate(x, np.ones((3, 3)), origin=2), lambda: OURS.convolve(x, np.ones((3, 2)), origin=(0, 1)),
        lambda: OURS.maximum_filter(x, size=3, origin=-2), lambda: OURS.correlate1d(x, np.ones(2), origin=1),
    ):  # fmt: skip
        with pytest.raises(lg.ShapeError, match="an origin from"):
            call()


def test_images_without_elements_stay_as_they_are() -> None:
    nothing = lg.zeros((2, 0))
    for call in (
        lambda: OURS.correlate(nothing, np.ones((3, 2))), lambda: OURS.gaussian_filter(nothing, 1.0),
        lambda: OURS.median_filter(nothing, size=3, mode="wrap"), lambda: OURS.sobel(nothing, mode="mirror"),
        lambda: OURS.uniform_filter1d(nothing, 3, 0),
    ):  # fmt: skip
        assert np.asarray(call()).shape == (2, 0)
