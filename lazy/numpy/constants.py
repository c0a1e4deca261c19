"""Numbers with names, `newaxis`, and which versions of the array API standard are followed."""

from __future__ import annotations

import math
from typing import Final

PUBLIC: Final = "__array_api_version__=array_api_version e euler_gamma inf nan newaxis pi"

e: Final = math.e
euler_gamma: Final = 0.5772156649015329
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None
pi: Final = math.pi

array_api_version: Final = "2025.12"
array_api_versions: Final = ("2021.12", "2022.12", "2023.12", "2024.12", array_api_version)
