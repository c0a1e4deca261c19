"""Lines that come again are found by what is noted of them, and mean what they meant the first time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.graph.lift import slots
from loopgrad.graph.nodes import Leaf
from loopgrad.graph.structure import noted_structure, number_places, structure
from loopgrad.lazy.tensor import evaluation, line_programs, repeated_lines
from loopgrad.lazy.tensor.walk import walked
from loopgrad.runtime.cpu.direct import Planner
from loopgrad.runtime.session import SESSION


@pytest.fixture(autouse=True)
def soon_by_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines get code of their own when they come for the second time as they were."""
    monkeypatch.setattr(repeated_lines, "OFTEN", 2)


class Given(NamedTuple):
    """lg or NumPy, two arrays of six floats, and a number that is another one each time."""

    xp: Any
    a: Any
    b: Any
    n: int


LINES: dict[str, Callable[[Given], Any]] = {
    "operators": lambda v: (v.a + 1.0) * v.b - 0.25,
    "a number in front": lambda v: v.n - v.a / 3.0,
    "a value twice": lambda v: (v.a * v.b) * (v.a * v.b) + v.a,
    "the same array": lambda v: v.a * v.a - v.a,
    "the arrays exchanged": lambda v: v.b * v.b - v.b,
    "a comparison": lambda v: (v.a < v.n) & (v.b >= 0.5),
    "a minus in front of zero": lambda v: v.xp.copysign(1.0, v.a * -0.0),
    "nothing in front of zero": lambda v: v.xp.copysign(1.0, v.a * 0.0),
    "not finite": lambda v: v.xp.minimum(v.a * float("inf"), v.b) + v.xp.isnan(v.a * float("nan")),
    "an element": lambda v: v.a[v.n] * 2.0 + 1.0,
    "a part": lambda v: v.a[v.n : v.n + 2] * v.b[1],
    "padded": lambda v: v.xp.concatenate([v.b, v.xp.pad(v.a, (v.n, 5 - v.n))]),
    "three arrays": lambda v: v.xp.where(v.a < v.b, v.a, v.xp.concatenate([v.a, v.b, v.a])[v.n : v.n + 6]),
    "sums": lambda v: v.xp.sum(v.xp.reshape(v.a, (2, 3)), axis=v.n % 2).sum() + v.b,
    "another dtype": lambda v: v.xp.astype(v.a * 10.0, np.int32) // 3,
}


def test_lines_that_come_again(usual: list[Any]) -> None:
    rng = np.random.default_rng(0)
    for again in range(8):
        arrays = [rng.uniform(0.1, 1.0, 6) for _ in range(2)]
        if again == 5:
            usual.clear()
        tensors = [lg.asarray(x) for x in arrays]
        for name, line in LINES.items():
            with np.errstate(all="ignore"):
                expected = np.asarray(line(Given(np, *arrays, 1 + again % 4)))
            got = line(Given(lg, *tensors, 1 + again % 4)).numpy()
            assert got.dtype == expected.dtype, name
            np.testing.assert_array_equal(got, expected, err_msg=name)
    assert len(usual) <= 3 * len(LINES) / 2, "most were known"


def test_values_that_share_words_share_their_structure() -> None:
    a, b = lg.asarray(np.linspace(0.1, 0.6, 6)), lg.asarray(np.linspace(0.7, 1.2, 6))
    given = [Given(lg, *arrays, n) for n in (1, 3) for arrays in ((a, b), (b, a), (a, a))]
    values = [line(those)._value for line in LINES.values() for those in given]
    noted = [noted_structure(v) for v in values]
    graphs = [walked((v,)).cut((v,))[0] for v in values]
    usual = [structure(graph) for graph in graphs]
    for i, (one, other) in enumerate(zip(noted, usual, strict=True)):
        assert one is not None
        assert other is not None
        assert sorted(one[1]) == sorted(other[1])
        places = number_places(values[i])
        assert [p.value for p in places] == list(one[1])
        assert {*places} == {p for node in graphs[i].nodes for p in slots(node)}
        for second, third in zip(noted[:i], usual[:i], strict=True):
            assert second is not None
            assert third is not None
            assert (one[0] == second[0]) is (other[0] == third[0])


