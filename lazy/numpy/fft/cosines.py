"""Cosine transforms of values along their last axis, by one Fourier transform each, times a factor.

    first    x[0] + (-1)**k x[n-1] + 2 sum over 0 < j < n-1 of x[j] cos(pi j k / (n - 1))
    second   2 sum of x[j] cos(pi (2 j + 1) k / (2 n))
    third    x[0] + 2 sum over j > 0 of x[j] cos(pi j (2 k + 1) / (2 n))
    fourth   2 sum of x[j] cos(pi (2 j + 1) (2 k + 1) / (4 n))

and `sines`, 2 sum of x[j] sin(pi (j + 1) (k + 1) / (n + 1)); other sums of sines are sums of cosines of numbers that
are turned round, or of which every second one is negative.

The first ones are transforms of real numbers with their mirror image. The second are those of the numbers at even
places and then, backwards, those at odd ones (J. Makhoul, A fast cosine transform in one and two dimensions, 1980), the
third its transpose. The fourth, of an even length, are transforms of half as many complex numbers, else of twice as
many.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi

from loopgrad.graph import ops
from loopgrad.graph.complex_numbers.parts import Parts, joined, parts
from loopgrad.graph.nodes import Value
from loopgrad.graph.types import TensorType, int64
from loopgrad.lazy.numpy.fft.transforms import of_reals, to_reals, transformed


def first(x: Value, factor: float) -> Value:
    n = x.shape[-1]
    around = ops.concat([x, backwards(span(x, 1, n - 1))], len(x.shape) - 1)
    return _scaled(ops.real(of_reals(around, len(x.shape) - 1, 2 * n - 2, "none")), factor)


def sines(x: Value, factor: float) -> Value:
    n, last = x.shape[-1], len(x.shape) - 1
    zero = ops.zeros_like(span(x, 0, 1))
    around = ops.concat([zero, x, zero, ops.neg(backwards(x))], last)
    found = ops.imag(of_reals(around, last, 2 * n + 2, "none"))
    return _scaled(span(found, 1, n + 1), -factor)


def second(x: Value, factor: float) -> Value:
    n, last = x.shape[-1], len(x.shape) - 1
    folded = ops.concat([_every_second(x, 0), backwards(_every_second(x, 1))], last)
    half = of_reals(folded, last, n, "none")
    re, im = _turned(parts(half), -1, pi / (2 * n), 2 * factor)
    return ops.concat([re, ops.neg(backwards(span(im, 1, (n + 1) // 2)))], last)


def third(x: Value, factor: float) -> Value:
    n, last = x.shape[-1], len(x.shape) - 1
    half = n // 2 + 1
    opposite = ops.concat([ops.zeros_like(span(x, 0, 1)), backwards(span(x, n - half + 1, n))], last)
    given = _turned((span(x, 0, half), ops.neg(opposite)), 1, pi / (2 * n), factor)
    folded = to_reals(joined(given), last, n, "none")
    middle = (n + 1) // 2
    return _alternating(span(folded, 0, middle), backwards(span(folded, middle, n)))


def fourth(x: Value, factor: float) -> Value:
    n, last = x.shape[-1], len(x.shape) - 1
    if n % 2:
        given = _turned((x, ops.zeros_like(x)), -1, pi / (2 * n), 1.0)
        found = parts(transformed(joined(given), last, 2 * n, "none", inverse=False))
        here = (span(found[0], 0, n), span(found[1], 0, n))
        return _turned(here, -1, pi / (2 * n), 2 * factor, pi / (4 * n))[0]
    pairs = _every_second(x, 0), _every_second(backwards(x), 0)
    given = _turned(pairs, -1, pi / n, 1.0)
    found = parts(transformed(joined(given), last, n // 2, "none", inverse=False))
    re, im = _turned(found, -1, pi / n, 2 * factor, pi / (4 * n))
    return _alternating(re, backwards(ops.neg(im)))


# ---- numbers along the last axis


def span(x: Value, start: int, stop: int) -> Value:
    rank = len(x.shape)
    return ops.slice(x, (0,) * (rank - 1) + (start,), (*x.shape[:-1], max(start, stop)))


def backwards(x: Value) -> Value:
    return ops.flip(x, (len(x.shape) - 1,))


def _every_second(x: Value, start: int) -> Value:
    rank = len(x.shape)
    start = min(start, x.shape[-1])
    return ops.slice(x, (0,) * (rank - 1) + (start,), x.shape, (1,) * (rank - 1) + (2,))


def _alternating(x: Value, y: Value) -> Value:
    """x[0], y[0], x[1], y[1] ...; of x there may be one more."""
    rows, n = x.shape[:-1], x.shape[-1] + y.shape[-1]
    missing = x.shape[-1] - y.shape[-1]
    y = ops.pad(y, (0,) * len(x.shape), (0,) * len(rows) + (missing,))
    columns = [ops.reshape(v, (*v.shape, 1)) for v in (x, y)]
    together = ops.reshape(ops.concat(columns, len(x.shape)), (*rows, n + missing))
    return span(together, 0, n)


def numbered(like: Value) -> Value:
    """0, 1, 2 ... along the last axis."""
    return ops.iota(TensorType(like.shape, int64), len(like.shape) - 1)


def _turned(number: Parts, direction: int, step: float, factor: float, start: float = 0.0) -> Parts:
    """Complex numbers, times `factor` and exp(direction i (start + k step)) for the k-th."""
    re, im = number
    angle = ops.add(ops.mul(ops.cast(numbered(re), re.dtype), step), start)
    along, across = _scaled(ops.cos(angle), factor), _scaled(ops.sin(angle), direction * factor)
    return (
        ops.sub(ops.mul(re, along), ops.mul(im, across)),
        ops.add(ops.mul(re, across), ops.mul(im, along)),
    )


def _scaled(x: Value, factor: float) -> Value:
    return x if factor == 1 else ops.mul(x, factor)


def weighted(x: Value, places: Sequence[int], weight: float) -> Value:
    """The numbers at these places times a weight."""
    k = numbered(x)
    for place in {*places}:
        x = ops.select(ops.eq(k, place), ops.mul(x, weight), x)
    return x
