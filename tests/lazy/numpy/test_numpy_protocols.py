"""NumPy's functions and dtypes meet tensors: same names, same results, nothing lost to a gradient."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import linalg, special

import loopgrad as lg
from loopgrad.lazy.numpy.not_offered import (
    ABSENT,
    JAX_ABSENT,
    LINALG_ABSENT,
    SPECIAL_ABSENT,
    STATS_ABSENT,
    TENSOR_ABSENT,
    TREE_ABSENT,
)
from tests.lazy.oracle import check

X = np.array([[0.5, 1.5], [2.5, -3.0]])


def test_universal_functions_of_tensors_stay_tensors(device: str) -> None:
    x = lg.asarray(X)
    for got, expected in [
        (np.sin(x), np.sin(X)), (np.add(X, x), X + X), (np.matmul(X, x), X @ X), (np.arctan2(x, 2.0), np.arctan2(X, 2)),
        (np.float32(2.0) * lg.asarray(X.astype(np.float32)), np.float32(2.0) * X.astype(np.float32)),
    ]:  # fmt: skip
        assert isinstance(got, lg.Tensor)
        check(got, expected)


def test_numpy_functions_of_tensors_are_differentiated(device: str) -> None:
    def f(x: lg.Tensor) -> lg.Tensor:
        both = np.concatenate([np.sin(x), np.exp(x)], axis=0)
        return np.sum(both * both) + np.linalg.norm(x) + np.mean(x, axis=0)[0] + np.fft.fft(x)[0, 0].real

    slope = lg.grad(f)(lg.asarray(X))
    expected = 2 * np.sin(X) * np.cos(X) + 2 * np.exp(2 * X) + X / np.linalg.norm(X) + np.array([0.5, 0.0])
    expected += np.array([[1.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(np.asarray(slope), expected, rtol=1e-12)


def test_numpy_functions_in_a_loop_body(device: str) -> None:
    y = lg.fori_loop(0, 3, lambda _, v: np.tanh(v) + np.maximum(v, 0.0), lg.asarray(X))
    expected = X
    for _ in range(3):
        expected = np.tanh(expected) + np.maximum(expected, 0.0)
    check(y, expected)


def test_numpy_functions_without_a_namesake_get_the_elements(device: str) -> None:
    x = lg.asarray([3.0, 1.0, 3.0])
    assert np.intersect1d(x, x).tolist() == [1.0, 3.0]
    assert np.linalg.det(lg.asarray(X)) == pytest.approx(np.linalg.det(X))
    copied = np.copy(x)
    copied[0] = 7.0
    assert x.tolist() == [3.0, 1.0, 3.0]
    assert np.shape(x) == (3,)
    np.testing.assert_allclose(x, [3.0, 1.0, 3.0])
    with pytest.raises(lg.TracedValueError):
        lg.compile(lambda x: np.intersect1d(x, x))(x)


def test_numpy_functions_given_what_no_tensor_holds_are_numpys(device: str) -> None:
    """As Matplotlib does for bars, with None for what has the default."""
    x = lg.asarray([3.0, 1.0])
    objects = np.array([2, None], object)
    for call in (
        lambda x: np.broadcast_arrays(x, None, np.ones(1)),
        lambda x: np.append(x, "a"),
        lambda x: np.isin(x, [None]),
        lambda x: np.concatenate([x, objects]),
        lambda x: np.equal(x, None),
        lambda x: np.equal(objects, x),
        lambda x: np.multiply(np.array([2, 3], object), x),
        lambda x: objects == x,
    ):
        got, wanted = call(x), call(np.asarray(x))
        assert type(got) is type(wanted)
        for ours, theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(lg.TracedValueError):
        lg.compile(lambda x: np.append(x, "a"))(x)
    with pytest.raises(TypeError):
        np.add(x, None)


def test_universal_functions_of_scipy(device: str) -> None:
    """Those that lg.special has are its, with derivatives; others get the elements, as those of nobody we know."""
    x = lg.asarray([0.5, 2.0])
    for function in (special.gammaln, special.expit, special.erf, special.cbrt, special.psi):
        got = function(x)
        assert isinstance(got, lg.Tensor)
        check(got, function(np.asarray(x)), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(lg.grad(lambda x: lg.sum(special.gammaln(x)))(x)), special.psi([0.5, 2.0]))
    less = np.frompyfunc(lambda v, w: v - w, 2, 1)
    for call in (
        lambda x: special.jv(0, x), lambda x: special.hyp2f1(1, 2, 3, x / 4), lambda x: special.eval_legendre(2, x),
        lambda x: special.wofz(x), lambda x: special.ellipj(x / 9, 0.5)[1], lambda x: less(x, x),
        lambda x: less.outer(x, x), lambda x: less.reduce(x, keepdims=True),
    ):  # fmt: skip
        got = call(x)
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got, call(np.asarray(x)))
    with pytest.raises(lg.TracedValueError, match="jv"):
        lg.grad(lambda x: lg.sum(lg.asarray(special.jv(0, x))))(x)


def test_strides_are_refused(device: str) -> None:
    """SciPy's Toeplitz matrices walk by them from a view into the array around it: elements of our views are alone."""
    x = lg.asarray([1.0, 2.0, 3.0])
    around = np.concatenate([x[::-1], x[1:]])
    with pytest.raises(AttributeError, match=r"strides.*np\.asarray"):
        np.lib.stride_tricks.as_strided(around[2:], (3, 3), (-around.strides[0], around.strides[0]))


