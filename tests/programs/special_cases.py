"""Arguments of the functions of `lg.special`, in each piece that they are put together of, for tests that go through
all functions; the reference is SciPy's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from scipy import special

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]

REFERENCE: Final = SimpleNamespace(**{name: getattr(special, name) for name in dir(special) if name[0] != "_"})
REFERENCE.lambertw = lambda x, k=0: special.lambertw(x, k).real

ANYWHERE: Final = np.array([-9.3, -1.7, -0.4, 0.3, 1.2, 3.4, 8.9])
POSITIVE: Final = np.array([0.07, 0.6, 1.3, 3.2, 7.5, 9.3, 14.1])
INSIDE: Final = np.array([0.02, 0.31, 0.5, 0.66, 0.97])
# the argument's pieces of functions of one
POINTS: Final[dict[str, np.ndarray]] = {
    **dict.fromkeys(("expit", "log_expit", "softplus", "i0", "i0e", "i1", "i1e", "j0", "j1", "sici"), ANYWHERE),
    **dict.fromkeys(("exp1", "y0", "y1", "k0", "k0e", "k1", "k1e", "entr", "factorial"), POSITIVE),
    **dict.fromkeys(("logit", "ndtri"), 0.1 + 0.8 * INSIDE),
    **dict.fromkeys(("digamma", "psi", "gammaln"), POSITIVE + 0.2),
    **dict.fromkeys(("erf", "erfc"), np.array([-1.3, -0.2, 0.4, 1.1])),
    "erfcx": np.array([-2.1, -0.3, 0.4, 5.0]), "ndtr": np.array([-6.2, -1.6, -0.3, 2.1]),
    "log_ndtr": np.array([-23.0, -1.6, -0.3, 2.1]), "erfinv": np.array([-0.9, -0.4, 0.2, 0.8]),
    "erfcinv": np.array([0.2, 0.3, 1.4, 1.8]), "expi": np.array([-3.1, -0.4, 0.8, 5.2, 7.7, 15.5, 30.2]),
    "spence": np.array([0.2, 0.8, 1.3, 4.2]), "lambertw": np.array([-0.2, -0.1, 0.4, 30.0]),
    "gamma": np.array([-1.4, -0.3, 0.4, 3.2, 12.5]),
}  # fmt: skip
TWO: Final = (np.array([0.4, 2.3, 0.8]), np.array([0.3, 2.1, 1.9]))
MATRIX: Final = np.array([[0.3, -1.2, 2.0], [0.1, 0.7, -0.4]])

SPECIAL: Final[dict[str, list[Case]]] = {
    **{name: [(lambda m, x, f=name: getattr(m.special, f)(x), (points,))] for name, points in POINTS.items()},
    **{name: [(lambda m, x, y, f=name: getattr(m.special, f)(x, y), TWO)] for name in (
        "xlogy", "xlog1py", "rel_entr", "kl_div", "beta", "betaln",
    )},
    **{name: [(lambda m, x, f=name: getattr(m.special, f)(x, axis=1), (MATRIX,))] for name in (
        "softmax", "log_softmax", "logsumexp",
    )},
    "lambertw": [(lambda m, x: m.special.lambertw(x), (POINTS["lambertw"],)),
                 (lambda m, x: m.special.lambertw(x, -1), (np.array([-0.2, -0.12]),))],
    "polygamma": [(lambda m, x: m.special.polygamma(2, x), (np.array([-1.4, 0.3, 12.0]),))],
    "zeta": [(lambda m, s, q: m.special.zeta(s, q), (np.array([1.6, 4.2]), np.array([0.4, 11.0])))],
    **{name: [(lambda m, a, x, f=name: getattr(m.special, f)(a, x),
               (np.array([0.3, 2.5, 4.0]), np.array([0.4, 1.4, 6.3])))]
       for name in ("gammainc", "gammaincc")},
    **{name: [(lambda m, a, b, x, f=name: getattr(m.special, f)(a, b, x),
               (np.array([0.4, 2.5, 6.0]), np.array([1.7, 3.5, 0.8]), np.array([0.04, 0.35, 0.97])))]
       for name in ("betainc", "betaincc")},
}  # fmt: skip
WITHOUT_DERIVATIVES: Final = ("gammasgn",)
