"""Random numbers: published answers, NumPy's bits, and the same numbers on every device, in loops and replays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_blocks import KNOWN, block, double, words

import loopgrad as lg
from loopgrad.graph.build import emit
from loopgrad.lazy.tensor.core import wrap

KEY = 0x0123456789ABCDEF


def generator(key: int = KEY) -> lg.random.Generator:
    return lg.random.Generator(lg.random.Philox4x32(key=key))


def blocks(counters: Any, keys: Any, number: Any) -> Any:
    """Words by the primitive, of columns of counters and keys."""
    parts = [*[counters[:, i] for i in range(4)], *[keys[:, i] for i in range(2)], number]
    return wrap(emit("philox", [p._value for p in parts])[0])


@pytest.mark.parametrize("bits", [32, 64])
def test_published_answers(device: str, bits: int) -> None:
    dtype = np.dtype(f"uint{bits}")
    rng = np.random.default_rng(0)
    counters = np.vstack([np.array([k[0] for k in KNOWN[bits]], dtype), rng.integers(0, 2**bits, (9, 4), dtype)])
    keys = np.vstack([np.array([k[1] for k in KNOWN[bits]], dtype), rng.integers(0, 2**bits, (9, 2), dtype)])
    rows = zip(counters.tolist(), keys.tolist(), strict=True)
    want = np.array([block(counter, key, bits) for counter, key in rows], dtype)
    assert [list(map(int, row)) for row in want[:3]] == [answer for _, _, answer in KNOWN[bits]]

    def program(counters: Any, keys: Any, number: Any) -> Any:
        fixed = [blocks(counters, keys, lg.full((12,), i, dtype=counters.dtype)) for i in range(4)]
        return lg.stack(fixed, axis=1), blocks(counters, keys, number)

    number = np.arange(12, dtype=dtype)
    got, chosen = lg.compile(program)(counters, keys, number)
    np.testing.assert_array_equal(np.asarray(got), want)
    np.testing.assert_array_equal(np.asarray(chosen), want[np.arange(12), np.arange(12) % 4])


def test_numbers_of_a_generator(device: str) -> None:
    """By draw and element, as documented; the counter is what a compiled function writes to."""
    rng = generator()
    want = [[double(KEY, lane, step) for lane in range(5)] for step in range(5)]
    np.testing.assert_array_equal(np.asarray(rng.random(5)), want[0])
    draw = lg.compile(lambda rng: (rng.random(5), rng.random((5, 1))))
    first, second = draw(rng)
    np.testing.assert_array_equal(np.asarray(first), want[1])
    np.testing.assert_array_equal(np.asarray(second)[:, 0], want[2])
    np.testing.assert_array_equal(np.asarray(draw(rng)[0]), want[3])
    assert rng.bit_generator.state == {"bit_generator": "Philox4x32", "state": {"key": [KEY], "counter": 5}}


def test_float_formats(device: str) -> None:
    lanes = [words(KEY, lane, 0) for lane in range(300)]
    halves = {"float32": 24, "float16": 11, "bfloat16": 8}
    for name, bits in halves.items():
        if device.startswith("simulator") and name == "float16":
            continue  # the host's conversions of float16 are in a library that the simulator doesn't link
        got = np.asarray(generator().random(300, dtype=name).astype(lg.float32))
        want = [(w[0] >> (32 - bits)) / 2**bits for w in lanes]
        np.testing.assert_array_equal(got, np.array(want, np.float32))


def test_integers(device: str) -> None:
    """The range's size times a word of 128 bits, of which the first word is the lowest."""
    whole = [sum(w << (32 * i) for i, w in enumerate(words(KEY, lane, 0))) for lane in range(50)]

    def expected(low: int, high: int) -> list[int]:
        return [low + (w * (high - low) >> 128) for w in whole]

    for low, high, dtype in [
        (0, 6, "int64"), (-3, 4, "int8"), (0, 256, "uint8"), (5, 2**63, "int64"), (-(2**63), 2**62, "int64"),
        (10, 2**64 - 1, "uint64"), (0, 1, "int32"), (0, 2**32, "uint32"),
    ]:  # fmt: skip
        got = np.asarray(generator().integers(low, high, size=50, dtype=dtype))
        np.testing.assert_array_equal(got, np.array(expected(low, high), dtype), strict=True)
    low, high = lg.asarray([0, -5]), lg.asarray([10, 7])
    got = np.asarray(generator().integers(low, high, size=(25, 2)))
    want = [(-5 if i % 2 else 0) + (w * (12 if i % 2 else 10) >> 128) for i, w in enumerate(whole)]
    np.testing.assert_array_equal(got.ravel(), want)
    full = np.asarray(generator().integers(0, 2**64 - 1, size=50, dtype=lg.uint64, endpoint=True))
    np.testing.assert_array_equal(full, np.array([w & (2**64 - 1) for w in whole], np.uint64))
    assert np.asarray(generator().integers(2, size=50, dtype=bool)).tolist() == [bool(w >> 127) for w in whole]


