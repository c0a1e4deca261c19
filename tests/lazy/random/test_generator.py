"""Generators: seeds, arguments out of range, copies, children, and where drawing is refused."""

from __future__ import annotations

import copy
import doctest
import pickle
import threading

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.random.distribution import Distribution


def test_seeds():
    """Hashed as by NumPy: ints of any size and sequences; None takes entropy."""
    for seed in (0, 7, 10**40, [1, 2, 3], np.uint32(9), np.random.SeedSequence(5)):
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        (want,) = sequence.generate_state(1, np.uint64)
        assert lg.random.Philox4x32(seed).state["state"]["key"] == [int(want)]
    assert lg.random.Generator().bit_generator.state != lg.random.Generator().bit_generator.state
    rng = lg.random.Generator(3)
    assert lg.random.default_rng(rng) is rng


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: lg.random.Generator(-1), ValueError),
        (lambda: lg.random.Generator(1.5), TypeError),
        (lambda: lg.random.Generator("seed"), TypeError),
        (lambda: lg.random.Generator(lg.asarray(3)), TypeError),
        (lambda: lg.random.Philox4x32(3, key=4), ValueError),
        (lambda: lg.random.Philox4x32(key=2**64), ValueError),
        (lambda: lg.random.Philox4x32(key=lg.asarray(1.0)), TypeError),
        (lambda: lg.random.Philox4x64(key=[1, 2, 3]), ValueError),
        (lambda: lg.random.Generator(0).random(dtype=int), TypeError),
        (lambda: lg.random.Generator(0).random(size=-1), ValueError),
        (lambda: lg.random.Generator(0).random(size=2.5), TypeError),
        (lambda: lg.random.Generator(0).normal(0.0, -1.0), ValueError),
        (lambda: lg.random.Generator(0).normal([0.0, 1.0], 1.0, size=3), ValueError),
        (lambda: lg.random.Generator(0).exponential(np.array([1.0, np.nan])), ValueError),
        (lambda: lg.random.Generator(0).uniform(0.0, np.inf), ValueError),
        (lambda: lg.random.Generator(0).integers(5, 5), ValueError),
        (lambda: lg.random.Generator(0).integers(0, 300, dtype="uint8"), ValueError),
        (lambda: lg.random.Generator(0).integers(-1, 3, dtype="uint8"), ValueError),
        (lambda: lg.random.Generator(0).integers(0.5), TypeError),
        (lambda: lg.random.Generator(0).integers(5, dtype=float), TypeError),
    ],
)
def test_what_is_refused(make, error):
    with pytest.raises(error):
        make()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *[("poisson", (v,)) for v in (1e30, 2.0**63, 9.22337203e18, 9.2e18, [1.0, 1e19], np.nan)],
        *[("uniform", v) for v in ((2, 1), ([0, 2], 1), (1, 1), (-1, [0.0, -0.5]))],
        *[("triangular", v) for v in ((1, 0, 2), (0, 3, 2), (0, 0, 0), (0, [0.5, 3], 2), (1, 1, 2), (0, 2, 2))],
        *[("negative_binomial", v) for v in ((1e300, 0.5), (3, 1e-300), (1e18, 0.5), (9.3e18, 0.5), (1e300, 1.0))],
    ],
)
def test_parameters_are_refused_where_numpy_refuses_them(name, parameters):
    def drawn(generator):
        try:
            return np.shape(getattr(generator, name)(*parameters))
        except ValueError:
            return "refused"

    assert drawn(lg.random.default_rng(0)) == drawn(np.random.default_rng(0))


def test_numbers_without_a_distribution_are_nan_where_tensors_say_so():
    drawn = lg.random.default_rng(0).triangular(0.0, lg.asarray([-1.0, 0.5, 3.0]), 2.0)
    assert np.isnan(np.asarray(drawn)).tolist() == [True, False, True]


