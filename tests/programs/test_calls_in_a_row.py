"""Calls in a row whose results nobody looks at for a while have the bits of calls that are looked at one by one."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg

LANES = 37


def counted(x, n):
    return lg.grad(lambda v: lg.sum(lg.fori_loop(0, n, lambda _, s: lg.sin(s) * 0.9 + v * 0.1, v)))(x)


def halved(x, n):
    """On values: the trips follow from them and the bound."""
    unfinished = lambda v: abs(v) > 1.0 / (1.0 + n.astype(lg.float64))
    return lg.grad(lambda v: lg.sum(lg.sin(lg.while_loop(unfinished, lambda s: s * 0.7, v))))(x)


def plain(x, n):
    return lg.cos(x) + 0.01 * n


def passed_on(x, n):
    """One result is an input, one a constant."""
    return x, lg.arange(LANES) * 0.5, x * 0.5 + lg.mean(n)


def mixing(x, n):
    """A loop over whole tensors."""
    return lg.grad(lambda v: lg.sum(lg.fori_loop(0, n[0] % 5, lambda _, s: lg.sin(s) + 0.3 * lg.mean(s), v)))(x)


def sorting(x, n):
    return lg.sort(x) + n


FUNCTIONS = (counted, halved, plain, passed_on, counted, halved, mixing, sorting)


def steps(seed):
    """(function, which earlier result it takes, trips, which result somebody looks at then or None)"""
    rng = np.random.default_rng(seed)
    most = 4
    for number in range(40):
        if rng.random() < 0.15:
            most = int(most * rng.uniform(0.5, 4.0)) + 1
        taken = number - int(rng.integers(0, min(number, 6) + 1))
        looked_at = int(rng.integers(0, number + 1)) if rng.random() < 0.08 else None
        kind = int(rng.integers(0, len(FUNCTIONS) if rng.random() < 0.3 else 6))
        yield FUNCTIONS[kind], taken, rng.integers(0, most + 1, LANES), looked_at


@pytest.mark.in_turns
@pytest.mark.costly
@pytest.mark.parametrize("seed", range(6))
def test_calls_in_a_row(compiled_device, seed):
    compiled = {function: lg.compile(function) for function in FUNCTIONS}
    start = np.random.default_rng(seed).uniform(-1.5, 1.5, LANES)
    with lg.default_device(compiled_device):
        for function in compiled.values():
            for _ in range(2):
                function(lg.asarray(start), lg.asarray(np.full(LANES, 2)))

        def run(at_once):
            results = [lg.asarray(start)]
            for function, taken, trips, looked_at in steps(seed):
                made = compiled[function](results[taken], lg.asarray(trips))
                last = made[-1] if isinstance(made, tuple) else made
                if at_once:
                    last = lg.asarray(np.array(last))
                elif looked_at is not None:
                    np.asarray(results[looked_at])
                results.append(last)
            return [np.array(result) for result in results]

        for deferred, known in zip(run(False), run(True), strict=True):
            np.testing.assert_array_equal(deferred, known)
            assert np.isfinite(known).all()


def test_waiting_for_a_device(device):
    result = lg.compile(halved)(lg.asarray(np.linspace(-1.0, 1.0, LANES)), lg.asarray(np.full(LANES, 9)))
    lg.synchronize()
    lg.synchronize(device)
    assert np.isfinite(np.asarray(result)).all()
    with pytest.raises(ValueError, match="expected one of the devices"):
        lg.synchronize("abacus")
