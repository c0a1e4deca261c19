"""Comparing a program built with loopgrad with the oracle, in many ways of running and differentiating it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import loopgrad as lg
from loop_generator.description import FLOATS, INTEGERS, Program
from loop_generator.execute import Execution, Unsuitable
from loop_generator.inputs import Inputs
from loop_generator.source import function_of
from loop_generator.tape import Tape

POSITIONS = tuple(range(len(FLOATS)))


@dataclass(frozen=True)
class Expected:
    """The oracle's numbers: loss, its gradient, derivative along the directions, Hessian times those, results."""

    loss: float
    gradient: list[np.ndarray]
    slope: float
    curvature: list[np.ndarray]
    finals: dict[str, np.ndarray]


@dataclass(frozen=True)
class Tolerance:
    """Relative to the largest number of an array and one. `decision`: how far decisions must be from rounding."""

    value: float
    gradient: float
    curvature: float
    decision: float
    largest: float  # gradient


TOLERANCES = {
    "float64": Tolerance(1e-11, 1e-9, 1e-7, 1e-9, 1e4),
    "float32": Tolerance(3e-4, 3e-3, 3e-2, 2e-3, 1e2),
}


def expected(program: Program, inputs: Inputs, numbers: Any) -> Expected:
    """Run the oracle on these numbers; Unsuitable where a comparison would say nothing."""
    tolerance = TOLERANCES[program.dtype]
    run = Execution(program, inputs, numbers)
    loss = run.run()
    leaves = [v for name in FLOATS for v in run.leaves[name]]
    slope, gradient, curvature = numbers.derivatives(loss, leaves)
    if min(run.closest, run.tie) < tolerance.decision:
        raise Unsuitable("a decision that rounding takes")
    if not np.abs(gradient).max() < tolerance.largest or not np.abs(curvature).max() < tolerance.largest**1.5:
        raise Unsuitable("a large derivative")
    split: list[list[np.ndarray]] = [[], []]
    for flat, into in zip((gradient, curvature), split, strict=True):
        start = 0
        for like in inputs.floats():
            into.append(np.array(flat[start : start + like.size]).reshape(like.shape))
            start += like.size
    return Expected(numbers.value(loss), split[0], slope, split[1], run.finals())


class Mismatch(AssertionError):
    """A number that isn't the oracle's."""


def compare(what: str, got: Any, want: Any, tolerance: float) -> None:
    found, wanted = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if found.shape != wanted.shape:
        raise Mismatch(f"{what}: shape {found.shape}, expected {wanted.shape}")
    if wanted.size and not np.abs(found - wanted).max() <= tolerance * (1 + np.abs(wanted).max()):
        place = np.unravel_index(np.nanargmax(np.abs(found - wanted)), wanted.shape) if wanted.shape else ()
        raise Mismatch(f"{what}{list(map(int, place))}: {found[place]!r}, expected {wanted[place]!r}")


class Subject:
    """A program with several inputs, the numbers expected of them, and the function under test."""

    def __init__(self, program: Program) -> None:
        self.program, self.tolerance = program, TOLERANCES[program.dtype]
        self.inputs: list[Inputs] = []
        self.wanted: list[Expected] = []
        for variant in program.variants:
            inputs = Inputs.drawn(program, variant)
            try:
                wanted = expected(program, inputs, Tape())
            except (Unsuitable, OverflowError, ZeroDivisionError) as error:
                if variant == program.variants[0]:
                    raise Unsuitable(str(error)) from error
                continue
            self.inputs.append(inputs)
            self.wanted.append(wanted)
        self.built = function_of(program)

    def arguments(self, variant: int = 0) -> list[Any]:
        arrays = self.inputs[variant].arrays
        return [lg.asarray(arrays[name]) for name in (*FLOATS, *INTEGERS)]

    def loss(self, *arguments: Any) -> Any:
        return self.built(*arguments)[0]

    def along(self, variant: int = 0) -> list[Any]:
        return [lg.asarray(d) for d in self.inputs[variant].along()]

    def check_gradient(self, got: Any, wanted: Expected, how: str = "gradient of") -> None:
        for name, slope, want in zip(FLOATS, got, wanted.gradient, strict=True):
            compare(f"{how} {name}", slope, want, self.tolerance.gradient)

    def check_both(self, got: Any, wanted: Expected) -> None:
        compare("loss", got[0], wanted.loss, self.tolerance.value)
        self.check_gradient(got[1], wanted)

    def check_curvature(self, got: Any, wanted: Expected) -> None:
        for name, product, want in zip(FLOATS, got, wanted.curvature, strict=True):
            compare(f"Hessian times direction of {name}", product, want, self.tolerance.curvature)


# ---- the ways


def values(subject: Subject) -> None:
    """Loss and all results, each looked at in turn."""
    loss, found = subject.built(*subject.arguments())
    for name, want in subject.wanted[0].finals.items():
        compare(f"result {name}", found[name], want, subject.tolerance.value)
    compare("loss", loss, subject.wanted[0].loss, subject.tolerance.value)


def eager(subject: Subject) -> None:
    """Value and gradient, lazily built and evaluated together."""
    got = lg.value_and_grad(subject.loss, argnums=POSITIONS)(*subject.arguments())
    lg.eval(got)
    subject.check_both(got, subject.wanted[0])


def compiled(subject: Subject) -> None:
    """Compiled once, called with all inputs and the first again."""
    function = lg.compile(lg.value_and_grad(subject.loss, argnums=POSITIONS))
    for variant in [*range(len(subject.inputs)), 0]:
        subject.check_both(function(*subject.arguments(variant)), subject.wanted[variant])


