"""What the tests of this folder need, or why they are skipped."""

import pytest

from . import wheels
from .software_metal import build, software_metal


@pytest.fixture(scope="session")
def device():
    """The software Metal device."""
    if why := build.missing():
        pytest.skip(why)
    try:
        return software_metal()
    except wheels.UnavailableError as error:
        pytest.skip(str(error))
