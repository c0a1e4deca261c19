"""`derivatives`: the functions of gradients.py, for every test below this folder."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.autodiff import gradients as _gradients


@pytest.fixture
def derivatives() -> ModuleType:
    return _gradients
