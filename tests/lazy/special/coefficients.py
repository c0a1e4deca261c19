"""`python -m tests.lazy.special.coefficients` writes `lazy/special/coefficients.py`: Chebyshev series of what is smooth
in special functions, by interpolation with 50 digits of mpmath (which this needs, and nothing else does)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import mpmath as mp

mp.mp.dps = 50
FILE: Final = Path(__file__).parents[3] / "lazy" / "special" / "coefficients.py"
HEAD: Final = '''"""Coefficients of Chebyshev series, by which functions that have no short formula are computed.

Written by `python -m tests.lazy.special.coefficients`, which says what each one is. First terms are whole, not halved.
"""

from __future__ import annotations

from typing import Final

Series = tuple[float, ...]
'''
SMALLEST: Final = mp.mpf(10) ** -18  # beside the largest; what is smaller is left out
POINTS: Final = 72


def series(function: Callable[[Any], Any]) -> list[Any]:
    """Of a function on [-1, 1], by its values at Chebyshev's points."""
    angles = [mp.pi * (mp.mpf(k) + 0.5) / POINTS for k in range(POINTS)]
    values = [function(mp.cos(a)) for a in angles]
    pairs = list(zip(values, angles, strict=True))
    terms = [2 * mp.fsum(v * mp.cos(j * a) for v, a in pairs) / POINTS for j in range(POINTS)]
    terms[0] /= 2
    size = max(abs(t) for t in terms)
    while abs(terms[-1]) < SMALLEST * size:
        terms.pop()
    return terms


def over(a: float, b: float, function: Callable[[Any], Any]) -> list[Any]:
    """Of a function of x from a to b."""
    return series(lambda t: function(mp.mpf(a) + (mp.mpf(b) - a) * (t + 1) / 2))


def beyond(a: float, function: Callable[[Any], Any]) -> list[Any]:
    """Of a function of x from a to infinity, in t = 2 a / x - 1."""
    return series(lambda t: function(2 * mp.mpf(a) / (t + 1)))


def beyond_squared(a: float, function: Callable[[Any], Any]) -> list[Any]:
    """The same in t = 2 a**2 / x**2 - 1."""
    return series(lambda t: function(a * mp.sqrt(2 / (t + 1))))


def of_square(a: float, function: Callable[[Any], Any]) -> list[Any]:
    """Of an even function of x up to a, in t = 2 x**2 / a**2 - 1."""
    return series(lambda t: function(a * mp.sqrt((t + 1) / 2)))


