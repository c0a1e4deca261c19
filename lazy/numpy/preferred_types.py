"""JAX's keywords of products: the precision of factors, and the dtype of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from loopgrad.graph.errors import explained
from loopgrad.lazy.tensor.core import ArrayLike, cast
from loopgrad.lazy.tensor.operands import meet_arrays
from loopgrad.lazy.tensor.promotion import allow_cast, as_dtype, can_cast

if TYPE_CHECKING:
    from loopgrad.lazy.tensor.tensor import Tensor

PRECISIONS: Final = ("default", "fastest", "high", "highest", "bfloat16", "tensorfloat32", "float32")


def with_preferred(
    op: str, product: Callable[..., Tensor], operands: Sequence[ArrayLike], precision: Any, preferred: Any
) -> Tensor:
    """The product in the dtype `preferred` (None: the one that operands are promoted to), where that is wider summed in
    it too. `precision`, JAX's, changes nothing: all digits are computed, but for `lg.options(matmul_precision=)`.

    Raises ValueError for a precision that JAX hasn't, DTypeError for a dtype of another kind.
    """
    for word in precision if isinstance(precision, tuple) else (precision,):
        name = getattr(word, "name", word)
        if word is not None and not (isinstance(name, str) and name.lower() in PRECISIONS):
            fix = "leave it out; lg.options(matmul_precision=) says how many digits of factors are read"
            raise ValueError(explained(op, f"a precision among {', '.join(PRECISIONS)}", repr(precision), fix))
    if preferred is None:
        return product(*operands)
    wanted = as_dtype(preferred)
    tensors = meet_arrays(*operands)
    given = tensors[0]._value.dtype
    allow_cast(op, given, wanted, "same_kind")
    return cast(product(*[cast(t, wanted) if can_cast(given, wanted) else t for t in tensors]), wanted)
