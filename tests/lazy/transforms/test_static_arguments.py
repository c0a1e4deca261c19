"""What compiled functions compare static arguments by, what they refuse, and classes that are registered."""

from __future__ import annotations

import enum
import functools
import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from tests.lazy.oracle import check

X = np.array([1.0, 2.0, 3.0])
Pair = namedtuple("Pair", "a b")


class Colour(enum.Enum):
    RED = 1
    BLUE = 1.5


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Settings:
    rate: Any


class Plain:
    """Equal to everything, as a careless class may be."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def recorded(**options: Any) -> tuple[Any, list[Any]]:
    """A compiled function of an array and a static argument, and what that was in each trace."""
    seen: list[Any] = []

    def fun(x: Any, s: Any = None) -> Any:
        seen.append(s)
        return x + 1

    return lg.compile(fun, **options), seen


DIFFERENT: list[tuple[Any, ...]] = [
    (1, 1.0, True, 1 + 0j, "1", b"1", np.int64(1), np.float32(1), np.float64(1)),
    (0.0, -0.0, 0, False, None),
    (complex(0.0, 0.0), complex(0.0, -0.0)),
    ((1,), (1.0,), (True,), [1], {1}, frozenset({1}), Pair(1, 2), (1, 2)),
    ((0.0, [0.0]), (0.0, [-0.0])),
    ({1: "a"}, {True: "a"}, {1.0: "a"}, OrderedDict({1: "a"})),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (Settings(1), Settings(1.0), Settings(True)),
    (Colour.RED, Colour.BLUE, Level.LOW, Level.HIGH, 1, 1.5),
    (lg.float32, "float32", np.dtype("float32"), np.float32),
    (slice(1), slice(True), range(1)),
    (math.sin, np.sin, lg.sin, len, str.upper, Plain, math),
    (functools.partial(max, 1), functools.partial(max, 1.0), functools.partial(max, key=1)),
]
SAME: list[tuple[Any, Any]] = [
    (float("nan"), float("nan")),
    ([1, {"a": (2.5, None)}], [1, {"a": (2.5, None)}]),
    (Settings("fast"), Settings("fast")),
    (Pair(1, 2), Pair(1, 2)),
    (functools.partial(max, 1), functools.partial(max, 1)),
]


@pytest.mark.parametrize("values", DIFFERENT, ids=range(len(DIFFERENT)))
def test_values_that_differ_only_by_type(values: tuple[Any, ...]) -> None:
    f, seen = recorded(static_argnums=1)
    for _ in range(2):
        for s in values:
            f(X, s)
    assert len(seen) == len(values)
    assert all(type(a) is type(b) for a, b in zip(seen, values, strict=True))


@pytest.mark.parametrize("values", SAME, ids=range(len(SAME)))
def test_equal_values(values: tuple[Any, Any]) -> None:
    f, seen = recorded(static_argnums=1)
    for s in values:
        f(X, s)
    assert len(seen) == 1


def test_results_follow_the_static_value(device: str) -> None:
    i = lg.asarray([1, 2])
    product = lg.compile(lambda v, s: v * s, static_argnums=1)
    assert product(i, 1).dtype is lg.int64
    check(product(i, 1.0), [1.0, 2.0])
    branch = lg.compile(lambda v, s: v + 100 if s is True else v * s, static_argnums=1)
    check(branch(i, 1), [1, 2])
    check(branch(i, True), [101, 102])
    sign = lg.compile(lg.copysign, static_argnums=1)
    check(sign(X, 0.0), X)
    check(sign(X, -0.0), -X)
    grown = [2]
    repeated = lg.compile(lambda v, s: v * s[0], static_argnums=1)
    check(repeated(X, grown), 2 * X)
    grown[0] = 5
    check(repeated(X, grown), 5 * X)


@pytest.mark.parametrize(
    "options",
    [{"static_argnums": -1}, {"static_argnums": 1}, {"static_argnums": [-1]}, {"static_argnames": "s"}],
    ids=str,
)
def test_every_way_to_name_a_parameter(options: dict[str, Any]) -> None:
    f, seen = recorded(**options)
    for s in (1, 1.0):
        f(X, s)
        f(X, s=s)
    f(X)
    assert [type(s) for s in seen] == [int, int, float, float, type(None)]
    g = lg.compile(lambda *v, k: v[0] * v[1] + k, static_argnums=1, static_argnames=["k"])
    check(g(np.array([1, 2]), 2.0, k=1), [3.0, 5.0])
    check(g(np.array([1, 2]), 2, k=True), [3, 5])


BAD_NAMES: list[tuple[dict[str, Any], str]] = [
    ({"static_argnums": 2}, "from -2 to 1"),
    ({"static_argnums": -3}, "from -2 to 1"),
    ({"static_argnums": "s"}, "static_argnames"),
    ({"static_argnums": True}, "static_argnums of ints"),
    ({"static_argnames": "t"}, "among s, x"),
]


@pytest.mark.parametrize(("options", "message"), BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_parameters_that_do_not_exist(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        lg.compile(lambda x, s: x * s, **options)
    with pytest.raises(ValueError, match="at least 0"):
        lg.compile(lambda *x: x[0], static_argnums=-1)


REFUSED: list[tuple[Any, str]] = [
    (Plain(2), r"argument 1 \(s\) .* instance of Plain; .*register_pytree.*register_static"),
    ([{"a": Plain(2)}], r"argument 1 \(s\)\[0\]\['a'\] .* instance of Plain"),
    (Settings(Plain(2)), r"argument 1 \(s\).rate .* instance of Plain"),
    (Plain(2).__eq__, "bound|method"),
    ([].append, "bound to an object"),
    (bytearray(b"a"), "instance of bytearray"),
    (iter([]), "list_iterator"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_refused_arguments(value: Any, message: str) -> None:
    f, seen = recorded()
    with pytest.raises(lg.StaticArgumentError, match=message):
        f(X, value)
    with pytest.raises(lg.StaticArgumentError, match="argument s"):
        f(X, s=value)
    with pytest.raises(lg.StaticArgumentError, match="argument 1"):
        lg.compile(lambda x, s: (x, s), static_argnums=1)(X, value)
    assert not seen


def test_arrays_are_no_static_arguments() -> None:
    for value, name in ((np.ones(2), r"array float64\[2\]"), ([lg.ones(2)], r"tensor float64\[2\].*, in list")):
        with pytest.raises(lg.StaticArgumentError, match=f"{name}.*ordinary argument"):
            lg.compile(lambda x, s: (x, s), static_argnums=1)(X, value)


def test_functions_are_compared_with_what_they_close_over(device: str) -> None:
    apply = lg.compile(lambda x, f: f(x))
    factor: Any = 2.0

    def scaled(x: Any) -> Any:
        return x * factor

    nested = lg.compile(scaled)
    for now in (2.0, 3, 3.0, lg.asarray(4.0)):
        factor = now
        check(apply(X, scaled), X * float(now))
        check(apply(X, functools.partial(scaled)), X * float(now))
        check(apply(X, nested), X * float(now))
    assert apply.versions == 12
    factor = 2.0
    apply(X, scaled)
    assert apply.versions == 12

    def endless(x: Any, depth: int = 0) -> Any:
        return x if depth > 2 else links[0](x + 1, depth + 1)

    links: list[Any] = [endless]
    check(apply(X, endless), X + 3)
    links.append(links)  # what holds the function twice, and itself, is looked through once
    check(apply(X, endless), X + 3)


def test_what_explains_a_version_is_as_short_as_its_arguments_are_deep(device: str) -> None:
    apply = lg.compile(lambda x, nested: x * len(nested), static_argnums=1)
    deep: Any = [2]
    for _ in range(150):
        deep = [deep]
    check(apply(X, [1]), X)
    check(apply(X, deep), X)
    assert len(apply.explain()) < 1000


def test_keys_of_dicts_that_are_equal(device: str) -> None:
    f = lg.compile(lambda d: {type(k).__name__: v for k, v in d.items()})
    for key in (1, True, 1.0, "1"):
        assert list(f({key: X})) == [type(key).__name__]


# ---- classes


@lg.register_pytree
class Model:
    def __init__(self, w: Any, kind: str) -> None:
        self.w, self.kind = w, kind

    @lg.compile
    def predict(self, y: Any) -> Any:
        return lg.sum(self.w * y) if self.kind == "dot" else self.w + y

    @lg.compile(static_argnames="n")
    def power(self, y: Any, n: int) -> Any:
        return (self.w * y) ** n


def test_methods_of_a_registered_class(device: str) -> None:
    m = Model(lg.asarray(X), "dot")
    check(m.predict(X), X @ X)
    m.w = m.w * 10
    check(m.predict(X), 10 * X @ X)
    assert Model.predict.versions == m.predict.versions
    m.kind = "sum"
    check(m.predict(X), 11 * X)
    check(Model.predict(m, X), 11 * X)
    check(m.power(X, n=2), (10 * X * X) ** 2)
    assert m.predict.plan(X).kernels is not None
    assert "float64[3]" in m.predict.explain()
    replay = m.predict.capture(X)
    check(replay(Model(lg.asarray(X), "sum"), X), 2 * X)
    assert "bound" in repr(m.predict)
    check(lg.grad(lambda w: Model(w, "dot").predict(X))(lg.asarray(X)), X)
    Model.predict.clear()
    Model.power.clear()


def test_what_a_class_keeps_beside_its_children(device: str) -> None:
    class Scaled:
        def __init__(self, w: Any, k: Any) -> None:
            self.w, self.k = w, k

    lg.register_pytree(Scaled, lambda s: ((s.w,), s.k), lambda k, children: Scaled(children[0], k))
    f = lg.compile(lambda s: Scaled(s.w * s.k, "result"))
    for k in (2, 2.0, True):
        got = f(Scaled(np.array([1, 2]), k))
        check(got.w, np.array([1, 2]) * k)
        assert got.k == "result"
    assert f.versions == 3
    with pytest.raises(lg.StaticArgumentError, match="Scaled keeps beside its children"):
        f(Scaled(X, Plain(2)))


def test_static_classes(device: str) -> None:
    @lg.register_static
    @dataclass(frozen=True)
    class Grid:
        n: int

        @lg.compile
        def zeros(self, x: Any) -> Any:
            return lg.zeros(self.n) + x

    for n in (2, 3, 2):
        assert Grid(n).zeros(1.0).shape == (n,)
    assert Grid.zeros.versions == 2
    f, seen = recorded()
    for g in (Grid(2), Grid(2), Grid(3)):
        f(X, g)
        f(X, g.zeros)
    assert len(seen) == 4

    class Unregistered:
        @lg.compile
        def double(self, x: Any) -> Any:
            return 2 * x

    with pytest.raises(lg.StaticArgumentError, match=r"argument 0 \(self\).*instance of .*Unregistered"):
        Unregistered().double(X)


BAD_CLASSES: list[Callable[[], Any]] = [
    lambda: lg.register_pytree(Model),
    lambda: lg.register_static(Model),
    lambda: lg.register_static(dict),
    lambda: lg.register_static(Pair),
    lambda: lg.register_static(3),
    lambda: lg.register_pytree(3),
    lambda: lg.register_pytree(tuple),
    lambda: lg.register_pytree(Plain, lambda p: ((p.factor,), None)),
]


@pytest.mark.parametrize("register", BAD_CLASSES)
def test_classes_that_cannot_be_registered(register: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="expected"):
        register()
