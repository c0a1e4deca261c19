"""Where loopgrad differs from NumPy on purpose (docs/numpy.md); random scripts leave such statements out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

_VARIABLE: Final = re.compile(r"\bv\d+\b")
# of these NumPy's results without axes are arrays, ours are numbers
_NUMBERS_HERE: Final = ("where", "select", "isin", "tensordot", "roll", "pad", "digitize", "searchsorted")
# floats of fewer digits stay what they are
_FLOAT64_IN_NUMPY: Final = re.compile(
    r"(cov|corrcoef)\(|(quantile|percentile)\(v\d+, \[|(diff|append)\(.*(xp\.\w+|[\d.)])\)$"
    r"|(stack|concat\w*)\(\[.*(, |\[)[-\dTx]|(dot|inner|outer|kron)\(.*[-(, ][\dT]"
)

_OF_NUMBERS_ALONE: Final = re.compile(r"where\(.*?, [^v]*, [^v]*\)$")

# refusals that are meant: what the message begins with, and why
REFUSALS: Final = (
    (r"DTypeError: at\[\.\.\.\]\.set: expected values that fit", "assignments don't narrow"),
    (
        r"ShapeError: (quantile|vander|convolve|correlate): expected (at least one|a vector of at least one) element",
        "nothing to begin with",
    ),
    (r"ShapeError: einsum: expected one extent", "extents aren't stretched in einsum"),
    (r"ShapeError: x.at\[mask\]: expected a scalar while a function is traced", "shapes that depend on data"),
    (r"ShapeError: min|ShapeError: max", "nothing to choose from"),
    (r"OverflowError: \w+: expected an integer from", "numbers that don't fit, which NumPy's where and pad wrap"),
    (r"DTypeError: ldexp: expected an integer exponent, got bool", "exponents are integers"),
    (r"DTypeError: .*expected .* elements, got bool", "arithmetic of bools"),
    (r"DTypeError: .*beside tensors", "out= of NumPy's functions is the tensor itself"),
    (r"TracedValueError", "traced functions have no elements"),
    (r"DTypeError: .*(while a function is traced|being traced|known)", "shapes that depend on data"),
)


def names(text: str) -> set[str]:
    """The variables that occur in a piece of text."""
    return set(_VARIABLE.findall(text))


def differs(line: str, before: Mapping[str, Any], made: Any) -> bool:
    """Whether `made`, what a line gave of arrays `before` it, may be something else in loopgrad."""
    arrays = [before[name] for name in names(line) if name in before]
    floats = [a for a in arrays if a.dtype.kind == "f"]
    return (
        _small_float_of_integers(line, floats, made)
        or ("reciprocal" in line and not floats)
        or _out_of_range(line, floats, made)
        or (_FLOAT64_IN_NUMPY.search(line) is not None and any(a.dtype != np.float64 for a in floats))
        or (made.dtype.kind == "f" and _OF_NUMBERS_ALONE.search(line) is not None)  # they give way to float32
        or ("round" in line and made.dtype.kind in "iu" and _odd_in_numpy(arrays))  # past the dtype's end
        or (made.dtype.kind == "f" and any(_no_float(a) for a in arrays))  # sums are rounded in some order
        or (any(q in line for q in ("quantile", "percentile", "median")) and _odd_in_numpy(arrays))
        or (("inner(" in line or "dot(" in line) and any(not np.isfinite(a).all() for a in floats))
        or (made.ndim == 0 and isinstance(made, np.ndarray) and any(f".{n}(" in line for n in _NUMBERS_HERE))
    )


def _small_float_of_integers(line: str, floats: list[Any], made: Any) -> bool:
    """float functions of small integers are of the default float."""
    return made.dtype.kind == "f" and made.dtype != np.float64 and not floats and ".float" not in line


def _out_of_range(line: str, floats: list[Any], made: Any) -> bool:
    """Conversions of floats that no integer of the dtype equals saturate."""
    if made.dtype.kind not in "iu" or not ("astype" in line or "dtype" in line or "full_like" in line):
        return False
    limits = np.iinfo(made.dtype)
    if "inf" in line or "nan" in line:
        return True
    if made.dtype.kind in "iu" and "mean" in line:
        return True
    return any(not ((a > limits.min) & (a < limits.max)).all() for a in floats)


def _no_float(a: Any) -> bool:
    """Whether float64 can't hold integers of that size exactly."""
    return a.dtype.kind in "iu" and bool((np.abs(a.astype(float)) > 2**53).any())


def _odd_in_numpy(arrays: list[Any]) -> bool:
    """NumPy interpolates by a difference, which wraps between integers and is NaN beside infinities."""
    return any(a.size and not np.abs(np.nan_to_num(a.astype(float))).max() < 50 for a in arrays)
