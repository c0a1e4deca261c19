"""The programs, those that matter most first: where time is short, the last ones are left out."""

from __future__ import annotations

from typing import Final

from benchmarks.workload import Workload
from benchmarks.workloads.arrays import (
    elementwise,
    models,
    movement,
    order,
    products,
    recurrent,
    reductions,
    scripts,
    transforms,
)

PROGRAMS: Final = {
    **elementwise.PROGRAMS, **reductions.PROGRAMS, **order.PROGRAMS, **movement.PROGRAMS, **products.PROGRAMS,
    **models.PROGRAMS, **recurrent.PROGRAMS, **transforms.PROGRAMS, **scripts.PROGRAMS,
}  # fmt: skip
FIRST: Final = (
    "copy", "cumsum", "sort", "argsort", "gather_rows", "transpose", "layer_norm", "mixture", "softmax",
    "black_scholes", "mlp", "convolution", "lstm", "attention", "scatter_add", "wave", "sum_axis_0", "sum_axis_1",
    "matmul", "sines", "small", "top_k", "recurrence", "logcumsumexp",
)  # fmt: skip
WORKLOADS: Final[dict[str, Workload]] = {
    name: PROGRAMS[name].workload("arrays", name) for name in (*FIRST, *(n for n in PROGRAMS if n not in FIRST))
}
