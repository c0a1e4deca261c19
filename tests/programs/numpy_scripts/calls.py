"""Random statements that call a function or a method: lines of text in which `xp` is the array module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tests.programs.numpy_scripts.arguments import (
    DTYPES,
    Arrays,
    axis,
    name_of,
    operand,
    pick,
    scalar,
)
from tests.programs.numpy_scripts.functions import FUNCTIONS

Statement = Callable[[np.random.Generator, Arrays, str], str]


def _unary(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    return f"{new} = xp.{pick(rng, FUNCTIONS['unary'])}({name_of(rng, arrays)})"


def _binary(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    function = pick(rng, FUNCTIONS["binary"])
    plain = isinstance(getattr(np, function), np.ufunc)
    left = name_of(rng, arrays)
    right = operand(rng, arrays) if plain or rng.random() < 0.2 else name_of(rng, arrays)
    if rng.random() < 0.2:
        left, right = right, left
    call = f"xp.{function}({left}, {right})"
    return f"{new} = xp.asarray({call})" if function in ("allclose", "array_equal") else f"{new} = {call}"


def _reduction(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    more = pick(rng, ("", "", ", keepdims=True"))
    function = pick(rng, FUNCTIONS["reduction"])
    if function in ("std", "var", "nanstd", "nanvar"):
        more += pick(rng, ("", ", ddof=1"))
    if function in ("sum", "prod", "min", "max", "all", "any") and rng.random() < 0.2:
        more += pick(rng, (f", where={name} > 0, initial=1", ", initial=3", f", where={name} == {name}"))
    if function in ("sum", "prod", "mean") and rng.random() < 0.2:
        more += f", dtype=xp.{pick(rng, ('int8', 'int32', 'uint16', 'float32', 'float64'))}"
    return f"{new} = xp.{function}({name}, axis={axis(rng, arrays[name])}{more})"


def _quantile(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name, function = name_of(rng, arrays), pick(rng, FUNCTIONS["quantile"])
    part = (
        pick(rng, ("0.0", "0.25", "0.5", "1.0", "[0.1, 0.9]"))
        if "quantile" in function
        else pick(rng, ("0", "30", "100"))
    )
    return f"{new} = xp.{function}({name}, {part}, axis={axis(rng, arrays[name])})"


def _running(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    return f"{new} = xp.{pick(rng, FUNCTIONS['running'])}({name}, axis={axis(rng, arrays[name], none=False)})"


def _argsort(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    along = axis(rng, arrays[name], none=False)
    calls = (f"xp.argsort({name}, axis={along}, stable=True)", f"xp.lexsort(({name}, {name} > 0), axis={along})")
    return f"{new} = {pick(rng, calls)}"


def _joining(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    function = pick(rng, FUNCTIONS["joining"])
    names = [operand(rng, arrays) if k else name_of(rng, arrays) for k in range(int(rng.integers(1, 4)))]
    if rng.random() < 0.5:
        names = [names[0]] * len(names)
    more = (
        f", axis={axis(rng, arrays[names[0]], none=False)}" if function.startswith("con") or function == "stack" else ""
    )
    return f"{new} = xp.{function}([{', '.join(names)}]{more})"


def _creating(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    dtype = pick(rng, DTYPES)
    n, m = int(rng.integers(0, 5)), int(rng.integers(1, 5))
    return f"{new} = xp." + pick(
        rng,
        (
            f"arange({n})",
            f"arange({n}, {n + m}, dtype=xp.{dtype})",
            f"arange({m}, -{n}, -2)",
            f"zeros(({m}, {n}), dtype=xp.{dtype})",
            f"ones(({m},), dtype=xp.{dtype})",
            f"full(({m}, 3), {scalar(rng)})",
            f"eye({m}, {n + 1}, k={n - 2})",
            f"identity({m})",
            f"linspace(-1, {m}, {n})",
            f"linspace(0, 1, {m}, endpoint=False)",
            f"logspace(0, 1, {m})",
            f"geomspace(1, 8, {m})",
            f"tri({m}, {n}, k={m - 2})",
            f"fromfunction(lambda i, j: i * 2 - j, ({m}, 3))",
            f"zeros_like(xp.empty(({m}, 2), dtype=xp.{dtype}))",
            f"ones_like(xp.empty_like(xp.zeros(({n}, {m}))))",
        ),
    )


def _axes(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    array = arrays[name]
    one, other = axis(rng, array, none=False), axis(rng, array, none=False)
    shapes = [s for s in ((-1,), (1, -1), (-1, 1), (2, -1), (3, -1), (-1, 2), (array.size,)) if array.size]
    order = tuple(int(a) for a in rng.permutation(array.ndim))
    return f"{new} = " + pick(
        rng,
        (
            f"xp.expand_dims({name}, {one if one != 'None' else 0})",
            f"xp.moveaxis({name}, {one}, {other})",
            f"xp.permute_dims({name}, {order})",
            f"xp.reshape({name}, {pick(rng, shapes or [(0,)])})",
            f"{name}.reshape({pick(rng, shapes or [(0,)])})",
            f"xp.reshape({name}, {pick(rng, shapes or [(0,)])}, order='F')",
            f"xp.roll({name}, {int(rng.integers(-5, 6))}, axis={axis(rng, array)})",
            f"xp.swapaxes({name}, {one}, {other})",
            f"{name}.T",
            f"{name}.ravel()",
            f"{name}.flatten()",
            f"xp.broadcast_to({name}, {(2, *array.shape)})",
            f"xp.tile({name}, {pick(rng, ('2', '(2, 1)', '(1, 2)', '0'))})",
            f"xp.repeat({name}, 2, axis={axis(rng, array)})",
            f"xp.pad({name}, 1)",
            f"xp.pad({name}, 1, constant_values={scalar(rng)})",
            f"xp.flip({name}, axis={axis(rng, array)})",
            f"xp.rot90({name}, {int(rng.integers(-1, 4))})",
            f"{name}.copy()",
            f"xp.pad({name}, (1, 2), mode='{pick(rng, ('edge', 'reflect', 'wrap', 'symmetric'))}')",
        ),
    )


def _splitting(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name, function = name_of(rng, arrays), pick(rng, FUNCTIONS["splitting"])
    more = "" if function == "unstack" else f", {pick(rng, ('2', '3', '[1]', '[1, 2]'))}"
    if function in ("array_split", "split", "unstack"):
        more += f", axis={axis(rng, arrays[name], none=False)}"
    return f"{new} = xp.{function}({name}{more})[{pick(rng, (0, -1))}]"


def _choosing(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    array = arrays[name]
    extent = max(array.shape[0] if array.ndim else 1, 1)
    found = rng.integers(-extent, extent, 3).tolist()
    row = name_of(rng, arrays, rank=1)
    return f"{new} = " + pick(
        rng,
        (
            f"xp.where({name} > {scalar(rng)}, {operand(rng, arrays)}, {operand(rng, arrays)})",
            f"xp.where({name} > {scalar(rng)}, {scalar(rng)}, {scalar(rng)})",
            f"xp.where({name}, {name}, {scalar(rng)})",
            f"xp.clip({name}, {name_of(rng, arrays)}, {operand(rng, arrays)})",
            f"xp.isin({name}, [{scalar(rng)}, {scalar(rng)}])",
            f"xp.digitize({name}, [{pick(rng, ('-1', '1', '0.5', '-70000'))}, 300])",
            f"xp.searchsorted(xp.sort({row}), {scalar(rng)})",
            f"xp.nan_to_num({name}, nan={scalar(rng)}, posinf={scalar(rng)})",
            f"xp.heaviside({name}, {scalar(rng)})",
            f"xp.clip({name}, {scalar(rng)}, {scalar(rng)})",
            f"xp.clip({name}, None, {scalar(rng)})",
            f"xp.take({name}, xp.asarray({found}), axis=0)",
            f"xp.take({name}, xp.asarray({found[:1]}))",
            f"xp.take_along_axis({name}, xp.argsort({name}, axis=-1, stable=True), axis=-1)",
            f"xp.searchsorted(xp.sort({row}), {operand(rng, arrays)}, side='{pick(rng, ('left', 'right'))}')",
            f"xp.select([{name} > 1, {name} < 0], [{name}, 2], 7)",
            f"xp.select([{name} > 1, {name} < 0], [{scalar(rng)}, {name}], {scalar(rng)})",
            f"xp.compress([True, False, True], {name}, axis=0)",
            f"xp.extract({name} > 0, {name})",
            f"xp.delete({name}, {found[0]}, axis=0)",
            f"xp.digitize({name}, xp.asarray([0.0, 1.0, 2.5]), right={pick(rng, (True, False))})",
            f"xp.digitize({name}, xp.asarray([3.0, 1.0, -2.5]))",
        ),
    )


def _statistics(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name, row = name_of(rng, arrays), name_of(rng, arrays, rank=1)
    matrix, other = name_of(rng, arrays, rank=2), name_of(rng, arrays, rank=2)
    other_row = name_of(rng, arrays, rank=1)
    return f"{new} = " + pick(
        rng,
        (
            f"xp.bincount(xp.abs({row}) % 5)",
            f"xp.corrcoef({matrix})",
            f"xp.cov({matrix})",
            f"xp.cov({row}, ddof=0)",
            f"xp.gradient({row})",
            f"xp.histogram({name}, bins=4, range=(-2, 3))[0]",
            f"xp.interp({name}, [0.0, 1.0, 3.0], [1.0, -1.0, 2.0])",
            f"xp.polyval([1, -2, 3], {name})",
            f"xp.trapezoid({name}, axis={axis(rng, arrays[name], none=False)})",
            f"xp.trapezoid({name}, dx=0.5)",
            f"xp.einsum('ij,kj->ik', {matrix}, {other})",
            f"xp.einsum('ij->j', {matrix})",
            f"xp.block([[{matrix}, {matrix}], [{matrix}, {matrix}]])",
            f"xp.average({row}, weights={row} * {row} + 1)",
            f"xp.average({row}, weights={other_row})",
            f"xp.einsum('i,i->', {row}, {other_row})",
            f"xp.einsum('i->', {row})",
            f"xp.einsum('...i->...', {name})",
            f"xp.interp({name}, [{pick(rng, ('-1', '0.5', '-70000'))}, 4, 300], [1, 2, -1], left={scalar(rng)})",
            f"xp.diff({name}, prepend={scalar(rng)})",
            f"xp.append({name}, {scalar(rng)})",
            f"xp.round({name}, {pick(rng, (-1, 1, 2))})",
            f"xp.bincount(xp.abs({row}) % 5, minlength=7)",
            f"xp.vander({row}, 3)",
            f"xp.modf({name})[{pick(rng, (0, 1))}]",
            f"divmod({name}, {operand(rng, arrays)})[{pick(rng, (0, 1))}]",
            f"xp.divmod({name}, {operand(rng, arrays)})[{pick(rng, (0, 1))}]",
            f"xp.meshgrid({row}, {row})[0]",
            f"xp.broadcast_arrays({name}, {row})[{pick(rng, (0, 1))}]",
            f"xp.nonzero({name})[0]",
        ),
    )


def _converting(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name, dtype = name_of(rng, arrays), pick(rng, DTYPES)
    return f"{new} = " + pick(
        rng,
        (
            f"{name}.astype(xp.{dtype})",
            f"xp.astype({name}, xp.{dtype})",
            f"xp.asarray({name}, dtype=xp.{dtype})",
            f"xp.asarray({name})",
            f"xp.array({name})",
            f"xp.array([{name}, {name}])",
            f"xp.full_like({name}, {scalar(rng)})",
            f"xp.full(2, {scalar(rng)}, dtype=xp.{dtype})",
            f"xp.asarray([{scalar(rng)}, {scalar(rng)}, {scalar(rng)}])",
            f"xp.asarray({scalar(rng)}, dtype=xp.{dtype})",
            f"{name}.astype({name}.dtype, copy=False)",
            f"xp.asarray({name}, copy=True)",
            f"xp.array({name}, copy=False)",
        ),
    )


def _method(rng: np.random.Generator, arrays: Arrays, new: str) -> str:
    name = name_of(rng, arrays)
    array = arrays[name]
    along, one = axis(rng, array), axis(rng, array, none=False)
    reduce = pick(rng, ("sum", "prod", "mean", "min", "max", "all", "any", "argmin", "argmax", "std", "var"))
    return f"{new} = {name}." + pick(
        rng,
        (
            f"{reduce}(axis={along})",
            f"{reduce}(axis={one}, keepdims=True)",
            f"{reduce}()",
            f"cumsum(axis={one})",
            f"cumprod(axis={one})",
            f"clip({scalar(rng)}, {scalar(rng)})",
            "round(1)",
            f"dot({name_of(rng, arrays)})",
            "trace()",
            "diagonal()",
            "nonzero()[0]",
            f"repeat(2, axis={along})",
            f"swapaxes({one}, 0)",
            "squeeze()",
            f"take([0, -1], axis={one})",
            f"argsort(axis={one}, stable=True)",
            "transpose()",
            "mT",
            "flatten()",
        ),
    )


CALLS: Final[tuple[tuple[Statement, float], ...]] = (
    (_unary, 3),
    (_binary, 3),
    (_reduction, 2),
    (_quantile, 0.3),
    (_running, 0.8),
    (_argsort, 0.3),
    (_joining, 0.8),
    (_creating, 0.6),
    (_axes, 2),
    (_splitting, 0.5),
    (_choosing, 1.6),
    (_statistics, 1.3),
    (_converting, 1.2),
    (_method, 1.5),
)
