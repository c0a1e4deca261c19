"""Systems of equations of which each ties a number to its two neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import ShapeError, explained
from loopgrad.lazy.loops.scan import scan
from loopgrad.lazy.numpy.creation import zeros_like
from loopgrad.lazy.numpy.linalg.operands import float_values
from loopgrad.lazy.numpy.movement import broadcast_to, moveaxis
from loopgrad.lazy.tensor.core import ArrayLike, wrap
from loopgrad.lazy.tensor.operands import joined_shape
from loopgrad.lazy.tensor.repeated_calls import repeated

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PUBLIC_LINALG: Final = "tridiagonal_solve"


@repeated
def tridiagonal_solve(dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike) -> Tensor:
    """The x with dl[i] x[i - 1] + d[i] x[i] + du[i] x[i + 1] = b[i]: JAX's, for batches.

    Shapes (..., n) of the diagonals, whose first of dl and last of du count as 0, and (..., n, k) of b give (..., n,
    k), in the float to which all are promoted; leading axes broadcast. By elimination without exchanges of rows (L.
    Thomas, 1949), in a loop over the rows: for diagonals that outweigh their neighbours, as in splines and diffusion,
    else it may lose digits, and `lg.linalg.solve` of the dense matrix doesn't. Derivatives flow to all four. Raises
    ShapeError where extents differ.

    >>> lg.linalg.tridiagonal_solve([0.0, 1.0], [2.0, 2.0], [1.0, 0.0], [[3.0], [3.0]])
    Tensor([[1.],
            [1.]], dtype=float64)
    """
    below, diagonal, above, right = map(wrap, float_values("tridiagonal_solve", dl, d, du, b))
    parts = (below, diagonal, above)
    if len(right.shape) < 2 or any(not t.shape or t.shape[-1] != right.shape[-2] for t in parts):
        got = f"{[t.shape for t in parts]} and {right.shape}"
        expected = "diagonals of shape (..., n) and b of shape (..., n, k)"
        raise ShapeError(explained("tridiagonal_solve", expected, got, "add an axis to a vector b"))
    batch = joined_shape("tridiagonal_solve", [*(t.shape[:-1] for t in parts), right.shape[:-2]])
    rows = [moveaxis(broadcast_to(t, (*batch, t.shape[-1]))[..., None], -2, 0) for t in parts]
    known = moveaxis(broadcast_to(right, (*batch, *right.shape[-2:])), -2, 0)
    return moveaxis(eliminated(rows[0], rows[1], rows[2], known), 0, -2)


def eliminated(below: Tensor, diagonal: Tensor, above: Tensor, right: Tensor) -> Tensor:
    """The solution along the first axis: each diagonal is as long as there are rows, and broadcasts with the right side
    behind that. The first number below and the last one above the diagonal count as 0."""
    if not right.shape[0]:
        return right

    def down(carry: tuple[Tensor, Tensor], row: tuple[Tensor, ...]) -> tuple[Any, Any]:
        c, d = carry
        low, middle, high, r = row
        pivot = middle - low * c
        solved = (high / pivot, (r - low * d) / pivot)
        return solved, solved

    def up(x: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        c, d = row
        x = d - c * x
        return x, x

    nothing = zeros_like(right[0])
    start = (zeros_like(above[0]), nothing)  # so that what is below the first and above the last doesn't count
    _, rows = scan(down, start, (below, diagonal, above, right))
    solution: Tensor = scan(up, nothing, rows, reverse=True)[1]
    return solution
