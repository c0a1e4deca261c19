"""Lengths whose transforms take least time: products of small primes."""

from __future__ import annotations

from typing import Any, Final

from loopgrad.graph.errors import DTypeError, explained

PUBLIC_FFT: Final = "next_fast_len prev_fast_len"
OF_REALS: Final = (3, 5)  # besides 2
OF_COMPLEX: Final = (3, 5, 7, 11)


def next_fast_len(target: int, real: bool = False) -> int:
    """The smallest length, of at least `target`, that is a product of the primes 2, 3, 5, 7 and 11, or with `real` of
    the first three: to fill up with zeros what may be longer. An int, as SciPy's.

    Every device has fast transforms of such lengths. Raises ValueError for a target below 0, DTypeError for one that is
    no integer.

    >>> lg.fft.next_fast_len(1021)
    1024
    """
    least = _target("next_fast_len", target)
    odd = _odd_products(2 * least, real)
    return min([number << (-(-least // number) - 1).bit_length() for number in odd]) if least else 0


def prev_fast_len(target: int, real: bool = False) -> int:
    """The largest such length of at most `target`, to cut what may be shorter: an int. Raises what `next_fast_len`
    does.

    >>> lg.fft.prev_fast_len(1021)
    1008
    """
    most = _target("prev_fast_len", target)
    return max([number << (most // number).bit_length() - 1 for number in _odd_products(most, real)], default=0)


def _target(op: str, target: Any) -> int:
    try:
        length = int(target.__index__())
    except (AttributeError, TypeError):
        raise DTypeError(explained(op, "an integer target", repr(target), "pass an int")) from None
    if length < 0:
        raise ValueError(explained(op, "a target of at least 0", length, "pass a length"))
    return length


def _odd_products(most: int, real: bool) -> list[int]:
    """Those of the odd primes, of at most `most`."""
    found = [1] if most else []
    for prime in OF_REALS if real else OF_COMPLEX:
        last = found.copy()
        while last:
            last = [number * prime for number in last if number * prime <= most]
            found += last
    return found