@pytest.mark.in_turns
def test_bits_of_numpys_generator(device: str) -> None:
    """Doubles, floats (two of a word; the half that is left waits), raw words, in any order."""
    key = np.array([3, 2**63 + 7], np.uint64)
    ours = lg.random.Generator(lg.random.Philox4x64(key=key))
    theirs = np.random.Generator(np.random.Philox(key=key))
    mixed = lg.compile(lambda rng: (rng.random(3, dtype=lg.float32), rng.uniform(-2.0, 5.0, (2, 2)), rng.random(4)))
    for _ in range(3):
        for got, want in zip(
            mixed(ours), (theirs.random(3, dtype=np.float32), theirs.uniform(-2.0, 5.0, (2, 2)), theirs.random(4)),
            strict=True,
        ):  # fmt: skip
            np.testing.assert_array_equal(np.asarray(got), want, strict=True)
        np.testing.assert_array_equal(np.asarray(ours.bit_generator.random_raw(5)), theirs.bit_generator.random_raw(5))
        np.testing.assert_array_equal(np.asarray(ours.random(5, dtype="float32")), theirs.random(5, dtype=np.float32))
    for draw in (lambda rng, dtype: rng.random(3, dtype=dtype), lambda rng, dtype: rng.random(4, dtype=dtype)):
        np.testing.assert_array_equal(np.asarray(draw(ours, lg.float32)), draw(theirs, np.float32))
        ours.bit_generator.advance(7)
        theirs.bit_generator.advance(7)
        np.testing.assert_array_equal(np.asarray(draw(ours, lg.float64)), draw(theirs, np.float64))
    ours = lg.random.Generator(lg.random.Philox4x64(10**30, counter=5))
    key = np.random.Philox(10**30).state["state"]["key"]
    theirs = np.random.Generator(np.random.Philox(key=key, counter=5))
    np.testing.assert_array_equal(np.asarray(ours.random(7)), theirs.random(7))


def walk(limit: float) -> Any:
    """A lane's draws until their sum passes the limit."""

    def step(state: Any) -> Any:
        total, count, stream = state
        u, stream = stream.uniform()
        return total + u, count + 1, stream

    return lambda stream: lg.while_loop(
        lambda s: s[0] < limit, step, (lg.zeros(stream.shape), lg.zeros(stream.shape, dtype=lg.int64), stream)
    )


def expected_walk(key: int, lane: int, limit: float) -> tuple[float, int]:
    total, step = 0.0, 0
    while total < limit:
        total, step = total + double(key, lane, step), step + 1
    return total, step


def test_a_stream_in_lanes(device: str) -> None:
    """Each lane draws from its own stream, as long as it likes; `vmap` over streams is the same."""
    rng = generator()
    stream = rng.stream(6)
    low, high, *_ = words(KEY, 0, 0)
    key = high << 32 | low
    want = [expected_walk(key, lane, 3.0) for lane in range(6)]
    total, count, after = lg.compile(walk(3.0))(stream)
    np.testing.assert_array_equal(np.asarray(total), [w[0] for w in want])
    np.testing.assert_array_equal(np.asarray(count), [w[1] for w in want])
    np.testing.assert_array_equal(np.asarray(after.step), [w[1] for w in want])
    mapped = lg.vmap(walk(3.0))(stream)
    np.testing.assert_array_equal(np.asarray(mapped[0]), np.asarray(total))
    again = lg.compile(lambda rng: walk(3.0)(rng.stream(6))[0])(generator())
    np.testing.assert_array_equal(np.asarray(again), np.asarray(total))


