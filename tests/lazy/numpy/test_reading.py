"""Arrays that NumPy reads, kinds of dtypes, settings of float errors, and names that say what to do instead."""

from __future__ import annotations

import io

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.numpy.not_offered import ABSENT


def test_what_numpy_reads() -> None:
    for found, wanted in (
        (lg.loadtxt(io.StringIO("# a\n1,2\n3,4"), delimiter=",", usecols=1), [2.0, 4.0]),
        (lg.loadtxt(["1 2"], dtype=lg.int32, ndmin=2), [[1, 2]]),
        (lg.genfromtxt(["1,,3"], delimiter=",", filling_values=7.0), [1.0, 7.0, 3.0]),
        (lg.frombuffer(np.arange(4, dtype=np.int16).tobytes(), lg.int16, 2, 2), [1, 2]),
        (lg.fromiter((k for k in range(9)), dtype=lg.float32, count=3), [0.0, 1.0, 2.0]),
        (lg.fromstring("4,5", dtype=int, sep=","), [4, 5]),
    ):
        assert isinstance(found, lg.Tensor)
        assert found.tolist() == wanted
    assert lg.loadtxt(["1"]).dtype is lg.float64


def test_kinds_are_those_of_numpy() -> None:
    kinds = [
        "generic",
        "number",
        "integer",
        "signedinteger",
        "unsignedinteger",
        "inexact",
        "floating",
        "complexfloating",
    ]
    for name in [
        "bool",
        "int8",
        "int64",
        "uint8",
        "uint32",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]:
        for kind in kinds:
            wanted = np.issubdtype(np.dtype(name), getattr(np, kind))
            assert lg.issubdtype(getattr(lg, name), getattr(lg, kind)) == wanted, (name, kind)
            assert lg.issubdtype(name, getattr(np, kind)) == wanted
    assert lg.issubdtype(lg.bfloat16, lg.inexact)
    assert not lg.issubdtype(lg.float32, np.float64)
    assert lg.half is lg.float16
    assert [lg.zeros(1, dtype=t).dtype for t in (lg.double, lg.intc, lg.uint)] == [lg.float64, lg.int32, lg.uint64]


def test_float_errors_are_silent() -> None:
    with lg.errstate(all="ignore"):
        assert np.isinf(float(lg.asarray(1.0) / 0.0))
    for error, call in (
        (ValueError, lambda: lg.errstate(divide="raise")), (ValueError, lambda: lg.seterr(all="warn")),
        (TypeError, lambda: lg.errstate(odd="ignore")),
    ):  # fmt: skip
        with pytest.raises(error, match=r"expected .*, got .*; "):
            call()


def test_names_that_are_not_offered() -> None:
    """None of them is offered after all, and every name of NumPy's is either."""
    assert [name for name in ABSENT if name in lg.__all__] == []
    assert [name for name in np.__all__ if name not in lg.__all__ and name not in ABSENT] == ["__version__"]
    for name in ("mul", "poly1d", "datetime64", "lax"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; instead: "):
            getattr(lg, name)
