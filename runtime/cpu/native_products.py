"""Products of matrices: machine code made once per machine, loaded by a process when a program first needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from loopgrad.codegen.targets.cpu.products.products_interface import EXPORTS, EXPORTS_FOR_FEW, FEW_THREADS
from loopgrad.runtime.cpu.loader import Code
from loopgrad.runtime.processes import child_safe_lock

_lock = child_safe_lock()
_products: Code | None = None


def native_products(object_of: Callable[[str, Callable[[], str]], bytes], threads: int) -> Mapping[str, int]:
    """The function's address for each dtype, for a pool of so many threads. `object_of(name, text)` gives machine code
    for a text, from a cache or the compiler."""
    global _products
    if _products is None:
        with _lock:
            if _products is None:
                code = Code(object_of("products", _products_text), (*EXPORTS.values(), *EXPORTS_FOR_FEW.values()))
                code.keep()
                _products = code
    symbols = EXPORTS_FOR_FEW if threads <= FEW_THREADS else EXPORTS
    return {dtype: _products.address(symbol) for dtype, symbol in symbols.items()}


def _products_text() -> str:
    from loopgrad.codegen.targets.cpu.features import host_machine  # late: a warm cache needs no text
    from loopgrad.codegen.targets.cpu.products.products_module import products_ir  # late, as above

    return products_ir(host_machine())