def test_what_somebody_holds_has_elements_too(usual: list[Any]) -> None:
    x = lg.asarray(np.arange(4.0))
    for again in range(8):
        usual.clear()
        held = x * 3.0
        other = held.copy()
        deeper = lg.exp(held) - held
        result = deeper + 1.0
        np.testing.assert_array_equal(result, np.exp(np.arange(4.0) * 3.0) - np.arange(4.0) * 3.0 + 1.0)
        for t in (held, other, deeper):
            assert isinstance(t._value, Leaf)
        other += 1.0  # a copy: the others stay
        np.testing.assert_array_equal(held, np.arange(4.0) * 3.0)
        np.testing.assert_array_equal(other, np.arange(4.0) * 3.0 + 1.0)
        (gradient,) = lg.gradients(lg.sum(deeper), [held])
        np.testing.assert_allclose(gradient, np.exp(np.arange(4.0) * 3.0) - 1.0, rtol=1e-12)
        if again > 5:
            assert not [asked for asked in usual if len(asked[0]) == 3], "known with what is held"
        lazy = x * 5.0
        reader = lazy - 2.0
        del lazy
        np.testing.assert_array_equal(reader, np.arange(4.0) * 5.0 - 2.0)


def test_named_values_on_the_way_are_found_by_their_expression(
    usual: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts name what they compute: a value on the way that is held, is read twice, was written to, or went."""
    monkeypatch.setattr(repeated_lines, "OFTEN", 1 << 30)  # code of their own would be asked first
    found: list[Any] = []
    elements = repeated_lines.Trees.elements
    monkeypatch.setattr(repeated_lines.Trees, "elements", lambda *asked: found.append(elements(*asked)) or found[-1])
    array = np.linspace(0.5, 2.0, 23)  # no other test's lines, which may have code of their own
    x = lg.asarray(array)
    for again in range(9):
        if again == 6:
            usual.clear()
            found.clear()
        a = x * (2.5 + again)
        b = a - 0.25
        kept = b
        c = b * a / b
        expected = (array * (2.5 + again) - 0.25) * (array * (2.5 + again)) / (array * (2.5 + again) - 0.25)
        assert c.numpy().tobytes() == expected.tobytes()
        assert all(isinstance(t._value, Leaf) for t in (a, b, c))
        b += 1.0
        assert b is kept
        assert kept.numpy().tobytes() == (array * (2.5 + again) - 0.25 + 1.0).tobytes()
        assert a.numpy().tobytes() == (array * (2.5 + again)).tobytes()
        d = a * 0.5
        e = d + x
        d = e - 1.0  # what was d is held by nobody
        assert d.numpy().tobytes() == (array * (2.5 + again) * 0.5 + array - 1.0).tobytes()
        assert isinstance(e._value, Leaf)
        (slope,) = lg.gradients(lg.sum(c * e), [a])
        np.testing.assert_allclose(slope, array * (3.5 + again), rtol=1e-12)
    assert [buffer is not None for buffer in found].count(True) >= 9, "c, kept and d, three times"
    assert not [asked for asked in usual if len(asked[0]) > 1], "known with what is held"


def test_elements_are_read_where_they_lie(usual: list[Any]) -> None:
    for dtype in ("bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"):
        x = lg.asarray(np.arange(5) % 3).astype(dtype)
        array = x.numpy().copy()
        usual.clear()
        for again in range(5):
            for i in (0, 4, -1, -5, 2):
                one = x[i]
                assert one.numpy().tobytes() == array[i].tobytes(), dtype
                assert (one.shape, one.dtype) == ((), x.dtype)
                assert isinstance(one._value, Leaf)
            if again == 2 and dtype.startswith("float"):
                before = x[3]
                x += 1.0
                array += 1
                assert before.numpy().tobytes() == (array[3] - 1).tobytes(), "as it was"
        assert len(usual) <= 4, dtype
        with pytest.raises(IndexError, match="5"):
            x[5]
    x = lg.asarray([1.0, 2.0, 3.0])
    one = x[1]
    float(one)
    (slope,) = lg.gradients(one * one, [x])
    np.testing.assert_array_equal(slope, [0.0, 4.0, 0.0])
    with lg.default_device("interpreter"):
        assert float(x[1] + x[-1]) == 5.0


def test_numbers_of_lines_that_run_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Any] = []
    planned = Planner.planned
    monkeypatch.setattr(Planner, "planned", lambda planner: plans.append(planner) or planned(planner))
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = lg.asarray(a)
    lines: dict[str, Callable[[Any, Any, int], Any]] = {
        "slices of two axes": lambda _, v, n: v[n, n : n + 2] * (0.1 + n),
        "padded": lambda xp, v, n: xp.pad(v, ((n, 3 - n), (2 - n, n))) + n,
        "a power": lambda _, v, n: (v[n] + 1.0) ** (n + 1),
        "an integer": lambda xp, v, n: xp.astype(v[n], np.int8) * (n + 3),
        "a sum": lambda xp, v, n: xp.sum(v[n : n + 2], axis=0) - n * 0.3,
    }
    counts = {}
    for name, line in lines.items():
        for n in (0, 1, 2) * 3:
            plans.clear()
            expected = np.asarray(line(np, a, n))
            got = line(lg, x, n).numpy()
            assert got.dtype == expected.dtype, name
            np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=f"{name} {n}")
            counts[name, n] = len(plans)
        with lg.options(direct=False):
            assert line(lg, x, 2).numpy().tobytes() == got.tobytes(), f"{name}: the bits of compiled code"
    for name in ("slices of two axes", "padded", "an integer", "a sum"):
        assert not counts[name, 1], f"{name}: planned once for all numbers"


def test_a_line_that_was_evaluated_is_differentiable() -> None:
    for _ in range(6):
        x = lg.asarray(np.arange(4.0))
        y = x * x
        z = y * 3.0
        assert float(z[1]) == 3.0
        loss = lg.sum(z * z)
        float(loss)
        (gradient,) = lg.gradients(loss, [x])
        np.testing.assert_array_equal(gradient, 36.0 * np.arange(4.0) ** 3)


def test_a_line_on_another_device_or_with_other_options() -> None:
    x = lg.asarray(np.arange(4.0))
    for _ in range(4):
        assert (x * 7.0).device == "cpu"
        with lg.default_device("interpreter"):
            y = x * 7.0
            np.testing.assert_array_equal(y, np.arange(4.0) * 7.0)
            assert y.device == "interpreter"
        on_it = lg.to_device(x, "interpreter") * 7.0
        np.testing.assert_array_equal(on_it, np.arange(4.0) * 7.0)
        assert on_it.device == "interpreter"
        with lg.options(direct=False):
            np.testing.assert_array_equal(x * 7.0, np.arange(4.0) * 7.0)


def test_threads_look_at_nodes_of_one_value() -> None:
    x = lg.asarray(np.arange(4.0))
    for _ in range(200):
        value = (x * 2.0 + x)._value
        found: list[Any] = []
        start = threading.Barrier(3)

        def look(value: Any = value, found: list[Any] = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append((value.node, value.node.operands[1].node))

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        start.wait()
        for thread in threads:
            thread.join()
        assert found[0] == found[1]


class Round(NamedTuple):
    """lg or NumPy, what a script has so far, and the number of the round."""

    xp: Any
    v: list[Any]
    n: int


class RandomScript:
    """Lines over arrays, the same in each round but for numbers: some are looked at, some held, some written to."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.looks = seed % 3 + 1  # at every line, or every second or third
        self.steps = [self._step() for _ in range(12)]

    def _step(self) -> Callable[[Round], Any]:
        i, j, k = (self.draw.randrange(8) for _ in range(3))
        number = self.draw.choice([0.3, 1.0, 2.0, -0.0, 0.0, 3, 1.7])
        steps: list[Callable[[Round], Any]] = [
            lambda g: g.v[i] * number + g.v[j],
            lambda g: (g.v[i] - g.v[j]) * (g.v[i] + 0.1 * g.n) - g.v[k] * 0.5,
            lambda g: g.n - g.v[i] / 3.7,
            lambda g: g.xp.where(g.v[i] < g.v[j], g.v[k], g.v[i] * 0.25 * g.n),
            lambda g: g.xp.sqrt(abs(g.v[i])) * g.v[j],
            lambda g: g.v[i][g.n % 3] * g.v[j] + g.v[k][1:2],
            lambda g: (g.v[i] >= number) * g.v[j],
            lambda g: g.xp.sum(g.v[i]) * 0.1 + g.v[j],
            lambda g: g.xp.minimum(g.xp.astype(g.v[i], np.float32), 0.1 + g.n * 0.01) + g.xp.astype(g.v[k], np.float32),
            lambda g: g.v[i].__iadd__(number),
            lambda g: g.v[i].__setitem__(slice(1, 3), g.v[j][0:2] * 0.5 + g.n),
            lambda g: g.v[i][:],
        ]
        return self.draw.choice(steps)

    def run(self, xp: Any, arrays: list[Any], rounds: int) -> list[Any]:
        """What is seen of it."""
        seen = []
        for n in range(1, rounds + 1):
            v = [*arrays, *[x * 1.5 for x in arrays], *[x - 0.5 for x in arrays], *[x[:] * 1.0 for x in arrays]]
            if self.looks == 1:
                seen += [*map(np.array, v)]
            for number, step in enumerate(self.steps):
                made = step(Round(xp, v, n))
                if made is not None:
                    v[2 + number % 6] = made
                del made
                if number % self.looks == 0:
                    seen.append(np.array(v[2 + number % 6]))
            seen += [np.array(x) for x in v[2:]]
        return seen


def test_random_scripts_mean_what_they_mean_without_known_lines(
    monkeypatch: pytest.MonkeyPatch, usual: list[Any]
) -> None:
    ran: list[Any] = []
    run = line_programs.ready
    for module in (line_programs, repeated_lines):
        monkeypatch.setattr(module, "ready", lambda *asked: ran.append(asked) or run(*asked))
    trees: list[Any] = []
    found = repeated_lines.Trees.elements
    monkeypatch.setattr(repeated_lines.Trees, "elements", lambda *asked: trees.append(found(*asked)) or trees[-1])
    for seed in range(16):
        arrays = [np.random.default_rng(seed + i).uniform(0.2, 1.4, 6) for i in range(2)]
        rounds = 6
        with np.errstate(all="ignore"):
            expected = RandomScript(seed).run(np, [x.copy() for x in arrays], rounds)
        known = RandomScript(seed).run(lg, [*map(lg.asarray, arrays)], rounds)
        with monkeypatch.context() as without:
            without.setattr(evaluation, "_elements_of_line", lambda: lambda *_: None)
            without.setattr(repeated_lines.Trees, "elements", lambda *_: None)
            unknown = RandomScript(seed).run(lg, [*map(lg.asarray, arrays)], rounds)
        for a, b, c in zip(expected, known, unknown, strict=True):
            assert (a.dtype, b.tobytes()) == (b.dtype, c.tobytes()), seed
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6, err_msg=str(seed))  # some were float32 before
    assert len(ran) > 250, "many were known"
    assert len([tree for tree in trees if tree is not None]) > 120, "half of these by their expressions"