def replayed(subject: Subject) -> None:
    """Captured with the first inputs, replayed with others, whose trip counts differ."""
    function = lg.compile(lg.value_and_grad(subject.loss, argnums=POSITIONS))
    replay = function.capture(*subject.arguments())
    order = [*range(len(subject.inputs)), 0]
    results = [replay.replay(*subject.arguments(variant)) for variant in order]
    for variant, got in zip(order, results, strict=True):
        subject.check_both(got, subject.wanted[variant])


def in_parts(subject: Subject) -> None:
    """Results, gradients and second derivatives looked at one by one, in some order."""
    arguments, wanted = subject.arguments(), subject.wanted[0]
    both = lambda *a: subject.built(*a)
    (loss, found), slopes = lg.value_and_grad(both, argnums=POSITIONS, has_aux=True)(*arguments)
    pieces: list[Callable[[], None]] = [lambda: compare("loss", loss, wanted.loss, subject.tolerance.value)]
    for name, want in wanted.finals.items():
        pieces.append(lambda n=name, w=want: compare(f"result {n}", found[n], w, subject.tolerance.value))
    for name, slope, want in zip(FLOATS, slopes, wanted.gradient, strict=True):
        pieces.append(lambda n=name, s=slope, w=want: compare(f"gradient of {n}", s, w, subject.tolerance.gradient))
    random.Random(subject.program.seed).shuffle(pieces)
    for piece in pieces:
        piece()


def second_in_parts(subject: Subject) -> None:
    """Products with the Hessian, one by one."""
    arguments = subject.arguments()
    integers = arguments[len(FLOATS) :]
    floats = tuple(arguments[: len(FLOATS)])
    products = lg.hvp(lambda *f: subject.loss(*f, *integers), floats, tuple(subject.along()))
    subject.check_curvature(products, subject.wanted[0])


def pushed(subject: Subject) -> None:
    """Forward mode."""
    arguments = subject.arguments()
    integers = arguments[len(FLOATS) :]
    along = lambda f, d: lg.jvp(lambda *floats: subject.loss(*floats, *integers), tuple(f), tuple(d))
    value, slope = lg.compile(along)(arguments[: len(FLOATS)], subject.along())
    compare("loss", value, subject.wanted[0].loss, subject.tolerance.value)
    scale = 1 + max(np.abs(g).max() for g in subject.wanted[0].gradient)
    compare("slope", slope, subject.wanted[0].slope, subject.tolerance.gradient * scale)


def forward_over_reverse(subject: Subject) -> None:
    """The Hessian times a direction, compiled."""
    arguments = subject.arguments()
    integers = arguments[len(FLOATS) :]
    product = lambda f, d: lg.hvp(lambda *floats: subject.loss(*floats, *integers), tuple(f), tuple(d))
    got = lg.compile(product)(arguments[: len(FLOATS)], subject.along())
    subject.check_curvature(got, subject.wanted[0])


def reverse_over_reverse(subject: Subject) -> None:
    """The gradient of the slope along a direction."""
    directions = subject.along()

    def slope(*arguments: Any) -> Any:
        slopes = lg.grad(subject.loss, argnums=POSITIONS)(*arguments)
        return sum(lg.sum(s * d) for s, d in zip(slopes, directions, strict=True))

    got = lg.compile(lg.grad(slope, argnums=POSITIONS))(*subject.arguments())
    subject.check_curvature(got, subject.wanted[0])


def batched(subject: Subject) -> None:
    """Value and gradient under vmap: all inputs stacked, or the integers alone shared."""
    count = len(subject.inputs)
    stacked = [lg.asarray(np.stack([i.arrays[name] for i in subject.inputs])) for name in (*FLOATS, *INTEGERS)]
    got = lg.vmap(lg.value_and_grad(subject.loss, argnums=POSITIONS))(*stacked)
    for k in range(count):
        subject.check_both((np.asarray(got[0])[k], [np.asarray(g)[k] for g in got[1]]), subject.wanted[k])


def afterwards(subject: Subject) -> None:
    """`lg.gradients` of a graph that is built and whose results have been looked at."""
    arguments = subject.arguments()
    loss, found = subject.built(*arguments)
    if subject.program.seed % 2:
        np.asarray(next(iter(found.values())))
    subject.check_gradient(lg.gradients(loss, arguments[: len(FLOATS)]), subject.wanted[0])


WAYS: dict[str, Callable[[Subject], None]] = {
    way.__name__: way
    for way in (
        values, eager, compiled, replayed, in_parts, second_in_parts, pushed, forward_over_reverse,
        reverse_over_reverse, batched, afterwards,
    )
}  # fmt: skip


def ways_of(seed: int, count: int) -> list[str]:
    """Some ways for a program: the gradient always."""
    others = [name for name in WAYS if name != "compiled"]
    return ["compiled", *random.Random(seed).sample(others, min(count - 1, len(others)))]


def error_of(subject: Subject, way: str, device: str) -> str:
    """What goes wrong in one way on one device; empty where nothing does."""
    try:
        with lg.default_device(device):
            WAYS[way](subject)
    except Exception as error:  # any error is a finding
        return f"{type(error).__name__}: {str(error).strip() or 'no message'}"
    return ""


def compare_oracles(subject: Subject) -> None:
    """The tape's numbers with those of PyTorch."""
    from loop_generator.torch_scalars import TorchScalars  # late: PyTorch is seldom installed

    got = expected(subject.program, subject.inputs[0], TorchScalars())
    want = subject.wanted[0]
    compare("loss", got.loss, want.loss, 1e-12)
    compare("slope", got.slope, want.slope, 1e-9)
    for name, a, b, c, d in zip(FLOATS, got.gradient, want.gradient, got.curvature, want.curvature, strict=True):
        compare(f"gradient of {name}", a, b, 1e-9)
        compare(f"Hessian times direction of {name}", c, d, 1e-8)
