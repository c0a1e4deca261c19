"""Lines that come often run by code of their own, as long as everything is as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopgrad as lg
from loopgrad.lazy.tensor import repeated_lines
from loopgrad.runtime import devices
from loopgrad.runtime.buffers import Buffer
from loopgrad.runtime.interpreter import InterpreterDevice

A, B = np.linspace(-1.0, 2.0, 6), np.linspace(0.5, 3.0, 6)


@pytest.fixture
def by_code(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each line that has code, whether that took it."""
    taken: list[bool] = []
    often = repeated_lines._often

    def noted(*line: Any) -> Any:
        run = often(*line)

        def elements(*asked: Any) -> Any:
            found = run(*asked)
            taken.append(found is not None)
            return found

        return elements

    monkeypatch.setattr(repeated_lines, "_often", noted)
    monkeypatch.setattr(repeated_lines, "OFTEN", 2)
    return taken


def test_a_line_that_comes_often_is_taken_by_its_code(by_code: list[bool]) -> None:
    a, b = lg.asarray(A), lg.asarray(B)
    for k in range(12):
        number = 1.5 + k
        np.testing.assert_allclose(
            (a * number + b) * (b - a)[::-1] + a[1:].sum(), (A * number + B) * (B - A)[::-1] + A[1:].sum()
        )
    assert sum(by_code) > 4
    a, b = b + 0.0, a + 0.0  # other leaves
    by_code.clear()
    np.testing.assert_allclose((a * 7.5 + b) * (b - a)[::-1] + a[1:].sum(), (B * 7.5 + A) * (A - B)[::-1] + B[1:].sum())


def test_a_named_constant_is_read_by_code_too(by_code: list[bool]) -> None:
    for rate in (0.25, 2.0, 3.5):
        step, a = lg.asarray(rate), lg.asarray(A)
        for _ in range(6):
            np.testing.assert_array_equal(a - step * lg.asarray(B), A - rate * B)
            np.testing.assert_array_equal(step + step * step, rate + rate * rate)
    assert by_code[-2:] == [True, True]


def test_what_is_the_same_decides(by_code: list[bool]) -> None:
    """One expression, in which other values are the same."""
    a, b = lg.asarray(A), lg.asarray(B)
    for _ in range(8):
        for x, y, p, q in ((a, b, A, B), (a, a, A, A), (b, a, B, A), (b, b, B, B)):
            np.testing.assert_array_equal(x * y - x, p * q - p)
            twice = x + y
            np.testing.assert_array_equal((x + y) * (x + y), (p + q) * (p + q))
            np.testing.assert_array_equal(twice * twice, (p + q) * (p + q))
    assert True in by_code
    assert False in by_code


def test_values_that_somebody_holds_get_elements_too(by_code: list[bool]) -> None:
    a, b = lg.asarray(A), lg.asarray(B)

    def line(held: list[Any]) -> Any:
        middle = a * b
        held.append(middle)
        result = middle + b
        del middle
        return result

    for k in range(10):
        held: list[Any] = []
        result = line(held)
        if k % 2:
            held.clear()
        np.testing.assert_array_equal(result, A * B + B)
        assert all(type(t._value).__name__ == "TensorLeaf" for t in held)
    (slope,) = lg.gradients(lg.sum(result), [a])
    np.testing.assert_array_equal(slope, B)


def test_settings_devices_and_writes_between_lines(by_code: list[bool]) -> None:
    a, b = lg.asarray(A), lg.asarray(B)
    with lg.default_device("interpreter"):
        there = a * 1.0
        lg.eval(there)
    for k in range(12):
        np.testing.assert_array_equal(a * b + 2.5, A * B + 2.5)
        with lg.options(direct=False):  # compiled programs read their inputs' memory
            np.testing.assert_array_equal(a * b + 2.5, A * B + 2.5)
            np.testing.assert_array_equal(there * b + 2.5, A * B + 2.5)
        if k % 3 == 1:
            with lg.default_device("interpreter"):
                result = a * b + 2.5
                np.testing.assert_array_equal(result, A * B + 2.5)
                assert result.device == "interpreter"
        if k % 3 == 2:
            with lg.options(check_indices=True):
                np.testing.assert_array_equal(a * b + 2.5, A * B + 2.5)
        other = lg.asarray(A)
        lazy = other * b
        other[2] = 100.0  # what was computed before stays
        np.testing.assert_array_equal(lazy + 2.5, A * B + 2.5)
    assert True in by_code
    by_code.clear()
    moved = lg.to_device(a, "interpreter")
    np.testing.assert_array_equal(moved * b + 2.5, A * B + 2.5)
    assert (moved * b + 2.5).device == "interpreter"
    pinned = lg.to_device(a, "cpu") * b + 2.5
    np.testing.assert_array_equal(pinned, A * B + 2.5)
    with lg.default_device("interpreter"):
        assert (pinned + 1.0).device == "cpu"  # as its operand, which the user placed


def test_numbers_go_to_the_device_that_there_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to memory of one that had its name before, which kernels find at addresses of another device."""

    class CountedDevice(InterpreterDevice):
        def __init__(self) -> None:
            self.puts = 0

        def put(self, array: np.ndarray[Any, Any], copy: bool = True) -> Buffer:
            self.puts += 1
            return super().put(array, copy)

    given = np.arange(3.0)
    before, now = CountedDevice(), CountedDevice()
    repeated_lines.forget()
    counts = []
    with lg.default_device("interpreter"):
        for device in (before, now):
            monkeypatch.setitem(devices._made, "interpreter", device)
            x = lg.asarray(given)
            for number in (3.0, 4.0, 5.0, 6.0, 7.0):
                assert np.asarray(x * number).tolist() == (given * number).tolist()
            counts.append((before.puts, now.puts))
    (first, _), (again, others) = counts
    assert first == again == others > 1


def test_a_constant_that_has_a_node_is_read_by_code_too(by_code: list[bool]) -> None:
    rate = lg.asarray(0.25)
    assert rate._value.node is not None
    for number in (2.5, 2.5, 2.5, 1.5, 3.5, 2.5, 4.5, 5.5):
        np.testing.assert_array_equal(rate * number - 1.0, 0.25 * number - 1.0)
    assert by_code[-1:] == [True]


def test_one_expression_on_two_lines_has_the_location_of_each() -> None:
    a = lg.asarray(A)
    for _ in range(5):
        first = a * 2.5
        second = a * 2.5
        further = [a * 2.5 for _ in range(2)]
        lines = [t._value.note[3].line for t in (first, second, *further)]
        assert lines == [lines[0], lines[0] + 1, lines[0] + 2, lines[0] + 2]