def test_expressions_that_differ_in_what_is_the_same(usual: list[Any]) -> None:
    """Leaves, values on the way, signs of zeros: lines of one expression, or nearly, side by side."""
    a, b, c = (np.arange(1.0, 5.0) * k for k in (1.0, 0.3, -0.7))
    x, y, z = map(lg.asarray, (a, b, c))

    def line(p: Any, q: Any, r: Any) -> Any:
        return (p * 3.5 + q) * (r * 3.5 - p)

    for again in range(6):
        if again == 4:
            usual.clear()
        ways = ((x, y, z), (a, b, c)), ((x, x, y), (a, a, b)), ((y, x, x), (b, a, a)), ((x,) * 3, (a,) * 3)
        for given, arrays in ways:
            assert line(*given).numpy().tobytes() == line(*arrays).tobytes()
        once = x * 1.25
        assert ((once + y) * (once - y)).numpy().tobytes() == ((a * 1.25 + b) * (a * 1.25 - b)).tobytes()
        del once
        twice = (x * 1.25 + y) * (x * (1.25 + again) - y)
        assert twice.numpy().tobytes() == ((a * 1.25 + b) * (a * (1.25 + again) - b)).tobytes()
        for zero in (0.0, -0.0):
            assert (x * zero).numpy().tobytes() == (a * zero).tobytes()
        for number in (float("inf"), float("-inf"), 1.0, 2.0):
            assert (number - x).numpy().tobytes() == (number - a).tobytes()
            assert (x - number).numpy().tobytes() == (a - number).tobytes()
    assert len(usual) <= 4, usual


