"""Quotients and square roots are those of IEEE 754, whatever the operands: the device's against NumPy's, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

BITS = {"float32": np.uint32, "float64": np.uint64}
ODD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -3.0, 2.0**-60, 2.0**60, 2.0**61, 2.0**-101, 2.0**-102]


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Any bit pattern, ordinary and small whole numbers, and all pairs of odd ones."""
    generator, bits = np.random.default_rng(5), BITS[dtype]
    with np.errstate(all="ignore"):
        odd = np.array([*ODD, np.finfo(dtype).tiny, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal], dtype)
    any_bits = generator.integers(0, np.iinfo(bits).max, (2, 20_000), dtype=bits, endpoint=True).view(dtype)
    usual = generator.normal(size=(2, 20_000)).astype(dtype)
    whole = generator.integers(-50, 50, (2, 5_000)).astype(dtype)
    x, y = np.concatenate([any_bits, usual, whole], axis=1)
    return np.concatenate([x, np.repeat(odd, odd.size)]), np.concatenate([y, np.tile(odd, odd.size)])


def same(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    bits = BITS[str(wanted.dtype)]
    return (got.view(bits) == wanted.view(bits)) | (np.isnan(got) & np.isnan(wanted))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quotients_and_roots_are_rounded_once(compiled_device: str, dtype: str) -> None:
    if compiled_device.startswith("vulkan"):
        pytest.skip("Vulkan promises quotients within 2.5 ulp, and drivers use it")
    x, y = operands(dtype)
    with np.errstate(all="ignore"):
        quotient, root = x / y, np.sqrt(x)
    assert same(np.asarray(lg.asarray(x) / lg.asarray(y)), quotient).all()
    assert same(np.asarray(lg.sqrt(lg.asarray(x))), root).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_quotients_with_a_zero_that_the_compiler_knows(device: str, dtype: str, zero: float) -> None:
    x = lg.asarray(np.array([0.0, -0.0, 0.5, -2.0, np.inf, -np.inf, np.nan]), dtype=getattr(lg, dtype))
    elements = np.asarray(x).astype(np.float64)
    with np.errstate(all="ignore"):
        for got, wanted in ((x / zero, elements / zero), (zero / x, zero / elements)):
            assert same(np.asarray(got).astype(np.float64), wanted).all(), (np.asarray(got), wanted)
        for name in ("floor_divide", "remainder", "fmod"):
            wanted = getattr(np, name)(elements, zero)
            assert np.array_equal(np.asarray(getattr(lg, name)(x, zero)).astype(np.float64), wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["round", "trunc", "floor", "ceil"])
def test_roundings_at_ties_and_around_zero(device: str, dtype: str, name: str) -> None:
    ties = [0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 2.5, 3.5, 2.0**9 + 0.5, np.inf]
    large = {"float16": 2.0**12, "float32": 2.0**25 + 2.0**3, "float64": 2.0**53 + 2.0}[dtype]
    x = np.array([*ties, large], dtype)
    x = np.concatenate([x, -x, np.array([np.nan], dtype)])
    got, wanted = np.asarray(getattr(lg, name)(lg.asarray(x))), getattr(np, name)(x)
    assert same(got.astype(np.float64), wanted.astype(np.float64)).all(), (got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_that_cancel_are_zero(device: str, dtype: str) -> None:
    """Each is a product less the same product: fused with the sum, one of them would leave its rounding error."""
    rng = np.random.default_rng(2)
    x, y, z = [lg.asarray(rng.normal(size=1000).astype(dtype)) for _ in range(3)]

    def cross(x: lg.Tensor, y: lg.Tensor) -> lg.Tensor:
        return z * (x * y) - z * (y * x)

    for slope in (*lg.grad(lambda x, y: lg.sum(cross(x, y)), (0, 1))(x, y), lg.jvp(cross, (x, y), (z, x))[1]):
        assert not np.asarray(slope).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_rounded_as_numpy_rounds_them_with_and_without_a_gradient(compiled_device: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=1000).astype(dtype) for _ in range(2))
    wanted = x * x - y * y + x * y

    def function(x: lg.Tensor, y: lg.Tensor) -> tuple[lg.Tensor, lg.Tensor]:
        values = x * x - y * y + x * y
        return lg.sum(values), values

    plain = function(lg.asarray(x), lg.asarray(y))[1]
    (_, values), _ = lg.value_and_grad(function, (0, 1), has_aux=True)(lg.asarray(x), lg.asarray(y))
    assert same(np.asarray(plain), wanted).all()
    assert same(np.asarray(values), wanted).all()


WHOLE = [2, 3, 4, 5, 6, 7, 8, 9, -1, -2, -3, -4, -5, -7, -8]


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("exponent", WHOLE)
def test_whole_powers_are_within_an_ulp(device: str, dtype: str, exponent: int) -> None:
    """Of ordinary numbers; of zeros, infinities and what leaves the range they are exact, with their sign."""
    rng = np.random.default_rng(6)
    reach = {"float16": 5, "bfloat16": 80, "float32": 80, "float64": 680}[dtype] / abs(exponent)
    x = np.concatenate([rng.uniform(0.5, 2, 4000), np.exp(rng.uniform(-reach, reach, 4000))])
    limit = {"float16": 6e4, "bfloat16": 3e38, "float32": 3e38, "float64": 1.7e308}[dtype]
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, limit, -limit, limit**0.5, -(limit**0.34)])
    base = lg.asarray(np.concatenate([x * rng.choice([-1, 1], x.size), edges]), dtype=getattr(lg, dtype))
    got = np.asarray(lg.compile(lambda x: x**exponent)(base)).astype(np.float64)
    elements = np.asarray(base).astype(np.longdouble)
    with np.errstate(all="ignore"):
        wanted = np.power(elements, np.longdouble(exponent))
        rounded = wanted.astype(np.asarray(base).dtype).astype(np.float64)
        digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
        unit = np.ldexp(1.0, np.frexp(rounded)[1] - digits)
        distance = np.where(got == rounded, 0, np.abs(got - wanted) / unit)
    assert distance[: x.size].max() < (1 if abs(exponent) < 9 else 1.5)  # without a fused instruction, by logarithms
    np.testing.assert_array_equal(got[x.size :], rounded[x.size :])
    signed = ~np.isnan(rounded[x.size :])
    np.testing.assert_array_equal(np.signbit(got[x.size :][signed]), np.signbit(rounded[x.size :][signed]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["round", "trunc", "ceil", "rint"])
def test_small_negatives_round_to_minus_zero(device: str, dtype: str, name: str) -> None:
    x = lg.asarray([-0.5, -0.3, -1e-3, -0.0, 0.0, 0.3], dtype=getattr(lg, dtype))
    got = np.asarray(getattr(lg, name)(x)).astype(np.float64)
    assert np.signbit(got).tolist() == [True, True, True, True, False, False]


@pytest.mark.parametrize("exponent", [0.5, -0.5, 0.9, -0.99, 2.5])
def test_powers_of_subnormals(compiled_device: str, exponent: float) -> None:
    if compiled_device.startswith("vulkan"):
        pytest.skip("Vulkan doesn't promise subnormals")
    x = np.random.default_rng(7).uniform(0, 1, 2000) * np.finfo(np.float64).tiny
    wanted = np.power(x.astype(np.longdouble), np.longdouble(exponent))
    got = np.asarray(lg.power(lg.asarray(x), lg.asarray([exponent])))
    assert np.where(got == wanted, 0, np.abs(got - wanted) / np.spacing(np.abs(got))).max() < 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arithmetic_with_zeros_that_are_written_down(device, dtype):
    """No infinity, no NaN and no sign of a zero is lost where one operand is known: NumPy's bits."""
    x = np.array([np.inf, -np.inf, np.nan, 1.0, -2.0, 0.0, -0.0], dtype)
    of = lambda x: (
        x * 0.0, -0.0 * x, x + 0.0, 0.0 + x, x + -0.0, x - 0.0, 0.0 - x, -0.0 - x, 0.0 / x, x * 1.0, (x + x) * 0.0,
        abs(x) * 0.0 + x,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        expected = of(x)
    for k, (got, exact) in enumerate(zip(lg.compile(of)(lg.asarray(x)), expected, strict=True)):
        np.testing.assert_array_equal(np.asarray(got), exact, str(k))
        there = ~np.isnan(exact)
        np.testing.assert_array_equal(np.signbit(np.asarray(got))[there], np.signbit(exact)[there], str(k))
    turned = np.asarray(lg.fori_loop(0, 2, lambda _, c: c * 0.0 + c, lg.asarray(x)))
    np.testing.assert_array_equal(turned, [np.nan, np.nan, np.nan, 1.0, -2.0, 0.0, 0.0])
