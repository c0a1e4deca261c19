"""What stands here chooses its devices itself."""

import pytest


@pytest.fixture(autouse=True)
def gpu():
    """In place of the one around, which has every test run on each GPU."""
