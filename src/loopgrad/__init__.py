"""loopgrad: write the loop, get the gradient.

`__init__.pyi` lists what is offered, and `public_names` imports it when it is first used. What is heavy (compilers,
graph export) is imported by the layers when it is first used; this import costs little more than NumPy's.
"""

from __future__ import annotations

from typing import Any

import loopgrad.lazy.tensor.tensor  # noqa: F401  # the class of what array functions make
from loopgrad.public_names import ORIGINS, find

__version__ = "0.1.0"
__all__ = sorted(ORIGINS)


def __getattr__(name: str) -> Any:
    value = globals()[name] = find(name)
    return value


def __dir__() -> list[str]:
    return __all__
