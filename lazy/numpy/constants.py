"""Numbers with names, and `newaxis`."""

from __future__ import annotations

import math
from typing import Final

PUBLIC: Final = "e inf nan newaxis pi"

e: Final = math.e
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None
pi: Final = math.pi
