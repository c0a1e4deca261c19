"""Python numbers given to compiled functions: dtypes and values as NumPy has them of these numbers, or an error."""

from operator import abs as absolute
from operator import add, and_, floordiv, lshift, mod, mul, neg, or_, pow, rshift, sub, xor

import numpy as np
import pytest

import loopgrad as lg

DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "complex64"]
NUMBERS = [True, 3, 2.5, 1 + 2j]
# Of each what it gives of an array and a number; `np_or_lg` has the functions.
FUNCTIONS = {
    "operators": lambda x, k, _: (x + k, k - x, x * k, x == k),
    "computed": lambda x, k, _: (x + k * 2, x * (k - 1), x * (k == 3), x * +k, (k + k) * k + x),
    "functions": lambda x, k, np_or_lg: (np_or_lg.multiply(x, k), np_or_lg.where(x == x, x, k)),
    "settled": lambda x, k, np_or_lg: (x * np_or_lg.asarray(k), x + np_or_lg.full(3, k)),
    "called inside": lambda x, k, np_or_lg: _inside(np_or_lg)(x, k),
}
REAL = {
    "operators": lambda x, k, _: (x < k, k >= x),
    "computed": lambda x, k, _: (x + k // 2, x + k % 2, x * (k > 2), x + round(k), x * abs(k), (x + 2) ** k),
}
INT_OPERATORS = [add, sub, mul, floordiv, mod, and_, or_, xor, lshift, rshift, pow]


def _inside(np_or_lg):
    def function(x, k):
        return x * (k * 2)

    return lg.compile(function) if np_or_lg is lg else function


def _same(mine, theirs):
    mine = np.asarray(mine)
    assert mine.dtype == theirs.dtype, (mine, theirs)
    np.testing.assert_allclose(mine, theirs, rtol=1e-2 if mine.dtype == np.float16 else 1e-6)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_have_the_dtypes_and_values_of_numpy(dtype):
    x = np.asarray([1, 0, 2]).astype(dtype)
    for number in NUMBERS:
        functions = [*FUNCTIONS.values(), *([] if complex in (type(number), type(x.item(0))) else REAL.values())]
        for function in functions:
            try:
                theirs = function(x, number, np)
            except TypeError:  # NumPy refuses bools here and there, and we do
                continue
            got = lg.compile(lambda x, k, function=function: function(x, k, lg))(lg.asarray(x), number)
            for mine, expected in zip(got, theirs, strict=False):
                _same(mine, expected)


@pytest.mark.parametrize("operator", INT_OPERATORS, ids=lambda f: f.__name__)
def test_what_is_computed_of_ints_must_fit(operator):
    """The same program serves all numbers; each call has what NumPy gives of them, or its error."""
    functions = [lambda x, k: x - operator(k, 3), lambda x, k: x - operator(3, k), lambda x, k: operator(k, 2) <= x]
    x = np.asarray([1, 0, 2], "int8")
    for function in functions:
        compiled = lg.compile(function)
        for number in (5, 1, 7, 40, 100, -2, -60):
            try:
                theirs = function(x, number)
            except (OverflowError, ValueError) as error:
                with pytest.raises(type(error)):
                    compiled(x, number)
                continue
            if theirs.dtype.kind != "f":  # Python's 3 ** -2
                _same(compiled(x, number), theirs)
        assert compiled.versions == 1


def test_errors_name_the_line_where_the_number_was_computed():
    compiled = lg.compile(lambda x, k: x * (k * 100))
    assert compiled(lg.asarray([1], dtype=lg.int8), 1).tolist() == [100]
    with pytest.raises(
        OverflowError, match=r"from -128 to 127 where it is computed of arguments at .*numbers.py.*got 300"
    ):
        compiled(lg.asarray([1], dtype=lg.int8), 3)


def test_ints_have_no_limits():
    """Where int64 has wrapped, a number isn't what Python has, and nothing is computed of it."""
    assert lg.compile(lambda k: (k + 1) - 1)(2**62) == 2**62
    for function in (lambda k: k * 4, lambda k: lg.ones(2) * (k * 4), lambda k: lg.asarray([1]) + k * 4 // 8):
        with pytest.raises(OverflowError):
            lg.compile(function)(2**62)


@pytest.mark.parametrize(
    "around",
    [
        lambda f: lambda x, k: lg.vmap(f, in_axes=(0, None))(x, k),
        lambda f: lambda x, k: lg.vmap(lambda v: f(v, k))(x),
        lambda f: lambda x, k: lg.fori_loop(0, 1, lambda _, v: f(v, k), x),
        lambda f: lambda x, k: lg.scan(lambda v, _: (f(v, k), None), x, length=1)[0],
        lambda f: lambda x, k: lg.cond(lg.sum(x) > 0, f, lambda x, _: x, x, k),
        lambda f: lambda x, k: lg.checkpoint(f)(x, k),
        lambda f: lambda x, k: lg.value_and_grad(lambda y, k: (lg.sum(y), f(x, k)), has_aux=True)(lg.ones(2), k)[0][1],
        lambda f: lambda x, k: lg.compile(f)(x, k),
        lambda f: lg.export(f, lg.ShapeDtypeStruct((3,), lg.int8), 1),
    ],
    ids=["vmap", "vmap around", "fori_loop", "scan", "cond", "checkpoint", "value_and_grad", "compile", "export"],
)
def test_numbers_reach_what_is_called_inside(around):
    compiled = lg.compile(around(lambda x, k: x + k * 100))
    x = lg.asarray([1, 0, 2], dtype=lg.int8)
    assert compiled(x, 1).tolist() == [101, 100, 102]
    assert compiled(x, 1).dtype == lg.int8
    with pytest.raises(OverflowError):
        compiled(x, 2)


def test_results_that_were_numbers_give_way():
    """So do those of recorded calls and exported functions; and an int must fit what it meets, computed as it is."""

    def double(k):
        return k * 2

    for function in (lg.compile(double), lg.compile(double).capture(2.5), lg.export(double, 2.5)):
        assert (lg.ones(2, dtype=lg.float32) * function(2.5)).dtype == lg.float32
    small, compiled = lg.asarray([1], dtype=lg.int8), lg.compile(double)
    for _ in range(3):  # a line that comes again is known
        assert (small * compiled(3)).dtype == lg.int8
    for _ in range(3):
        with pytest.raises(OverflowError):
            small * compiled(300)
    again = lg.compile(lambda x, k: x * k)
    assert again(small, compiled(3)).tolist() == [6]
    with pytest.raises(OverflowError):
        again(small, compiled(300))


def test_functions_of_numbers_settle_their_dtype():
    """NumPy's give an int64 of a Python int, Python's operators an int."""
    x = np.asarray([1, 0, 2], "int8")
    for function in (
        lambda k, np_or_lg: np_or_lg.abs(k),
        lambda k, np_or_lg: np_or_lg.maximum(k, 2),
        lambda k, np_or_lg: np_or_lg.add(k, k),
    ):
        theirs = x * function(-3, np)
        _same(lg.compile(lambda x, k, function=function: x * function(k, lg))(lg.asarray(x), -3), theirs)
    for operator in (neg, absolute):
        assert lg.compile(lambda x, k, operator=operator: x * operator(k))(lg.asarray(x), True).dtype == lg.int8


def test_limits_beyond_the_dtype():
    """Of `clip` the end that is open anyway; what fills must fit; negative exponents of integers."""
    x = lg.asarray([1, 0, 2], dtype=lg.uint8)
    assert lg.compile(lambda x, k: lg.clip(x, k, None))(x, -2).tolist() == [1, 0, 2]
    for function, number in (
        (lambda x, k: lg.pad(x, 1, constant_values=k), 300),
        (lambda x, k: lg.full_like(x, k), 1e6),
        (lambda x, k: lg.asarray(k, dtype=x.dtype), -1),
        (lambda x, k: lg.clip(x, k, None), 300),
        (lambda x, k: x**k, -2),
    ):
        compiled = lg.compile(function)
        compiled(x, type(number)(7))
        with pytest.raises(OverflowError):
            compiled(x, number)