def test_lines_that_are_evaluated_without_a_look_are_known_too(usual: list[Any]) -> None:
    x = lg.asarray(np.arange(4.0))
    for again in range(6):
        if again == 4:
            usual.clear()
        y = x * 2.5 - 1.0
        lg.eval([y])
        assert isinstance(y._value, Leaf)
        np.testing.assert_array_equal(y, np.arange(4.0) * 2.5 - 1.0)
    assert not usual


def test_lines_whose_programs_were_forgotten_are_learned_again(usual: list[Any]) -> None:
    x = lg.asarray(np.arange(4.0))
    for again in range(12):
        if again == 5:
            SESSION.clear()
        if again in (4, 10):
            usual.clear()
        np.testing.assert_array_equal(x * 9.5 - 1.0, np.arange(4.0) * 9.5 - 1.0)
        if again in (4, 11):
            assert not usual


def test_constants_that_somebody_holds_are_no_reason_to_look_further(usual: list[Any]) -> None:
    """A list of 1,000 products with a named number took half a second to become an array."""
    number = lg.asarray(2.0)
    for k in range(20):
        if k == 10:
            usual.clear()
        assert float(number * 2.5 + number - k) == 7.0 - k
    assert usual == []


def test_settings_in_turns_keep_their_lines(usual: list[Any]) -> None:
    x = lg.asarray(np.arange(4.0))
    for again in range(6):
        if again == 4:
            usual.clear()
        for device in ("cpu", "interpreter"):
            with lg.default_device(device), lg.options(fast_math=again % 2 == 0 and device == "cpu"):
                np.testing.assert_array_equal(x * 7.5 - 1.0, np.arange(4.0) * 7.5 - 1.0)
    assert not usual


