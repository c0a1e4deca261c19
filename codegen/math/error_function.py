"""erf and erfc.

erf(x) = x P(x**2) for |x| < 1. erfc(a) = exp(-a**2) R(q) / (1 + 2a) with q = (a - K)/(a + K), after Shepherd
and Laframboise (Math. Comp. 36, 1981); exp(-a**2) with the rounding of a**2 put back. 1 - exp(F(a - c)) has digits
enough for erf(a) where a > 1, and needs no quotient: F is minimax for log(erfc(a)), weighted by erfc(a).
"""

from __future__ import annotations

from typing import Any, Final

from loopgrad.codegen.math.exponential import exp, normal_exp
from loopgrad.codegen.scalar.ops import Ops, V, polynomial

ERF = {
    32: (7.889095510477467e-05, -0.0008020834298678852, 0.005189534593387711, -0.026854444237171, 0.1128360016912614,
         -0.37612627135528626, 1.1283791659138993),
    64: (5.96067977320502e-11, -1.1374951053410355e-09, 1.4660327087945165e-08, -1.6350395905395144e-07,
         1.6461008439485176e-06, -1.4925595769162215e-05, 0.0001205533113279798, -0.0008548326981420099,
         0.00522397762482831, -0.026866170645077857, 0.11283791670954885, -0.3761263890318375, 1.1283791670955126),
}  # fmt: skip
CENTRE = {32: 2.0, 64: 4.0}
SCALED = {
    32: (3.419954606849533e-05, -0.00035088585080850476, -0.0012547837329064527, 0.0012609793366680467,
         0.008635986094632052, -0.008040862154213797, -0.05420426104119875, 0.16405273830578557,
         -0.1660314356268338, -0.09276388360760723, 1.2769783928696246),
    64: (-1.6927797004524242e-10, -2.471753414800783e-10, 2.0926702674945754e-09, 3.26054367246037e-09,
         -1.555444317479042e-08, -2.1019119545246016e-08, 1.1129617017300795e-07, 7.825581742469323e-08,
         -8.259466009945672e-07, 2.912382804113673e-07, 5.709777567404407e-06, -1.1220861823095826e-05,
         -2.439915747584956e-05, 0.00015062133127035976, -0.0001992567225858254, -0.0007577732230308972,
         0.005031969983971629, -0.01619773406561668, 0.0371675155368134, -0.0663303658116687, 0.0937328349983876,
         -0.10103906603632434, 0.06809705425469174, 0.015379652102620031, -0.1396211168405625, 1.2329951186255526),
}  # fmt: skip
FARTHEST = {32: 10.6, 64: 28.0}
F = {
    32: (0.0001855748996604234, -0.0007127170101739466, 0.0035436872858554125, -0.016487272456288338,
         -0.9237530827522278, -4.418159484863281, -5.364941120147705),
    64: (-4.864533186719978e-12, 1.1931340649123968e-10, -1.3189650336796526e-09, 8.517891559292696e-09,
          -3.338760934820462e-08, 5.800117878557434e-08, 2.0483309833056896e-07, -2.131971017048601e-06,
          9.671410566569587e-06, -2.7198999125200647e-05, 2.6296341998771317e-05, 0.00023731642869466159,
          -0.0019779012141397222, 0.010033825178831394, -0.04156109802505062, -0.8431072563594142,
          -2.6389675142347757, -1.8496055099332482),
}  # fmt: skip
ABOUT = {32: 2.0, 64: 1.0}
ONE_FROM = {32: 4.0, 64: 6.0}  # erf is 1 from there on


def complement(m: Ops[V], a: V) -> V:
    """erfc(a) for a >= 0."""
    bits = m.bits(a)
    limit = m.const(a, FARTHEST[bits])
    a = m.select(m.lt(limit, a), limit, a)
    centre, one = m.const(a, CENTRE[bits]), m.const(a, 1.0)
    q = m.near_quotient(m.sub(a, centre), m.add(a, centre))
    square = m.mul(a, a)
    lost = m.fma(a, a, m.neg(square))
    shape = polynomial(m, q, SCALED[bits])
    scaled = m.mul(m.fma(m.neg(lost), shape, shape), exp(m, m.neg(square)))
    return m.near_quotient(scaled, m.fma(a, m.const(a, 2.0), one))


def inner(m: Ops[V], x: V) -> V:
    """erf(x) for |x| <= 1, as x + x (P - 1): the leading coefficient above 1 would cost half an ulp."""
    *higher, last = ERF[m.bits(x)]
    return m.fma(x, polynomial(m, m.mul(x, x), (*higher, last - 1.0)), x)


def outer(m: Ops[V], a: V) -> V:
    """erf(a) for a >= 1."""
    bits = m.bits(a)
    limit = m.const(a, ONE_FROM[bits])
    shifted = m.sub(m.select(m.lt(limit, a), limit, a), m.const(a, ABOUT[bits]))
    return m.sub(m.const(a, 1.0), normal_exp(m, polynomial(m, shifted, F[bits])))


def erf(m: Ops[V], x: V) -> V:
    size = m.abs(x)
    outside = m.invert(m.le(size, m.const(x, 1.0)))
    if m.bits(x) == 32:
        return m.copysign(m.select(outside, outer(m, size), inner(m, size)), x)
    return m.copysign(m.rarely(outside, lambda: outer(m, size), inner(m, size)), x)


def erfc(m: Ops[V], x: V) -> V:
    size, one = m.abs(x), m.const(x, 1.0)
    value = complement(m, size)
    value = m.select(m.lt(x, m.const(x, 0.0)), m.sub(m.const(x, 2.0), value), value)
    return m.select(m.lt(size, m.const(x, 0.5)), m.sub(one, inner(m, x)), value)


RECIPES: Final[dict[str, Any]] = {"erf": erf, "erfc": erfc}