def test_copies_go_on_by_themselves():
    rng = lg.random.Generator(11)
    rng.normal(size=3)
    for other in (copy.copy(rng), copy.deepcopy(rng), pickle.loads(pickle.dumps(rng)), rng.copy()):
        assert other.random(2).tolist() == rng.copy().random(2).tolist()
    shared = lg.random.Generator(rng.bit_generator)
    assert shared.random() != rng.random()  # one state: the second draw is another one
    state = rng.bit_generator.state
    before = rng.random(2).tolist()
    rng.bit_generator.state = state
    assert rng.random(2).tolist() == before
    with pytest.raises(ValueError, match="Philox4x64"):
        rng.bit_generator.state = lg.random.Philox4x64(1).state


def test_steps_are_skipped():
    rng, other = lg.random.Generator(4), lg.random.Generator(4)
    for _ in range(5):
        rng.random()
    other.bit_generator.advance(7).advance(-2)
    assert rng.random() == other.random()
    far = rng.bit_generator.jumped(2)
    assert far.state["state"]["counter"] == rng.bit_generator.state["state"]["counter"] + 2 * 2**48


def test_children_differ_from_each_other_and_from_their_parent():
    rng = lg.random.Generator(4)
    children = [*rng.spawn(3), *rng.spawn(2), rng]
    assert len({child.bit_generator.state["state"]["key"][0] for child in children}) == 6
    assert len({float(child.random()) for child in children}) == 6
    assert len(lg.random.Generator(lg.random.Philox4x64(4)).spawn(2)) == 2