def script(xp: Any, given: np.ndarray[Any, Any], again: int) -> list[Any]:
    """Lines that are the same each time, of arrays that aren't quite: `again` says which repetition this is."""
    found: list[Any] = []
    own = np.array(given)
    x = xp.asarray(own) if xp is lg else own.copy()
    own[0] = -7.0  # what the caller writes to its array later isn't seen
    x = x.astype((np.float32, np.float64, np.int64)[again % 7 // 3])
    y = x * x + x
    try:
        y = y * xp.asarray(np.ones(4)) if again % 4 == 1 else y - x
    except ValueError as error:
        found.append(isinstance(error, ValueError))
    held = y * x if again % 3 else None  # somebody else wants a value on the way
    z = (y * x) * y + (held if held is not None else x)
    found.append(np.asarray(z - 2 * x))
    view = x[1:4]
    total = view * view + view
    x[2] = 9
    found += [np.asarray(total), np.asarray(view * view + view), np.asarray(x * x + x)]
    n = xp.sum(x) * 1
    n += 1
    found += [np.asarray(n), np.asarray(2 * x - (1 + x)), np.asarray((x <= y) | (y == x)), np.asarray(x**2 / 4)]
    if held is not None:
        found.append(np.asarray(held))
    del held, z
    state = x
    for _ in range(3):  # each reads what the one before gave
        state = state - x * state
        found.append(np.asarray(state))
    return found


def test_lines_mean_what_they_mean_to_numpy_whatever_changes_between_them() -> None:
    given = np.array([1.0, 2.0, -3.0, 4.0, 5.0, -6.0])
    for again in range(28):
        with lg.options(check_indices=again % 5 == 4), np.errstate(all="ignore"):
            got, expected = script(lg, given + again % 2, again), script(np, given + again % 2, again)
        assert [type(x) for x in got] == [type(x) for x in expected], again
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            np.testing.assert_array_equal(a, b, err_msg=f"{again}, {i}")
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None), (again, i)


def test_an_operator_that_is_known_notes_the_line_that_called_it() -> None:
    x = lg.asarray(np.ones(3))

    def lines() -> list[Any]:
        return [
            x * x,
            x * x,
            2.5 - x,
            lg.linspace(x[0], x[1], 3) * x,
        ]

    first = lines.__code__.co_firstlineno + 2
    for _ in range(3):
        assert [t._value.node.loc.line for t in lines()] == [first, first + 1, first + 2, first + 3]
    with pytest.raises(lg.ShapeError, match=r"first \* second"):
        _ = x * x, (lambda first, second: first * second)(x, lg.ones(4))
    known = x * x + 1.0
    inside = lg.grad(lambda v: lg.sum(v * v + known * v))(x)  # operators that were met before, traced now
    np.testing.assert_array_equal(inside.numpy(), 2.0 * np.ones(3) + 2.0)
    np.testing.assert_array_equal(lg.compile(lambda v: v * v + 1.0)(x).numpy(), known.numpy())


def test_elements_of_a_lazy_vector_that_somebody_holds_have_it_computed_once(usual: list[Any]) -> None:
    for vector, expected in ((lg.arange(50), np.arange(50)), (lg.full(50, 3.5), np.full(50, 3.5))):
        usual.clear()
        assert [vector[i].numpy() for i in range(50)] == list(expected)
        assert isinstance(vector._value, Leaf)
        assert len(usual) < 10
    vector = lg.asarray(np.arange(50.0)) * 0.5
    assert [float(lg.flip(vector)[i]) for i in range(50)] == list(np.arange(50.0)[::-1] * 0.5), "held by nobody"
