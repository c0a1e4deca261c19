"""Machine code of the functions that many programs have: made once a process, or once a machine with a disk cache."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

MOST: Final = 1024  # functions and groups of them, of a few KB each


class CommonCode:
    """What one device remembers. `make(name, text)` gives machine code from a disk cache or the compiler; `environment`
    is everything beside the text that shapes code. Safe to use from several threads: two may both make the same."""

    def __init__(
        self, make: Callable[[str, Callable[[], str]], bytes], environment: Callable[[], tuple[str, ...]]
    ) -> None:
        self._make = make
        self._environment = environment
        self._codes: dict[tuple[str, ...], bytes] = {}

    def code(self, text: str) -> bytes:
        """The object of a module that several programs link with."""
        key = (text, *self._environment())
        code = self._codes.get(key)
        if code is None:
            digest = blake2b(text.encode(), digest_size=32).hexdigest()
            code = self._make(f"common {digest}", lambda: text)
            if len(self._codes) >= MOST:
                self._codes.clear()
            self._codes[key] = code
        return code
