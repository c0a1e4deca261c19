"""Tests for which CUDA is simulated, in processes of their own: as many as two workers run side by side."""

from __future__ import annotations

import pytest

from tests.runtime.cuda.simulated_process import run_simulated

# test_simulated_driver ends with a device that is lost
PROCESSES = (("test_libraries", "test_products"), ("test_exchange", "test_pieces", "test_simulated_driver"))


@pytest.mark.parametrize("files", PROCESSES, ids=",".join)
def test_in_a_process_of_its_own(files: tuple[str, ...]) -> None:
    run_simulated(files)
