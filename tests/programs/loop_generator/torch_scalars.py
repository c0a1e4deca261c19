"""The same operations on PyTorch's float64 scalars: a second opinion about the tape, where PyTorch is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_UNARY = {
    "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "square": torch.square,
    "half": lambda x: 0.5 * x, "bell": lambda x: torch.exp(-x * x), "root": lambda x: torch.sqrt(1 + x * x),
    "log": lambda x: torch.log(1.5 + x * x), "atan": torch.atan, "inverse": lambda x: 1 / x, "abs": torch.abs,
}  # fmt: skip


def _number(x: Any) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.tensor(float(x), dtype=torch.float64)


class TorchScalars:
    """PyTorch's autograd behind the interface of `tape.Tape`; derivatives by differentiating twice."""

    def __init__(self) -> None:
        self.tangents: list[float] = []

    def variable(self, value: float, tangent: float) -> torch.Tensor:
        self.tangents.append(tangent)
        return torch.tensor(value, dtype=torch.float64, requires_grad=True)

    @staticmethod
    def value(x: Any) -> float:
        return float(x.detach()) if isinstance(x, torch.Tensor) else float(x)

    @staticmethod
    def same(a: Any, b: Any) -> bool:
        """The tape has found the ties that matter."""
        return TorchScalars.value(a) == TorchScalars.value(b)

    @staticmethod
    def stop(x: Any) -> Any:
        return _number(x).detach()

    @staticmethod
    def unary(name: str, x: Any) -> torch.Tensor:
        return _UNARY[name](_number(x))

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        return a + b

    @staticmethod
    def mul(a: Any, b: Any) -> Any:
        return a * b

    @staticmethod
    def extremum(name: str, a: Any, b: Any) -> torch.Tensor:
        function = torch.minimum if name == "min" else torch.maximum
        return function(_number(a), _number(b))

    def derivatives(self, result: Any, leaves: Sequence[Any]) -> tuple[float, list[float], list[float]]:
        """The derivative along the tangents, the gradient, and the Hessian times the tangents."""
        zeros = [0.0] * len(leaves)
        if not isinstance(result, torch.Tensor) or not result.requires_grad:
            return 0.0, zeros, zeros
        slopes = torch.autograd.grad(result, leaves, create_graph=True, allow_unused=True)
        along = sum(g * t for g, t in zip(slopes, self.tangents, strict=True) if g is not None)
        gradient = [0.0 if g is None else self.value(g) for g in slopes]
        if not isinstance(along, torch.Tensor) or not along.requires_grad:
            return self.value(along), gradient, zeros
        seconds = torch.autograd.grad(along, leaves, allow_unused=True)
        return self.value(along), gradient, [0.0 if g is None else self.value(g) for g in seconds]