def test_threads_draw_different_numbers():
    rng = lg.random.Generator(0)
    found = []
    threads = [threading.Thread(target=lambda: found.extend(float(rng.random()) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = lg.random.Generator(0)
    assert sorted(found) == sorted(float(want.random()) for _ in range(80))


def test_a_generator_from_around_is_refused_where_its_counter_could_not_advance():
    rng = lg.random.Generator(0)
    for program in (
        lambda: lg.compile(lambda x: x + rng.random())(1.0),
        lambda: lg.fori_loop(0, 3, lambda _, v: v + rng.random(), 0.0),
        lambda: lg.vmap(lambda x: x + rng.random())(lg.ones(3)),
        lambda: lg.cond(lg.asarray(True), lambda x: x + rng.random(), lambda x: x, 1.0),
    ):
        with pytest.raises(TypeError, match="the generator as an argument"):
            program()
    assert rng.bit_generator.state["state"]["counter"] == 0


def test_where_a_generator_advances():
    """In derivatives, which call their function once; as an argument; as a carry."""
    rng = lg.random.Generator(0)
    slope = lg.grad(lambda m: lg.sum(rng.normal(m, 1.0, size=3) ** 2))
    assert float(slope(1.0)) != float(slope(1.0))
    assert rng.bit_generator.state["state"]["counter"] == 2
    step = lg.compile(lg.value_and_grad(lambda m, rng: lg.sum(rng.normal(m, 1.0, size=3))))
    values = [float(step(1.0, rng)[0]) for _ in range(3)]
    assert len(set(values)) == 3
    assert rng.bit_generator.state["state"]["counter"] == 5
    total, after = lg.fori_loop(0, 3, lambda _, c: (c[0] + c[1].random(), c[1]), (0.0, rng.copy()))
    assert after.bit_generator.state["state"]["counter"] == 8
    assert float(total) == sum(float(rng.random()) for _ in range(3))


def test_a_generator_of_a_compiled_function_itself():
    """Made in it of a seed, it draws the same in each call, as it does uncompiled; of an argument, what that says."""
    same = lg.compile(lambda x: x + lg.random.Generator(5).random(3))
    assert same(lg.zeros(3)).tolist() == lg.random.Generator(5).random(3).tolist() == same(lg.zeros(3)).tolist()
    keyed = lg.compile(lambda key: lg.random.Generator(lg.random.Philox4x32(key=key)).random(3))
    assert keyed(np.uint64(5)).tolist() == lg.random.Generator(lg.random.Philox4x32(key=5)).random(3).tolist()
    assert keyed(np.uint64(6)).tolist() != keyed(np.uint64(5)).tolist()


def test_shapes():
    rng = lg.random.Generator(0)
    assert rng.random().shape == ()
    assert rng.random(0).shape == (0,)
    assert rng.normal(size=(3, 0, 2)).shape == (3, 0, 2)
    assert rng.normal([[0.0], [1.0]], [1.0, 2.0, 3.0]).shape == (2, 3)
    assert rng.normal(lg.zeros(3, dtype=lg.float32)).dtype == lg.float32
    assert rng.integers(0, [[1], [2]], size=(2, 3)).shape == (2, 3)
    stream = rng.stream((2, 3))
    assert stream.random()[0].shape == (2, 3)
    assert stream.normal(size=(4,))[0].shape == (2, 3, 4)
    assert stream.random(size=0)[0].shape == (2, 3, 0)


@pytest.mark.parametrize("name", lg.random.__all__)
def test_examples_of_the_classes(name):
    value = getattr(lg.random, name)
    finder = doctest.DocTestFinder(recurse=True)
    for example in finder.find(value, name, module=False, globs={"lg": lg, "np": np}):
        report: list[str] = []
        assert doctest.DocTestRunner(verbose=False).run(example, out=report.append).failed == 0, "".join(report)


def test_several_at_once_of_lanes():
    """Vectors of streams whose lanes have axes of their own; each lane draws the same as by itself."""
    stream = lg.random.Generator(2).stream((2, 2))
    one = lg.random.Stream(stream.key[1, 0], stream.lane[1, 0], stream.step[1, 0])
    for draw in (
        lambda s: s.multinomial(10, [0.2, 0.3, 0.5]),
        lambda s: s.dirichlet([1.0, 2.0]),
        lambda s: s.multivariate_normal([0.0, 1.0], [[1.0, 0.2], [0.2, 1.0]]),
        lambda s: s.gamma(0.4, size=2),
        lambda s: s.integers(0, 100, size=(3, 7)),
    ):
        (many, after), (single, later) = draw(stream), draw(one)
        np.testing.assert_allclose(np.asarray(many)[1, 0], np.asarray(single), rtol=1e-14)
        assert (np.asarray(after.step) == int(later.step)).all()
    with pytest.raises(ValueError, match="size"):
        stream.normal(lg.zeros((3, 2, 2)))


def test_a_generator_whose_draws_would_be_forgotten_is_refused() -> None:
    """By functions that get values of their own; what they return has advanced, what they make is theirs."""
    rng = lg.random.default_rng(3)

    def noisy(x: lg.Tensor, rng: lg.random.Generator) -> lg.Tensor:
        return x + rng.random()

    def handed_on(x: lg.Tensor, rng: lg.random.Generator) -> tuple[lg.Tensor, lg.random.Generator]:
        return x + rng.random() + rng.random(), rng

    with pytest.raises(lg.TracedValueError, match="checkpoint: expected the generators"):
        lg.checkpoint(noisy)(lg.ones(()), rng)
    with pytest.raises(lg.TracedValueError, match="checkpoint"):
        lg.compile(lambda x, rng: lg.checkpoint(noisy)(x, rng))(lg.ones(()), rng)
    first, rng = lg.checkpoint(handed_on)(lg.zeros(()), rng)
    second, rng = lg.checkpoint(handed_on)(lg.zeros(()), rng)
    assert float(first) != float(second)
    assert int(rng.bit_generator.counter) == 4
    several = lg.tree.stack([lg.random.default_rng(seed) for seed in range(3)])
    with pytest.raises(lg.TracedValueError, match="vmap: expected the generators"):
        lg.vmap(noisy)(lg.zeros(3), several)
    values, after = lg.vmap(handed_on)(lg.zeros(3), several)
    assert len(set(values.tolist())) == 3
    assert after.bit_generator.counter.tolist() == [2, 2, 2]
    own = lg.checkpoint(lambda x: x + lg.random.Philox4x32(7).uniform((), lg.float64))
    assert float(own(lg.zeros(()))) == float(own(lg.zeros(())))


def test_numbers_that_are_written_to_an_array() -> None:
    """The numbers that the call gives, in the array's dtype, through views and in compiled functions."""
    calls = {
        "random": (), "standard_normal": (), "standard_exponential": (), "standard_gamma": (2.5,),
    }  # fmt: skip
    for name, parameters in calls.items():
        rng, again = lg.random.default_rng(5), lg.random.default_rng(5)
        whole = lg.zeros((2, 3), dtype=lg.float32)
        row = whole[1]
        assert getattr(rng, name)(*parameters, out=row) is row
        expected = getattr(again, name)(*parameters, size=3, dtype=lg.float32)
        assert whole.tolist() == [[0.0] * 3, expected.tolist()]
        with pytest.raises(lg.ShapeError, match="out"):
            getattr(rng, name)(*parameters, size=4, out=row)
        with pytest.raises(lg.DTypeError):
            getattr(rng, name)(*parameters, out=lg.zeros(3, dtype=lg.int64))
        with pytest.raises(TypeError, match="tensor as out"):
            getattr(rng, name)(*parameters, out=np.zeros(3))
        empty = lg.zeros((0, 3))
        assert getattr(rng, name)(*parameters, out=empty) is empty

    @lg.compile
    def filled(x: lg.Tensor, rng: lg.random.Generator) -> None:
        rng.standard_normal(out=x[::2])

    x, rng = lg.zeros(5), lg.random.default_rng(5)
    filled(x, rng)
    assert x.tolist()[::2] == lg.random.default_rng(5).standard_normal(3).tolist()
    assert x.tolist()[1::2] == [0.0, 0.0]
    with pytest.raises(ValueError, match="method"):
        rng.standard_exponential(3, method="ziggurat")
    slope = lg.grad(lambda a: lg.sum(lg.random.default_rng(5).standard_gamma(a, out=lg.zeros(3))))(2.0)
    wanted = lg.grad(lambda a: lg.sum(lg.random.default_rng(5).standard_gamma(a, size=3)))(2.0)
    assert float(slope) == float(wanted)


def test_draws_that_come_again_are_noted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next counter and what the parameters are now; another size, dtype or key is another draw."""
    sizes, drawn = [], Distribution._drawn
    monkeypatch.setattr(Distribution, "_drawn", lambda self, *given: sizes.append(given[0]) or drawn(self, *given))
    ours, other, scale = lg.random.default_rng(3), lg.random.default_rng(4), lg.ones(7)
    traced = lg.compile(lambda rng, s: (rng.normal(2.0, s, size=7), rng.random(3, dtype="float32")))
    beside = ours.copy()
    for _ in range(8):
        normal, uniform = map(np.asarray, traced(beside, scale))
        np.testing.assert_array_equal(np.asarray(ours.normal(2.0, scale, size=7)), normal)
        np.testing.assert_array_equal(np.asarray(ours.random(3, dtype="float32")), uniform)
        assert not np.array_equal(np.asarray(other.normal(2.0, scale, size=7)), normal)
        scale = scale + 1.0
        lg.eval(scale)
    assert sizes.count((7,)) <= 5  # of 17: traced once, and until the draw was known
    assert ours.normal(size=7).dtype == lg.float64


def test_drawing_asks_nobody_for_a_counter_that_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU would have to be waited for."""
    rng = lg.random.default_rng(5)
    beside = rng.copy()
    want = [np.asarray(beside.random(2)) for _ in range(5)]
    np.testing.assert_array_equal(np.asarray(rng.random(2)), want[0])
    with monkeypatch.context() as patched:
        patched.setattr(type(rng.bit_generator.counter), "__int__", lambda _: pytest.fail("asked"))
        np.testing.assert_array_equal(np.asarray(rng.random(2)), want[1])
    rng.bit_generator.counter[...] = 4
    np.testing.assert_array_equal(np.asarray(rng.random(2)), want[4])
    slopes = [np.asarray(lg.grad(lambda x: lg.sum(x * rng.random(2)))(lg.ones(2))) for _ in range(2)]
    assert not np.array_equal(*slopes)
