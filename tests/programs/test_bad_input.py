"""Bad input: each gives its documented behaviour or a clear error at the user's line, and the process
and earlier arrays stay intact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from oracles import check

import loopgrad as lg


@pytest.fixture
def survivor(device):
    """An array made before the mistake, checked after it."""
    kept = lg.asarray([1.0, 2.0, 3.0])
    yield kept
    check(lg.sum(kept * kept), 14.0)


SHAPE_MISTAKES = {
    "add": lambda x: x + lg.zeros((2,)),
    "matmul": lambda x: lg.matmul(x, lg.zeros((2, 2))),
    "reshape": lambda x: lg.reshape(x, (2, 2)),
    "concat": lambda x: lg.concat([x, lg.zeros((1, 2))]),
    "axis": lambda x: lg.sum(x, axis=3),
    "broadcast": lambda x: lg.broadcast_to(x, (2, 2)),
}


@pytest.mark.parametrize("name", list(SHAPE_MISTAKES))
def test_wrong_shapes(survivor, name):
    with pytest.raises((ValueError, IndexError)) as caught:
        SHAPE_MISTAKES[name](survivor)
    assert "expected" in str(caught.value)
    assert "test_bad_input.py" in str(caught.value)


EXPLAINED_MISTAKES = {
    "rows of different lengths": lambda x: lg.asarray([[1, 2], [3]]),
    "a length that is NaN": lambda x: lg.arange(float("nan")),
    "a length that is infinite": lambda x: lg.arange(float("inf")),
    "a fraction of a number of points": lambda x: lg.linspace(0, 1, 2.5),
    "a slice of floats": lambda x: x[0.5:],
    "a slice with step 0": lambda x: x[::0],
    "no single element": lambda x: x.item(),
    "an element out of range": lambda x: x.item(9),
    "the truth of an array": lambda x: bool(x > 1),
    "the truth of nothing": lambda x: bool(x[:0]),
    "the length of a scalar": lambda x: len(x[0]),
    "DLPack of a number": lambda x: lg.from_dlpack(3),
    "an unknown device": lambda x: x.to_device("nowhere"),
    "compile of no function": lambda x: lg.compile(3),
    "grad of no function": lambda x: lg.grad(3),
    "vmap of no function": lambda x: lg.vmap(x),
    "checkpoint of no function": lambda x: lg.checkpoint(x),
    "a body that is no function": lambda x: lg.fori_loop(0, 3, x, x),
    "a condition that is no function": lambda x: lg.while_loop(True, lambda v: v, x),
    "a scan of no function": lambda x: lg.scan(3, x, x),
    "a loss turned into a float": lambda x: lg.grad(lambda v: float(lg.sum(v)))(x),
    "a loss turned into an array": lambda x: lg.grad(lambda v: np.asarray(lg.sum(v)))(x),
    "an option of another type": lambda x: lg.options(stack_capacity="many").__enter__(),
    "more axes than there are": lambda x: lg.tensordot(x, x, axes=2),
    "an explanation of no tensor": lambda x: lg.explain([x]),
    "the graph of no tensor": lambda x: lg.to_text(3),
    "a triangle of another type": lambda x: lg.linalg.eigh(lg.eye(2), UPLO=None),
    "a shift by a fraction": lambda x: lg.roll(x, 1.5),
    "one shift of several by a fraction": lambda x: lg.roll(x, (1, 0.5), (0, 0)),
    "a power to a modulus": lambda x: pow(x, 2, 5),
    "saving to no file": lambda x: lg.save(3, x),
    "loading from no file": lambda x: lg.load(None),
    "a text among parameters": lambda x: lg.optim.minimize(lambda p: lg.sum(p["w"]), {"w": x, "name": "a"}),
    "a text among parameters of Adam": lambda x: lg.optim.adam(0.1).init({"w": x, "name": "a"}),
    "trimming by another type": lambda x: lg.trim_zeros(x, trim=1),
    "no structure": lambda x: lg.tree.unflatten(x, [x]),
    "a switch of another type": lambda x: lg.options(fast_math=1).__enter__(),
}


@pytest.mark.parametrize("name", list(EXPLAINED_MISTAKES))
def test_mistakes_say_what_was_expected_what_came_and_where(survivor, name):
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        EXPLAINED_MISTAKES[name](survivor)
    for part in ("expected", "got", "test_bad_input.py"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("sum", lambda x: lg.sum(x, axis=2)), ("any", lambda x: lg.any(x, axis="rows")), ("negative", lambda x: -(x > 1)),
     ("softmax", lambda x: lg.nn.softmax(x, axis=3)), ("log_softmax", lambda x: lg.nn.log_softmax(x, axis=3)),
     ("bitwise_and", lambda x: x & 1), ("subtract", lambda x: x - lg.ones(2)), ("less", lambda x: x < lg.ones(2))],
)  # fmt: skip
def test_messages_name_functions_by_their_public_names(survivor, name, mistake):
    with pytest.raises((lg.ShapeError, lg.DTypeError), match=f"^{name}: expected"):
        mistake(survivor)


def test_assigning_a_shape_says_what_to_write(survivor):
    with pytest.raises(AttributeError, match=r"reshape[\s\S]*test_bad_input.py"):
        survivor.shape = (3, 1)
    assert survivor.shape == (3,)


DTYPE_MISTAKES = {
    "bitwise on floats": lambda x: x & x,
    "float index": lambda x: x[x],
    "strings": lambda x: lg.asarray(["a", "b"]),
    "unknown dtype": lambda x: lg.zeros((2,), dtype="float33"),
    "array as trip count of a float": lambda x: lg.fori_loop(0, 2.5, lambda _, v: v, x),
}


@pytest.mark.parametrize("name", list(DTYPE_MISTAKES))
def test_wrong_dtypes(survivor, name):
    with pytest.raises((TypeError, IndexError, ValueError)) as caught:
        DTYPE_MISTAKES[name](survivor)
    assert "expected" in str(caught.value)


@pytest.mark.parametrize("name", ["warp-drive", "cpu:7", "cuda:9", ""])
def test_unknown_or_unusable_devices(survivor, name):
    with pytest.raises((ValueError, RuntimeError)) as caught, lg.default_device(name):
        pass
    what, where, *_ = str(caught.value).splitlines()
    assert "expected one of" in what or "use one of" in what
    assert "test_bad_input.py" in where


def test_devices_say_why_they_cannot_be_used(device):
    for status in lg.devices():
        assert status.available or status.reason
        assert "\n" not in str(status)


@pytest.mark.parametrize("loss", [lambda x: x, lambda x: lg.sum(x).astype(lg.int32), lambda x: None])
def test_losses_that_are_not_a_scalar_float(survivor, loss):
    with pytest.raises((TypeError, ValueError), match="expected"):
        lg.grad(loss)(survivor)


@pytest.mark.parametrize(
    "body",
    [lambda _, v: lg.concat([v, v]), lambda _, v: v > 0.0, lambda _, v: (v, v), lambda _, v: lg.sum(v)],
    ids=["grows", "changes dtype", "changes structure", "shrinks"],
)
def test_a_carry_that_changes(survivor, body):
    with pytest.raises((TypeError, ValueError)) as caught:
        lg.fori_loop(0, 3, body, survivor)
    assert "expected" in str(caught.value)
    assert "test_bad_input.py" in str(caught.value)


def test_a_condition_that_is_no_boolean(survivor):
    with pytest.raises((TypeError, ValueError), match="bool"):
        lg.while_loop(lambda v: lg.sum(v), lambda v: v, survivor)


@pytest.mark.parametrize("condition", [lambda v: True, lambda v: lg.asarray(True)])
def test_a_while_that_provably_never_ends(survivor, condition):
    with pytest.raises(lg.EndlessLoopError, match="always True"):
        np.asarray(lg.while_loop(condition, lambda v: v + 1.0, survivor))


def test_a_constant_true_condition_with_a_limit_raises_at_the_limit(survivor):
    with pytest.raises(lg.LoopLimitError):
        np.asarray(lg.while_loop(lambda v: lg.sum(v) > 0.0, lambda v: v + 1.0, survivor, max_steps=10))


def test_gathers_clamp_and_scatters_drop(survivor):
    far = lg.asarray(np.array([0, 7, 2]))
    check(survivor[far], [1.0, 3.0, 3.0])
    check(lg.zeros((3,)).at[far].add(survivor), [1.0, 0.0, 3.0])
    check(lg.grad(lambda x: lg.sum(x[far]))(survivor), [1.0, 0.0, 2.0])
    body = lambda i, y: y + survivor[i]
    check(lg.fori_loop(0, 5, body, lg.asarray(0.0)), 1 + 2 + 3 + 3 + 3)


def test_index_checks_name_the_index(survivor):
    far = lg.asarray(np.array([0, 7, 2]))
    with lg.options(check_indices=True):
        with pytest.raises(lg.IndexRangeError, match="7"):
            np.asarray(survivor[far])
        with pytest.raises(lg.IndexRangeError, match="7"):
            np.asarray(lg.zeros((3,)).at[far].add(survivor))
        check(survivor[lg.asarray([2, 0])], [3.0, 1.0])


def test_static_index_out_of_range(survivor):
    with pytest.raises(IndexError):
        survivor[5]


@pytest.mark.parametrize("count", [-1, -(2**62), [-3, 2, 0]])
def test_negative_trip_counts(survivor, count):
    got = lg.fori_loop(0, lg.asarray(count), lambda _, v: v + 1.0, survivor)
    check(got, np.array([1.0, 2.0, 3.0]) + np.maximum(count, 0))


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**62, 2), (2**21, 2**21, 2**22)])
def test_sizes_that_overflow(survivor, shape):
    with pytest.raises((ValueError, MemoryError)):
        np.asarray(lg.zeros(shape))


def test_a_nan_bound(survivor):
    """NaN compares false: no trips; a bound cast from NaN is zero."""
    nan = lg.asarray(np.nan)
    check(lg.while_loop(lambda v: v < nan, lambda v: v + 1.0, survivor), [1.0, 2.0, 3.0])
    trips = lg.astype(lg.asarray([np.nan, 2.0, np.nan]), lg.int64)
    check(lg.fori_loop(0, trips, lambda _, v: v + 1.0, survivor), [1.0, 4.0, 3.0])


def test_a_value_that_leaves_its_function(survivor):
    kept = []
    lg.fori_loop(0, 3, lambda _, v: kept.append(v) or v * 2.0, survivor)
    with pytest.raises(ValueError, match="tracing"):
        np.asarray(kept[0] + 1.0)


def test_a_traced_value_has_no_number(survivor):
    with pytest.raises((TypeError, ValueError), match=r"test_bad_input\.py"):
        lg.fori_loop(0, 3, lambda _, v: v * float(v[0]), survivor)
    with pytest.raises((TypeError, ValueError), match=r"cond|where"):
        lg.fori_loop(0, 3, lambda _, v: v if v[0] > 0.0 else -v, survivor)


def test_a_failed_compile_leaves_the_compiled_function_usable(survivor):
    c = lg.compile(lambda x: lg.sum(x * lg.asarray([1.0, 2.0, 3.0])))
    with pytest.raises(ValueError, match="expected"):
        c(lg.zeros((4,)))
    check(c(survivor), 14.0)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_while_that_stands_still_reaches_its_limit(device, shape):
    """Its body multiplies by one, which simplifies to nothing: the initial value isn't a result."""
    x = lg.ones(shape)
    with pytest.raises(lg.LoopLimitError, match="max_steps=10"):
        np.asarray(lg.while_loop(lambda v: v < 2.0, lambda v: v * 1.0, x, max_steps=10))
    with pytest.raises(lg.LoopLimitError, match="max_steps=10"):
        np.asarray(lg.while_loop(lambda c: c[0] < 2.0, lambda c: (c[0] * 1.0, c[1] / 1.0), (x, x), max_steps=10)[1])
    done = lg.while_loop(lambda v: v < 1.0, lambda v: v * 1.0, x, max_steps=10)
    np.testing.assert_array_equal(np.asarray(done), np.ones(shape))