def phases(order: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """p and q, by which j is sqrt(2 / (pi x)) (p cos(c) - 8 q / x sin(c)) with c = x - (2 order + 1) pi / 4."""

    def parts(x: Any) -> tuple[Any, Any]:
        angle, scale = x - (2 * order + 1) * mp.pi / 4, mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        return scale * (j * mp.cos(angle) + y * mp.sin(angle)), scale * (y * mp.cos(angle) - j * mp.sin(angle)) * x / 8

    return lambda x: parts(x)[0], lambda x: parts(x)[1]


def auxiliary(x: Any) -> tuple[Any, Any]:
    """x f and x**2 g, by which si is pi / 2 - f cos(x) - g sin(x) and ci is f sin(x) - g cos(x)."""
    rest = mp.pi / 2 - mp.si(x)
    return x * (rest * mp.cos(x) + mp.ci(x) * mp.sin(x)), x * x * (rest * mp.sin(x) - mp.ci(x) * mp.cos(x))


def inverse_of_erfc(s: Any) -> Any:
    """The x with erfc(x) (2 - erfc(x)) = exp(-s**2), over s."""
    w = mp.exp(-s * s)
    y = w / (1 + mp.sqrt(1 - w))
    x = mp.sqrt(-mp.log(y * mp.sqrt(mp.pi) * max(s, 0.5)))
    x = mp.findroot(lambda v: mp.log(mp.erfc(v)) - mp.log(y), max(x, mp.mpf("0.1")))
    return x / s


def inverse_of_erf(w: Any) -> Any:
    """The x with 1 - erf(x)**2 = exp(-w), over erf(x)."""
    if w == 0:
        return mp.sqrt(mp.pi) / 2
    y = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(y) / y


P0, Q0 = phases(0)
P1, Q1 = phases(1)


def scaled_tail(x: Any) -> Any:
    """What of erfcx falls as 1 / x, made flat."""
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


TABLES: Final[dict[str, Callable[[], list[Any]]]] = {
    "J0": lambda: of_square(8, lambda x: mp.besselj(0, x)),
    "J1": lambda: of_square(8, lambda x: mp.besselj(1, x) / x),
    "Y0": lambda: of_square(8, lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)),
    "Y1": lambda: of_square(8, lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x),
    "P0": lambda: beyond_squared(8, P0),
    "Q0": lambda: beyond_squared(8, Q0),
    "P1": lambda: beyond_squared(8, P1),
    "Q1": lambda: beyond_squared(8, Q1),
    "I1_BEYOND": lambda: beyond(8, lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(1, x)),
    "K0": lambda: of_square(2, lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)),
    "K1": lambda: of_square(2, lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))),
    "K0_BEYOND": lambda: beyond(2, lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(0, x)),
    "K1_BEYOND": lambda: beyond(2, lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(1, x)),
    "I0_TO_2": lambda: of_square(2, lambda x: mp.besseli(0, x)),
    "I1_TO_2": lambda: of_square(2, lambda x: mp.besseli(1, x) / x),
    "E1": lambda: over(0, 1, lambda x: (mp.e1(x) + mp.log(x) + mp.euler) / x),
    "E1_MIDDLE": lambda: over(1, 4, lambda x: x * mp.exp(x) * mp.e1(x)),
    "E1_BEYOND": lambda: beyond(4, lambda x: x * mp.exp(x) * mp.e1(x)),
    "EI": lambda: over(0, 6, lambda x: (mp.ei(x) - mp.log(x) - mp.euler) / x),
    "EI_MIDDLE": lambda: over(6, 12, lambda x: x * mp.exp(-x) * mp.ei(x)),
    "EI_FURTHER": lambda: over(12, 24, lambda x: x * mp.exp(-x) * mp.ei(x)),
    "EI_BEYOND": lambda: beyond(24, lambda x: x * mp.exp(-x) * mp.ei(x).real),
    "SI": lambda: of_square(8, lambda x: mp.si(x) / x),
    "CI": lambda: of_square(8, lambda x: (mp.ci(x) - mp.log(x) - mp.euler) / x**2),
    "F": lambda: beyond_squared(8, lambda x: auxiliary(x)[0]),
    "G": lambda: beyond_squared(8, lambda x: auxiliary(x)[1]),
    "LGAMMA1P": lambda: over(0, 1, lambda a: mp.loggamma(1 + a) / a),
    "ERFCX": lambda: series(lambda t: scaled_tail(mp.mpf("3.75") * (1 + t) / (1 - t))),
    "ERFINV": lambda: over(0, 6, inverse_of_erf),
    "ERFCINV_MIDDLE": lambda: over(mp.sqrt(6), 6.5, inverse_of_erfc),
    "ERFCINV_BEYOND": lambda: over(6.5, 28, inverse_of_erfc),
}  # fmt: skip


def written(name: str, terms: list[Any]) -> str:
    lines, line = [], "   "
    for term in terms:
        text = f" {mp.nstr(term, 19, min_fixed=-3, max_fixed=3)},"
        if len(line) + len(text) > 118:
            lines.append(line)
            line = "   "
        line += text
    return "\n".join([f"{name}: Final[Series] = (", *lines, line, ")  # fmt: skip", ""])


if __name__ == "__main__":
    FILE.write_text("\n".join([HEAD, *[written(name, table()) for name, table in TABLES.items()]]))
