from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _formulas_alone(formulas_alone: None) -> None:
    """In all tests of this folder."""
