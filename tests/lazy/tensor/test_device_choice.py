"""Where things are computed: with what the user placed, by default elsewhere, never on two devices at once."""

from __future__ import annotations

import numpy as np
import pytest

import loopgrad as lg


def on(device):
    return lg.asarray([1.0, 2.0], device=device)


def test_results_stay_where_their_operands_were_put():
    x = on("interpreter")
    y = x + 1.0
    assert y.device == "interpreter"
    lg.eval(y)
    z = y * 2.0
    lg.eval(z)
    assert (y.device, z.device) == ("interpreter", "interpreter")
    np.testing.assert_array_equal(np.asarray(z), [4.0, 6.0])
    with lg.default_device("interpreter"):
        w = on("cpu") * 3.0
        lg.eval(w)
        assert (w + lg.ones(2)).device == "cpu"


def test_what_was_not_placed_goes_along():
    x = lg.asarray([3.0, 4.0])
    assert (x + on("interpreter")).device == "interpreter"
    np.testing.assert_array_equal(np.asarray(x + on("interpreter")), [4.0, 6.0])


def test_operands_on_two_devices_are_refused():
    total = on("cpu") + on("interpreter")
    for ask in (lambda: lg.eval(total), lambda: total.device, lambda: np.asarray(total)):
        with pytest.raises(lg.DeviceError, match=r"add.*cpu and interpreter.*to_device\('cpu'\)"):
            ask()
    assert (on("cpu") + on("interpreter").to_device("cpu")).tolist() == [2.0, 4.0]


def test_values_on_two_devices_may_be_computed_together():
    a, b, c = on("cpu") * 2.0, on("interpreter") * 3.0, lg.asarray([1.0]) * 4.0
    lg.eval(a, b, c)
    assert [t.device for t in (a, b, c)] == ["cpu", "interpreter", "cpu"]
    assert (c + b).device == "interpreter"


def test_a_refused_value_that_nobody_asks_for_disturbs_nobody():
    refused = on("cpu") + on("interpreter")
    assert (on("cpu") * 2.0).tolist() == [2.0, 4.0]
    with pytest.raises(lg.DeviceError):
        refused.tolist()


def test_compiled_functions_run_where_their_arguments_are():
    f = lg.compile(lambda x: lg.sin(x) + 1.0)
    assert f(on("interpreter")).device == "interpreter"
    assert f(on("cpu")).device == "cpu"
    assert f(on("interpreter")).device == "interpreter"
    assert f(on("interpreter") * 1.0).device == "interpreter"
    assert f.versions == 2
    assert f(lg.asarray([1.0, 2.0])).device == "cpu"
    assert lg.compile(lambda x: x + 1.0, device="cpu")(on("interpreter")).device == "cpu"


def test_compiled_functions_refuse_arguments_on_two_devices():
    f = lg.compile(lambda x, y: x + y)
    with pytest.raises(lg.DeviceError, match="cpu and interpreter"):
        f(on("cpu"), on("interpreter"))
    kept = on("interpreter")
    with pytest.raises(lg.DeviceError, match="cpu and interpreter"):
        lg.compile(lambda x: x + kept)(on("cpu"))
    assert lg.compile(lambda x: x + kept)(lg.asarray([1.0, 2.0])).device == "interpreter"
