"""Write `src/loopgrad/__init__.pyi`, which tells type checkers where the public names come from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from loopgrad.public_names import ORIGINS

STUB: Final = Path(__file__).parents[2] / "src" / "loopgrad" / "__init__.pyi"


def stub() -> str:
    """The text of the stub. `import x as x` hands a name on; what has another name in its module is assigned."""
    imports, assignments = ["from loopgrad import linalg as linalg"], ["__version__: str", "newaxis: None"]
    for public, origin in ORIGINS.items():
        if public == origin.name:
            imports.append(f"from {origin.module} import {public} as {public}")
        else:
            assignments.append(f"{public} = {origin.name}")
            if origin.name not in ORIGINS:
                imports.append(f"from {origin.module} import {origin.name}")
    head = "# written by `python -m tests.architecture.public_stub` from public_names.py"
    return "\n".join([head, *imports, "", *assignments, ""])


if __name__ == "__main__":
    STUB.write_text(stub())
