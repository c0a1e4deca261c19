"""What programs that tests start find around them, so that starting them takes little."""

from __future__ import annotations

import os
from typing import Final

from tests.architecture.sources import ROOT

# Open MPI looks for networks for a second, which processes of one machine don't need.
ONE_MACHINE: Final = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"}


def around() -> dict[str, str]:
    """The environment of a program that imports loopgrad and tests from here."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**ONE_MACHINE, **os.environ, "PYTHONPATH": paths}
