"""`derivatives`: the functions of gradients.py, for every test below this folder."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

_spec = importlib.util.spec_from_file_location("autodiff_gradients", Path(__file__).with_name("gradients.py"))
_gradients = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_gradients)


@pytest.fixture
def derivatives() -> ModuleType:
    return _gradients