def test_arrays_of_a_stream(device: str) -> None:
    """Numbers of a lane's array take the words of successive blocks; the next draw begins with a new block."""
    stream = lg.random.Stream(lg.asarray(np.uint64(KEY)), lg.asarray(np.uint64(9)), lg.asarray(np.uint64(4)))
    u, after = stream.uniform(size=(5,), dtype=lg.float32)
    flat = [w for step in (4, 5) for w in words(KEY, 9, step)]
    np.testing.assert_array_equal(np.asarray(u), np.array([(w >> 8) / 2**24 for w in flat[:5]], np.float32))
    assert int(after.step) == 6
    many, after = stream.uniform(size=(3, 6), dtype=lg.float32)  # not one by one
    longer = [w for step in range(4, 9) for w in words(KEY, 9, step)]
    np.testing.assert_array_equal(np.asarray(many).ravel(), [(w >> 8) / 2**24 for w in longer[:18]])
    assert int(after.step) == 9
    doubles, after = stream.uniform(size=(3, 1))
    want = [((flat[2 * i] >> 5) * 2**26 + (flat[2 * i + 1] >> 6)) / 2**53 for i in range(3)]
    np.testing.assert_array_equal(np.asarray(doubles)[:, 0], want)
    assert int(after.step) == 6


def test_replays_draw_other_numbers(device: str) -> None:
    """The counter is written by each replay; with a stream, which is a value, all replays are the same."""
    rng = generator()
    replay = lg.compile(lambda x, rng: x + rng.random(4)).capture(lg.zeros(4), rng)
    want = [[double(KEY, lane, step) for lane in range(4)] for step in range(4)]
    got = [np.asarray(replay.replay(lg.zeros(4), rng)) for _ in range(2)]
    np.testing.assert_array_equal(got, want[:2])
    np.testing.assert_array_equal(np.asarray(rng.random(4)), want[2])
    np.testing.assert_array_equal(np.asarray(replay.replay()), want[3])
    stream = rng.stream(4)
    still = lg.compile(lambda s: s.random()[0]).capture(stream)
    np.testing.assert_array_equal(np.asarray(still.replay(stream)), np.asarray(still.replay()))


def draws(stream: Any, mean: Any) -> Any:
    """A lane's loop in which samplers reject: each draw is one step of its stream."""

    def step(state: Any) -> Any:
        total, count, left, stream = state
        g, stream = stream.standard_gamma(mean)
        n, stream = stream.poisson(mean * 4.0)
        b, stream = stream.binomial(40, 0.4)
        z, stream = stream.normal(mean, 0.5)
        return total + g * z, count + n + b, left - 1, stream

    trips = lg.arange(8)
    start = (lg.zeros(8), lg.zeros(8, dtype=lg.int64), trips, stream)
    total, count, _, stream = lg.while_loop(lambda s: s[2] > 0, step, start)
    return total, count, stream


@pytest.mark.costly
def test_samplers_in_lanes(device: str) -> None:
    """The same integers as on the CPU, and floats but for rounding; gradients through what was sampled."""
    mean = lg.asarray(np.linspace(0.3, 6.0, 8))

    def loss(mean: Any, rng: Any) -> Any:
        total, count, after = draws(rng.stream(8), mean)
        return lg.sum(total), (total, count, after.step)

    run = lg.compile(lg.value_and_grad(loss, has_aux=True))
    (value, (total, count, steps)), slope = run(mean, generator())
    assert np.asarray(steps).tolist() == [4 * trips for trips in range(8)]
    with lg.default_device("cpu"):
        (_, (want, counted, _)), near = lg.value_and_grad(loss, has_aux=True)(lg.asarray(np.asarray(mean)), generator())
    np.testing.assert_array_equal(np.asarray(count), np.asarray(counted))
    np.testing.assert_allclose(np.asarray(total), np.asarray(want), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(slope), np.asarray(near), rtol=1e-8)
    np.testing.assert_allclose(float(value), np.asarray(want).sum(), rtol=1e-10)