def test_adding_a_tensor_to_an_array_in_place_gives_a_tensor(device: str) -> None:
    def f(x: lg.Tensor) -> lg.Tensor:
        total = np.zeros(2)
        total += x
        return lg.sum(total * total)

    assert lg.grad(f)(lg.asarray([1.0, 2.0])).tolist() == [2.0, 4.0]


def test_universal_functions_refuse_what_tensors_cannot_do() -> None:
    x = lg.asarray(X)
    with pytest.raises(lg.DTypeError, match=r"add.at.*another array"):
        np.add.at(np.ones(2), 0, x[0])
    with pytest.raises(lg.DTypeError, match=r"divmod.outer.*one result"):
        np.divmod.outer(x, x)
    with pytest.raises(lg.DTypeError, match="got another array; use the result"):
        np.add(x, 1.0, out=np.empty((2, 2)))
    with pytest.raises(lg.DTypeError, match="got order; use the result"):
        np.sqrt(x, order="F")


@pytest.mark.parametrize("name", ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "complex64"])
def test_dtypes_meet_numpy(name: str) -> None:
    ours = getattr(lg, name)
    theirs = ours.np
    assert ours == theirs
    assert theirs == ours
    assert ours == theirs.type
    assert ours.type is theirs.type
    assert ours.char == theirs.char
    assert ours != np.int16
    assert ours != "int16"
    assert ours != "no dtype"
    assert ours != 3
    assert lg.zeros(2, dtype=ours).dtype == ours
    assert np.zeros(2, dtype=ours).dtype == theirs
    assert {ours: 1}[ours] == 1


def test_dtypes_are_called(device: str) -> None:
    assert type(lg.float32(2.5)) is np.float32
    check(lg.float32(3) * lg.asarray(np.float32([1, 2])), np.float32([3, 6]))
    check(lg.asarray(lg.int8(7)), np.int8(7))
    check(lg.float32(lg.asarray([1.5, 2.0])), np.float32([1.5, 2.0]))
    assert lg.grad(lambda x: lg.float64(x) ** 2)(3.0) == 6.0


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_dtypes_make_numbers_of_what_numpy_s_do(name: str) -> None:
    dtype = getattr(lg, name)
    assert [dtype("1.5"), dtype(10**30) > 1e29, dtype(2).dtype] == [1.5, True, dtype.np]
    np.testing.assert_array_equal(dtype([1, 2.5]).astype(float), [1, 2.5])
    with pytest.raises(ValueError, match="could not convert string"):
        dtype("x")