def test_a_failed_check_ends_a_loop_that_follows_from_it(compiled_device):
    """Out of range from its first trip on, the index only grows: without its check the loop would not end."""
    if compiled_device == "cpu":
        pytest.skip("a loop on the processor runs on until it is interrupted")
    x = lg.asarray(np.linspace(-0.6, 0.9, 7))

    def walk(start):
        def body(state):
            i, v = state
            return i + 1, lg.sin(v) + x[i]

        return lg.while_loop(lambda s: (s[0] < 3) | (s[0] > 6), body, (start, lg.zeros_like(x[0] + start)))[1]

    with lg.options(check_indices=True):
        compiled = lg.compile(walk)
        assert np.isfinite(np.asarray(compiled(lg.asarray([0, 2, 1])))).all()
        with pytest.raises(IndexError):
            np.asarray(compiled(lg.asarray([0, 7, 1])))


def test_an_array_that_memory_cannot_hold_names_the_line(compiled_device):
    if compiled_device == "simulator:0":
        pytest.skip("its driver is the tests' own code, like the line that the message should name")
    x = lg.ones(1 << 44)
    with pytest.raises(MemoryError, match=r"use smaller arrays or a narrower dtype[\s\S]*np\.asarray\(x \+ 1\)"):
        np.asarray(x + 1)
    assert float(lg.sum(lg.ones(10))) == 10.0


