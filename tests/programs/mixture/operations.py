"""What a statement may compute: by the slot that takes the result, functions of a library, the state and a number.

A state has real vectors `v` and `w`, a complex one `z`, a real matrix `m` and positions `k`, all of one extent.
Results are mixed with what the slot held and kept within bounds (`kept`), so that any statements may be a loop's body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

State = dict[str, Any]
Operation = Callable[[Any, State, float], Any]
SLOTS = ("v", "w", "z", "m", "k")


def kept(o: Any, slot: str, old: Any, new: Any) -> Any:
    """Bounded, smoothly, with half of what was there before."""
    xp = o.xp
    if slot == "k":
        return xp.astype((old + new) % old.shape[0], old.dtype)
    if slot == "z":
        return 0.5 * old + 0.5 * new / xp.sqrt(1.0 + xp.real(new) ** 2 + xp.imag(new) ** 2)
    return 0.5 * old + 0.5 * xp.tanh(new)


def unit(o: Any, m: Any) -> Any:
    return o.xp.eye(m.shape[0], dtype=m.dtype)


def steady(o: Any, m: Any) -> Any:
    """A matrix with an inverse: the diagonal outweighs the rows."""
    return 0.8 * m / m.shape[0] + (1.5 + 0.1 * o.xp.arange(m.shape[0], dtype=m.dtype)) * unit(o, m)


def symmetric(o: Any, m: Any) -> Any:
    return 0.3 * (m + m.T) / m.shape[0] + 1.5 * o.xp.arange(m.shape[0], dtype=m.dtype) * unit(o, m)


def positive(o: Any, m: Any) -> Any:
    return m @ m.T / m.shape[0] + unit(o, m)


def signed_qr(o: Any, m: Any) -> tuple[Any, Any]:
    """Unique: with a positive diagonal."""
    q, r = o.xp.linalg.qr(steady(o, m))
    signs = o.xp.sign(o.xp.diagonal(r))
    return q * signs, signs[:, None] * r


def half(x: Any) -> int:
    return (x.shape[0] + 1) // 2


def permuted(o: Any, x: Any) -> Any:
    """Positions, each once."""
    return o.order(x)


def table_sum(o: Any, s: State, c: float) -> Any:
    return o.at(s["v"] * c, s["k"], "add", o.xp.sin(s["w"]))


def written(o: Any, s: State, c: float) -> Any:
    return o.at(s["v"] * c, permuted(o, s["w"])[: half(s["v"])], "set", s["w"][: half(s["v"])])


def fft_product(o: Any, s: State, c: float) -> Any:
    fft = o.xp.fft
    return o.xp.real(fft.ifft(fft.fft(s["v"]) * fft.fft(c * s["w"])))


def filtered(o: Any, s: State, c: float) -> Any:
    fft, size = o.xp.fft, s["v"].shape[0]
    return fft.irfft(fft.rfft(s["v"]) * (c + 0.3j), n=size) + s["w"]


def hermitian(o: Any, s: State, c: float) -> Any:
    return c * o.xp.fft.hfft(s["z"], n=s["z"].shape[0])


def guarded_angle(o: Any, s: State, c: float) -> Any:
    return o.xp.angle(s["z"] + 2.0 + c * 1j)


def eigenvalues(o: Any, s: State, c: float) -> Any:
    return c * o.xp.linalg.eigvalsh(symmetric(o, s["m"])) - s["v"]


def eigenvectors(o: Any, s: State, c: float) -> Any:
    values, vectors = o.xp.linalg.eigh(symmetric(o, s["m"]))
    return (vectors * o.xp.sin(c * values)) @ vectors.T @ s["v"]


def general_eigenvalues(o: Any, s: State, c: float) -> Any:
    values = o.xp.linalg.eigvals(steady(o, s["m"]))
    return s["z"] * o.xp.sum(o.xp.exp(-c * values))


def singular(o: Any, s: State, c: float) -> Any:
    values = o.xp.linalg.svd(symmetric(o, s["m"]) + 0.7 * unit(o, s["m"]), compute_uv=False)
    return s["w"] * o.xp.sum(o.xp.sqrt(c + values))


def determinants(o: Any, s: State, c: float) -> Any:
    sign, logarithm = o.xp.linalg.slogdet(steady(o, s["m"]))
    return s["v"] * sign * logarithm + c * o.xp.linalg.det(0.5 * steady(o, s["m"]))


def least_squares(o: Any, s: State, c: float) -> Any:
    a = o.xp.concatenate([steady(o, s["m"]), c * s["m"]])
    return o.xp.linalg.pinv(a) @ o.xp.concatenate([s["v"], s["w"]])


def complex_solve(o: Any, s: State, c: float) -> Any:
    return o.xp.linalg.solve(complex_matrix(o, s, c), s["z"][:, None])[:, 0]


def complex_matrix(o: Any, s: State, c: float) -> Any:
    """With an inverse, and of complex numbers."""
    return steady(o, s["m"]) + 0.2j * c * s["m"].T / s["m"].shape[0]


def hermitian_eigenvectors(o: Any, s: State, c: float) -> Any:
    a = symmetric(o, s["m"]) + 0.2j * c * (s["m"] - s["m"].T) / s["m"].shape[0]
    values, vectors = o.xp.linalg.eigh(a)
    return (vectors * o.xp.exp(1j * c * values)) @ (o.xp.conj(vectors).T @ s["z"])


def hermitian_root(o: Any, s: State, c: float) -> Any:
    a = complex_matrix(o, s, c)
    return o.xp.linalg.cholesky(a @ o.xp.conj(a).T) @ s["z"]


def complex_determinants(o: Any, s: State, c: float) -> Any:
    sign, logarithm = o.xp.linalg.slogdet(complex_matrix(o, s, c))
    return s["z"] * sign * logarithm + o.xp.linalg.det(0.5 * complex_matrix(o, s, c))


def cells_of_a_table(o: Any, s: State, c: float) -> Any:
    """Numbers added to cells that meet, and read at others."""
    table = o.at(o.xp.outer(s["z"], s["v"] - c * 1j), (s["k"], s["k"][::-1]), "add", s["z"] * 1j)
    return table[s["k"], o.order(s["w"])]


def complex_multiply(o: Any, s: State, c: float) -> Any:
    first = slice(0, half(s["v"]))
    return o.at(s["z"], first, "multiply", 1.0 + 1j * c * s["w"][first])


def interpolated(o: Any, s: State, c: float) -> Any:
    points = o.xp.linspace(-1.5, 1.5, 4)
    o.note(o.xp.searchsorted(points, s["v"]))
    return o.xp.interp(s["v"], points, o.xp.asarray([0.1, 0.9, -0.4, c]))


def largest(o: Any, s: State, c: float) -> Any:
    values, places = o.largest(s["v"], half(s["v"]))
    return o.at(s["w"] * c, places, "add", values)


def middle(o: Any, s: State, c: float) -> Any:
    permuted(o, s["v"])
    return s["w"] + o.xp.median(s["v"]) - o.xp.quantile(s["v"], c)


def extremes(o: Any, s: State, c: float) -> Any:
    permuted(o, s["v"])
    return s["w"] * o.xp.max(s["v"]) + c * o.xp.min(s["v"])


def windows(o: Any, s: State, c: float) -> Any:
    return o.conv(s["v"], o.xp.asarray([0.4, -c, 0.3]), 1, 1)


def own_window(o: Any, s: State, c: float) -> Any:
    return o.xp.convolve(s["v"], s["w"][: half(s["w"])], mode="full")[: s["v"].shape[0]] * c


def strided(o: Any, s: State, c: float) -> Any:
    found = o.conv(s["v"], s["w"][:1] * o.xp.asarray([c, 1.0]), 2, 1)
    return o.at(s["w"], slice(0, found.shape[0]), "add", found[: s["w"].shape[0]])


def softmax(o: Any, s: State, c: float) -> Any:
    shifted = o.xp.exp(s["v"] - o.xp.sum(s["v"]) * c / s["v"].shape[0])
    return shifted / o.xp.sum(shifted)


def lower(o: Any, s: State, c: float) -> Any:
    return o.lower_solve(steady(o, s["m"]), s["v"]) * c


def running(name: str, reverse: bool = False) -> Operation:
    def function(o: Any, s: State, c: float) -> Any:
        x = s["v"][::-1] if reverse else s["v"]
        found = o.running(name, x + c)
        return found[::-1] if reverse else found

    return function


REAL: dict[str, Operation] = {
    "waves": lambda o, s, c: o.xp.sin(s["v"] + c) * o.xp.cos(s["w"]) - o.xp.exp(-(s["w"] ** 2)),
    "roots": lambda o, s, c: o.xp.sqrt(1.0 + s["v"] ** 2) - o.xp.log1p(s["w"] ** 2) * c,
    "powers": lambda o, s, c: (1.2 + s["v"] ** 2) ** s["w"] - o.xp.arctan2(s["w"], 1.5 + c + s["v"]),
    "steps": lambda o, s, c: o.choose(s["v"] > s["w"], o.xp.sin(s["v"]), c * s["w"]),
    "sinc": lambda o, s, c: o.xp.sinc(s["v"]) + o.xp.logaddexp(s["v"], c * s["w"]) + o.xp.hypot(s["v"], s["w"] + 3.0),
    "fractions": lambda o, s, c: s["v"] / (2.5 + s["w"]) + o.xp.expm1(c * s["v"]) - o.xp.arcsinh(s["w"]),
    "totals": lambda o, s, c: o.xp.cumsum(s["v"]) * c,
    "totals back": lambda o, s, c: o.xp.cumsum(s["v"][::-1])[::-1] * c - s["w"],
    "products": lambda o, s, c: o.xp.cumprod(1.0 + c * s["v"]),
    "cummax": running("cummax"),
    "cummin back": running("cummin", True),
    "logcumsumexp": running("logcumsumexp"),
    "lines": lambda o, s, c: o.lines(c * s["v"], s["w"]),
    "sorted": lambda o, s, c: s["v"][o.order(s["v"])] * c,
    "sort": lambda o, s, c: (o.order(s["w"]), o.xp.sort(s["w"]) - c * s["v"])[1],
    "by another": lambda o, s, c: o.xp.take_along_axis(s["v"], o.order(s["w"]), axis=0),
    "largest": largest,
    "middle": middle,
    "extremes": extremes,
    "moved": lambda o, s, c: o.xp.roll(s["v"], 1) - c * o.xp.flip(s["w"]),
    "gathered": lambda o, s, c: s["v"][s["k"]] * s["w"] + c,
    "added": table_sum,
    "written": written,
    "maxima": lambda o, s, c: (o.order(o.xp.concatenate([s["v"], s["w"]])), o.at(s["v"], s["k"], "max", s["w"]))[1],
    "table product": lambda o, s, c: o.at(s["v"] + c, s["k"], "multiply", 1.0 + 0.3 * s["w"]),
    "bins": lambda o, s, c: o.bins(s["k"], s["v"] * c, s["v"].shape[0]) + s["w"],
    "product": lambda o, s, c: s["m"] @ s["v"] * c,
    "einsum": lambda o, s, c: o.xp.einsum("ij,i,j->j", s["m"], s["v"], s["w"]) * c,
    "row": lambda o, s, c: s["m"][s["k"][0]] * s["v"] + c,
    "elements": lambda o, s, c: s["m"][s["k"], s["k"][::-1]] - c * s["v"],
    "solved": lambda o, s, c: o.xp.linalg.solve(steady(o, s["m"]), s["v"][:, None])[:, 0] * c,
    "lower": lower,
    "eigenvalues": eigenvalues,
    "eigenvectors": eigenvectors,
    "singular": singular,
    "determinants": determinants,
    "least squares": least_squares,
    "norms": lambda o, s, c: s["v"] * o.xp.linalg.norm(s["m"] + c) + o.xp.linalg.norm(s["w"] + 2.0),
    "convolution": fft_product,
    "filtered": filtered,
    "hermitian": hermitian,
    "windows": windows,
    "own window": own_window,
    "strided": strided,
    "softmax": softmax,
    "interpolated": interpolated,
    "variance": lambda o, s, c: s["v"] * o.xp.var(s["m"]) + o.xp.std(s["w"] + o.xp.arange(s["w"].shape[0])) * c,
    "columns": lambda o, s, c: o.xp.prod(1.0 + 0.2 * s["m"], axis=0) - c * o.xp.mean(s["m"], axis=1),
    "differences": lambda o, s, c: o.at(s["w"], slice(1, None), "add", o.xp.diff(s["v"]) * c),
    "parts": lambda o, s, c: o.xp.real(s["z"]) - c * o.xp.imag(s["z"]),
    "magnitudes": lambda o, s, c: o.xp.abs(s["z"] + 3.0) * c - guarded_angle(o, s, c),
    "inner": lambda o, s, c: s["v"] + o.xp.real(o.xp.vdot(s["z"], s["z"] * (c + 1j))),
    "positions": lambda o, s, c: s["v"] * o.xp.cos(0.5 * s["k"] + c),
}

COMPLEX: dict[str, Operation] = {
    "joined": lambda o, s, c: s["v"] + 1j * s["w"] * c,
    "turned": lambda o, s, c: o.xp.exp(1j * c * s["z"]) - o.xp.conj(s["z"]),
    "functions": lambda o, s, c: o.xp.sin(s["z"]) + o.xp.tanh(c * s["z"]) - o.xp.sqrt(s["z"] + 3.0),
    "logarithms": lambda o, s, c: o.xp.log(s["z"] + 2.5 + c * 1j) / (s["z"] - 3.0),
    "complex powers": lambda o, s, c: (s["z"] + 2.0) ** (c + 0.5j) + s["z"] ** 3,
    "fft": lambda o, s, c: o.xp.fft.fft(s["z"] * c),
    "ifft of rows": lambda o, s, c: o.xp.fft.ifft2(s["m"] * c)[0] * s["v"].shape[0],
    "rfft": lambda o, s, c: o.at(s["z"], slice(0, s["v"].shape[0] // 2 + 1), "add", o.xp.fft.rfft(s["v"]) * c),
    "ihfft": lambda o, s, c: o.at(s["z"], slice(0, s["v"].shape[0] // 2 + 1), "set", 1 + c * o.xp.fft.ihfft(s["w"])),
    "shifted": lambda o, s, c: o.xp.fft.fftshift(s["z"]) + c * o.xp.fft.fft(s["v"], norm="ortho"),
    "complex totals": lambda o, s, c: o.xp.cumsum(s["z"]) * (c - 0.2j),
    "complex products": lambda o, s, c: o.xp.cumprod(1.0 + c * s["z"]),
    "complex lines": lambda o, s, c: o.lines(s["z"] * c, s["z"] + 0.5),
    "complex gather": lambda o, s, c: s["z"][s["k"]] * c - s["z"],
    "complex add": lambda o, s, c: o.at(s["z"], s["k"], "add", s["v"] * (c - 1j)),
    "complex set": lambda o, s, c: o.at(s["z"] * c, o.order(s["v"]), "set", s["z"] * 1j),
    "complex product": lambda o, s, c: (s["m"] + 1j * c * s["m"].T) @ s["z"],
    "complex solve": complex_solve,
    "complex inverse": lambda o, s, c: o.xp.linalg.inv(complex_matrix(o, s, c)) @ s["z"],
    "hermitian eigenvectors": hermitian_eigenvectors,
    "hermitian root": hermitian_root,
    "complex determinants": complex_determinants,
    "complex cells": cells_of_a_table,
    "complex multiply": complex_multiply,
    "general eigenvalues": general_eigenvalues,
    "chosen": lambda o, s, c: o.choose(s["v"] > 0.1, s["z"] * c, o.xp.conj(s["z"]) + 1j),
    "complex window": lambda o, s, c: o.conv(s["z"], o.xp.asarray([0.4, 1j * c, -0.3]), 1, 1),
    "in order": lambda o, s, c: (o.order(o.xp.real(s["z"])), o.xp.sort(s["z"]))[1] * c,
    "complex einsum": lambda o, s, c: o.xp.einsum("ij,j,i->i", s["m"], s["z"], s["v"] + 1j) * c,
    "means": lambda o, s, c: s["z"] - o.xp.mean(s["z"]) * c + o.xp.prod(1.0 + 0.3 * s["z"]),
}

MATRIX: dict[str, Operation] = {
    "outer": lambda o, s, c: o.xp.outer(s["v"], s["w"]) + c,
    "square": lambda o, s, c: s["m"] @ s["m"].T * c,
    "inverse": lambda o, s, c: o.xp.linalg.inv(steady(o, s["m"])),
    "exponential": lambda o, s, c: o.expm(0.4 * c * s["m"]),
    "cholesky": lambda o, s, c: o.xp.linalg.cholesky(positive(o, s["m"])) * c,
    "qr": lambda o, s, c: signed_qr(o, s["m"])[0] * c + s["m"],
    "r": lambda o, s, c: signed_qr(o, s["m"])[1] * c,
    "transform": lambda o, s, c: o.xp.real(o.xp.fft.fft2(s["m"])) * c / s["m"].shape[0],
    "totals of columns": lambda o, s, c: o.xp.cumsum(s["m"], axis=0) * c,
    "totals of rows": lambda o, s, c: o.xp.cumsum(s["m"], axis=1)[:, ::-1] * c,
    "sorted rows": lambda o, s, c: (o.note(np.argsort(s["m"]) if o.xp is np else 0), o.xp.sort(s["m"], axis=1))[1] * c,
    "transposed": lambda o, s, c: s["m"].T * s["v"] - c,
    "triangles": lambda o, s, c: o.xp.triu(s["m"]) + c * o.xp.tril(s["m"], -1).T,
    "rows added": lambda o, s, c: o.at(s["m"], s["k"], "add", s["m"] * s["v"]) * c,
    "cells added": lambda o, s, c: o.at(s["m"], (s["k"], s["k"][::-1]), "add", s["w"]) * c,
    "rows in order": lambda o, s, c: s["m"][o.order(s["v"])] * c,
    "columns taken": lambda o, s, c: o.xp.take(s["m"], s["k"], axis=1) * c,
    "column": lambda o, s, c: o.at(s["m"], (slice(None), 0), "set", s["v"]) * c,
    "diagonal": lambda o, s, c: o.xp.diag(s["v"]) + c * s["m"],
    "kronecker": lambda o, s, c: o.xp.kron(s["m"], s["v"][:1]) * c - s["m"],
}

POSITIONS: dict[str, Operation] = {
    "order": lambda o, s, c: o.order(s["v"]),
    "place": lambda o, s, c: o.xp.searchsorted(o.xp.sort(s["v"]), s["v"] * 0.99),
    "argmax": lambda o, s, c: o.order(s["v"])[-1:] * 0 + o.xp.argmax(s["v"]),
    "count": lambda o, s, c: o.xp.cumsum(s["k"]),
    "swap": lambda o, s, c: s["k"][::-1] + 1,
    "bits": lambda o, s, c: (s["k"] ^ 3) | 1,
    "sorted positions": lambda o, s, c: o.xp.sort(s["k"]),
    "compared": lambda o, s, c: (o.note(s["v"] > c), o.xp.astype(s["v"] > c, s["k"].dtype))[1],
}

TABLES = {"v": REAL, "w": REAL, "z": COMPLEX, "m": MATRIX, "k": POSITIONS}
SMALL_ONLY = frozenset({"general eigenvalues"})