def test_names_that_are_not_offered_say_what_to_do() -> None:
    for name, instead in ABSENT.items():
        assert name not in lg.__all__
        with pytest.raises(AttributeError) as error:
            getattr(lg, name)
        assert str(error.value) == f"loopgrad has no attribute {name!r}; instead: {instead}"
    rooms = {"linalg": LINALG_ABSENT, "special": SPECIAL_ABSENT, "stats": STATS_ABSENT, "tree": TREE_ABSENT}
    for room, table in rooms.items():
        for name, instead in table.items():
            with pytest.raises(AttributeError) as error:
                getattr(getattr(lg, room), name)
            assert str(error.value) == f"loopgrad.{room} has no attribute {name!r}; instead: {instead}"
    for name, instead in TENSOR_ABSENT.items():
        with pytest.raises(AttributeError) as error:
            getattr(lg.ones(2), name)
        assert str(error.value) == f"Tensor has no attribute {name!r}; instead: {instead}"
    name = "nonsense"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(lg, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(lg.ones(2), name)


def test_what_to_do_instead_is_that() -> None:
    """The advice that is a formula, as it stands, beside SciPy's function."""
    rng = np.random.default_rng(3)
    x, (c, a, q), b = np.array([2.5, 4.0]), rng.normal(size=(3, 3, 3)), rng.normal(size=(2, 2))
    low = np.linalg.cholesky(c @ c.T)
    positive, zeros = np.array([0, 1, 5, 2**31], np.uint32), np.array([32, 31, 29, 0])
    names = {"n": 3, "m": 2, "k": 1.5, "d": 3, "lmbda": 0.3, "x": x, "a": x, "l": low, "v": x[[0, 1, 1]], "y": x}
    for table, name, more, expected in (
        (SPECIAL_ABSENT, "poch", {}, special.poch(x, 2)), (SPECIAL_ABSENT, "comb", {}, special.binom(3, 1.5)),
        (SPECIAL_ABSENT, "perm", {"n": 7.0, "k": 2.0}, 42.0), (SPECIAL_ABSENT, "boxcox", {}, special.boxcox(x, 0.3)),
        (SPECIAL_ABSENT, "boxcox1p", {}, special.boxcox1p(x, 0.3)), (SPECIAL_ABSENT, "exprel", {}, special.exprel(x)),
        (SPECIAL_ABSENT, "multigammaln", {}, special.multigammaln(x, 3)),
        (SPECIAL_ABSENT, "powm1", {}, special.powm1(x, x)),
        (LINALG_ABSENT, "cholesky_update", {}, np.linalg.cholesky(low @ low.T + np.outer(x[[0, 1, 1]], x[[0, 1, 1]]))),
        (LINALG_ABSENT, "solve_sylvester", {"a": a, "b": b, "q": q[:, :2]}, linalg.solve_sylvester(a, b, q[:, :2])),
        (LINALG_ABSENT, "solve_discrete_lyapunov", {"a": a, "q": q}, linalg.solve_discrete_lyapunov(a, q)),
        (JAX_ABSENT, "clz", {"x": positive}, zeros),
    ):  # fmt: skip
        given = {k: lg.asarray(v) if isinstance(v, np.ndarray) else v for k, v in {**names, **more}.items()}
        text = table[name].partition(", and ")[0].partition(", for ")[0].partition(", of ")[0]
        np.testing.assert_allclose(eval(text, {"lg": lg, **given}), expected, 1e-9, err_msg=name)


def test_every_public_name_is_there() -> None:
    assert sorted(set(lg.__all__)) == sorted(lg.__all__)
    for name in lg.__all__:
        assert getattr(lg, name) is not None or name == "newaxis"
    assert dir(lg) == sorted(lg.__all__)
    assert dir(lg.linalg) == sorted(lg.linalg.__all__)
    assert dir(lg.fft) == sorted(lg.fft.__all__)


def test_limits_and_kinds() -> None:
    for name in ("float16", "float32", "float64"):
        ours, theirs = lg.finfo(getattr(lg, name)), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min) == (theirs.bits, theirs.eps, theirs.max, theirs.min)
        assert ours.smallest_normal == theirs.smallest_normal
    assert lg.finfo(lg.bfloat16).eps == 2.0**-7
    assert (lg.iinfo(lg.int8).min, lg.iinfo("uint16").max) == (-128, 65535)
    assert lg.iinfo(lg.ones(1, dtype="int32")).bits == 32
    assert lg.isdtype(lg.float32, "real floating")
    assert lg.isdtype(lg.int8, ("bool", "integral"))
    assert not lg.isdtype(lg.bool, "numeric")
    assert lg.isdtype("uint8", lg.uint8)
    assert lg.promote_types(lg.int8, lg.float32) is lg.float32
    assert (lg.shape([[1, 2]]), lg.ndim(3.0), lg.size([[1, 2]]), lg.size([[1, 2]], 0)) == ((1, 2), 0, 2, 1)
    with pytest.raises(lg.DTypeError, match=r"use lg\.iinfo"):
        lg.finfo(lg.int8)
    with pytest.raises(lg.DTypeError, match=r"use lg\.finfo"):
        lg.iinfo(lg.float32)
    with pytest.raises(lg.DTypeError, match="one of bool"):
        lg.isdtype(lg.int8, "whole")


def test_the_page_for_users_of_numpy_is_complete() -> None:
    page = (Path(__file__).parents[3] / "docs" / "numpy.md").read_text()
    offered, _, refused = page.partition("## Not offered")
    assert [n for n in (*lg.__all__, *lg.fft.__all__, *lg.linalg.__all__) if f"`{n}`" not in offered] == []
    assert [n for n in (*ABSENT, *LINALG_ABSENT, *TENSOR_ABSENT) if f"`{n}`" not in refused] == []


def test_signs_of_complex_numbers_are_refused() -> None:
    for call in (lambda m, z: m.signbit(z), lambda m, z: m.copysign(z, 1.0), lambda m, z: m.heaviside(1.0, z)):
        for m, z in ((np, np.array([1j])), (lg, lg.asarray([1j]))):
            with pytest.raises(TypeError):
                call(m, z)


def test_text_follows_the_settings() -> None:
    x = lg.asarray([1 / 3, 1e-9, 2.0])
    with lg.printoptions(precision=2, suppress=True, threshold=2, edgeitems=1):
        assert (repr(x), str(x)) == ("Tensor([0.33, ..., 2.  ], dtype=float64)", "[0.33 ... 2.  ]")
        assert lg.get_printoptions()["precision"] == 2
    assert [i for i, v in lg.ndenumerate(x) if v > 1.0] == [(2,)]
