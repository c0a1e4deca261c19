"""Rows of a few elements that are turned around, or meet a number for each of their places: NumPy's elements, and no
gather for them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import loopgrad as lg


@pytest.mark.in_turns
@pytest.mark.parametrize("row", [2, 3, 4, 6, 7, 9, 12, 15])
@pytest.mark.parametrize("name", ["uint8", "float32", "float64"])
def test_colours_of_pixels(row: int, name: str) -> None:
    """Rows of pixels that aren't a multiple of the lanes in flight, few pixels, and all pixels in one line."""
    wide = np.dtype(np.float64 if name == "float64" else np.float32)
    scale = np.linspace(0.5, 1.5, row).astype(wide)

    def changed(image: lg.Tensor) -> list[lg.Tensor]:
        mirrored, swapped = lg.flip(image, axis=-2), lg.flip(image, axis=-1)
        return [mirrored, swapped, image[::-1, ..., ::-1], (lg.astype(image, wide) - scale) / scale]

    program = lg.compile(changed, device="cpu")
    for shape in [(5, 701, row), (3, 4, row), (2003, row), (2, 3, 24, row)]:
        image = np.random.default_rng(row).integers(0, 200, shape).astype(name)
        wanted = [np.flip(image, -2), np.flip(image, -1), image[::-1, ..., ::-1], (image.astype(wide) - scale) / scale]
        for found, expected in zip(program(image), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(found), expected)
    for shape in [(20, 720, row), (200, 24, row), (5000, row)]:  # few vectors of lanes in a row of pixels, too
        text = program.text("llvm", np.zeros(shape, name))
        assert "masked." not in text or (row == 7 and "<16 x" not in text)  # seven vectors of 8 are too many


@pytest.mark.parametrize("dtype", [np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)], ids=str)
def test_an_element_of_each_row_beside_all_of_it(dtype: np.dtype[Any]) -> None:
    """Rows of one vector, in all of whose lanes that element is: of bfloat16 the code generator ended the process."""
    x = np.random.default_rng(0).integers(-9, 9, (700, 8)).astype(dtype)

    def changed(x: lg.Tensor) -> list[lg.Tensor]:
        return [x + x[:, :1], lg.where(x > 0, x, x[:, 3:4]), x[:, -1:] * x[:, ::-1]]

    wanted = [x + x[:, :1], np.where(x > 0, x, x[:, 3:4]), x[:, -1:] * x[:, ::-1]]
    for found, expected in zip(lg.compile(changed, device="cpu")(x), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_rows_far_apart_and_rows_in_a_pattern_of_a_loop_are_gathered() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5000)).astype(np.float32)
    turned = lg.compile(lambda x: x.T + 1.0, device="cpu")
    np.testing.assert_array_equal(np.asarray(turned(x)), x.T + 1)
    image = np.random.default_rng(1).normal(size=(400, 3))
    found = lg.compile(lambda x: lg.fori_loop(0, 3, lambda _, v: v * x[::-1], x), device="cpu")(image)
    np.testing.assert_array_equal(np.asarray(found), image * image[::-1] * image[::-1] * image[::-1])