OUT_OF_RANGE: dict[str, Callable[[Any, Any], Any]] = {
    "a gather": lambda x, i: x[i],
    "a gather on two axes": lambda x, i: x.reshape(3, 1)[lg.asarray(1), i - 1],
    "a set": lambda x, i: x.at[i].set(0.0),
    "a set of several": lambda x, i: x.at[lg.stack([i, i * 0])].set(0.0),
    "an add": lambda x, i: x.at[lg.stack([i, i * 0])].add(x[:2]),
    "of a constant": lambda x, i: x + lg.full(3, 2.0)[i],
    "into a constant": lambda x, i: x + lg.zeros(3).at[i].set(1.0),
    "in a loop": lambda x, i: lg.fori_loop(0, 2, lambda k, s: s + x[i], 0.0),
    "a set in a loop": lambda x, i: lg.fori_loop(0, 2, lambda k, s: s.at[k + i - 2].set(1.0), x),
    "a gradient": lambda x, i: lg.grad(lambda x: x[i])(x),
    "a gradient of a sum": lambda x, i: lg.grad(lambda x: lg.sum(x[lg.stack([i, i * 0])]))(x),
    "a gradient of updates": lambda x, i: lg.grad(lambda u: lg.sum(x.at[lg.stack([i, i * 0])].set(u)))(x[:2]),
    "a gradient of a loop": lambda x, i: lg.grad(lambda x: lg.fori_loop(0, 2, lambda k, s: s + x[k + i - 1], 0.0))(x),
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_every_index_is_checked(device: str, name: str, constant: bool) -> None:
    """Also those that are known while compiling, and those that only a gradient still needs."""
    program, x = OUT_OF_RANGE[name], lg.asarray([1.0, 2.0, 3.0])
    with lg.options(check_indices=True):
        for index in (1, 7):
            i = lg.asarray(index)
            compiled = lg.compile(lambda x: program(x, lg.asarray(index))) if constant else lg.compile(program)  # noqa: B023
            arguments = (x,) if constant else (x, i)
            if index == 1:
                np.asarray(compiled(*arguments))
                continue
            with pytest.raises(lg.IndexRangeError, match=r"in \[0, [123]\), got"):
                np.asarray(compiled(*arguments))
