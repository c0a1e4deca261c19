"""What random statements are made of: inputs, names of variables, Python numbers, axes and indices, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

Arrays = Mapping[str, Any]  # arrays and numbers of NumPy's

DTYPES: Final = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
SHAPES: Final = ((), (1,), (3,), (4,), (0,), (1, 3), (3, 1), (2, 3), (3, 4), (4, 3), (3, 0), (2, 1, 3), (2, 3, 4))
NUMBERS: Final = (
    "0", "1", "2", "3", "-1", "-2", "7", "0.5", "-1.5", "2.0", "1e-3", "True", "xp.inf", "xp.nan", "-0.0",
)  # fmt: skip
BEYOND: Final = ("-1", "-129", "127", "128", "200", "255", "256", "-40000", "65535", "70000", "2**31", "2**32 - 1",
                 "2**40", "-2**62", "2**63 - 1", "2**63", "2**64 - 1", "-2**63")  # fmt: skip


def pick(rng: np.random.Generator, items: Any) -> Any:
    """One of the items."""
    return items[int(rng.integers(len(items)))]


def data(rng: np.random.Generator) -> np.ndarray:
    """An input: any dtype, small shapes, ordinary and extreme elements."""
    return elements(rng, np.dtype(pick(rng, DTYPES)), pick(rng, SHAPES))


def elements(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Ordinary elements, and in some arrays extreme ones among them."""
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind == "f":
        array = np.asarray(rng.uniform(-3, 3, shape))
        special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, np.nan, np.inf, -np.inf])
        chosen = rng.random(shape) < (0.3 if rng.random() < 0.5 else 0.0)
        return np.where(chosen, special[rng.integers(len(special), size=shape)], array).astype(dtype)
    info = np.iinfo(dtype)
    array = np.asarray(rng.integers(max(info.min, -5), 6, shape))
    extreme = np.array([info.min, info.max, info.max // 2 + 1], dtype=dtype)
    chosen = rng.random(shape) < (0.3 if rng.random() < 0.4 else 0.0)
    return np.where(chosen, extreme[rng.integers(3, size=shape)], array.astype(dtype)).astype(dtype)


def name_of(rng: np.random.Generator, arrays: Arrays, *, rank: int | None = None) -> str:
    """A variable, the latest ones more often."""
    names = [n for n, a in arrays.items() if rank is None or a.ndim == rank] or list(arrays)
    place = min(int(rng.exponential(len(names) / 2)), len(names) - 1)
    return names[-1 - place]


def written_to(rng: np.random.Generator, arrays: Arrays) -> str:
    """A variable that can be written to: no number."""
    return name_of(rng, {n: a for n, a in arrays.items() if isinstance(a, np.ndarray) and a.flags.writeable} or arrays)


def scalar(rng: np.random.Generator) -> str:
    """A Python number as text, now and then one that narrow integers can't hold."""
    return pick(rng, NUMBERS) if rng.random() < 0.85 else pick(rng, BEYOND)


def operand(rng: np.random.Generator, arrays: Arrays) -> str:
    """A variable or a Python number."""
    return scalar(rng) if rng.random() < 0.3 else name_of(rng, arrays)


def value_for(rng: np.random.Generator, arrays: Arrays, target: Any) -> str:
    """What may be written to an array: a number or variable of its kind or a lower one."""
    lower = "biuf"[: "biuf".index(target.dtype.kind) + 1].replace("i", "i" if target.dtype.kind != "u" else "")
    names = [n for n, a in arrays.items() if a.dtype.kind in lower and a.ndim <= target.ndim]
    if names and rng.random() < 0.5:
        return pick(rng, names)
    numbers = {"b": ("True", "False"), "f": NUMBERS}.get(target.dtype.kind, ("0", "1", "3", "7", "True"))
    return pick(rng, numbers) if rng.random() < 0.9 else scalar(rng)


def axis(rng: np.random.Generator, array: Any, none: bool = True) -> str:
    """An axis of the array, or several, or None."""
    if array.ndim == 0 or (none and rng.random() < 0.3):
        return "None"
    if none and array.ndim > 1 and rng.random() < 0.2:
        return repr(tuple(int(a) for a in rng.permutation(array.ndim)[: int(rng.integers(0, array.ndim + 1))]))
    return str(int(rng.integers(-array.ndim, array.ndim)))


def basic_index(rng: np.random.Generator, array: Any) -> str:
    """Ints in range, slices of any step, None and Ellipsis."""
    parts: list[str] = []
    for extent in array.shape[: int(rng.integers(0, array.ndim + 1))]:
        kind = rng.random()
        if kind < 0.35 and extent:
            parts.append(str(int(rng.integers(-extent, extent))))
        elif kind < 0.85:
            ends = [pick(rng, ("", str(int(rng.integers(-extent - 2, extent + 3))))) for _ in range(2)]
            parts.append(":".join([*ends, pick(rng, ("", "1", "2", "-1", "-2", "3"))]))
        else:
            parts.append(":")
    if rng.random() < 0.15:
        parts.insert(int(rng.integers(0, len(parts) + 1)), "None")
    if rng.random() < 0.2:
        parts.append("...")
    return ", ".join(parts) or "..."


def index(rng: np.random.Generator, arrays: Arrays, array: Any) -> str:
    """Any index: basic ones, numbers that are data, lists, arrays of positions of every width (negative ones too),
    masks."""
    kind = rng.random()
    if kind < 0.5 or not array.ndim or not array.shape[0]:
        return basic_index(rng, array)
    extent = array.shape[0]
    if kind < 0.6:
        name = name_of(rng, arrays)
        return pick(rng, (f"xp.argmax({name}) % {extent}", f"xp.argmin({name}) % {extent} - {extent}"))
    if kind < 0.75:
        shape = pick(rng, ((2,), (3,), (1,), (2, 2), (0,)))
        dtype = pick(rng, ("int8", "int16", "int32", "int64", "uint8", "uint16"))
        low = 0 if dtype.startswith("u") else -extent
        found = rng.integers(low, extent, shape).tolist()
        rest = pick(rng, ("", ", ...", f", {-1 if array.ndim > 1 else '...'}"))
        return f"xp.asarray({found}, dtype=xp.{dtype}){rest}"
    if kind < 0.85:
        return repr(rng.integers(-extent, extent, int(rng.integers(1, 4))).tolist())
    masks = [n for n, a in arrays.items() if a.dtype == bool and a.ndim and a.shape == array.shape[: a.ndim]]
    names = [n for n, a in arrays.items() if a.shape == array.shape]
    if masks and rng.random() < 0.5:
        return pick(rng, masks)
    return f"{pick(rng, names)} {pick(rng, ('>', '<=', '!='))} {pick(rng, ('0', '1', '0.5', '-1', '300'))}"
