"""What the tests of this folder need, or why they are skipped."""

import pytest

from .software_metal import build, software_metal
from .wheels import UnavailableError, absent


@pytest.fixture(scope="session")
def device():
    """The software Metal device."""
    if why := build.missing():
        absent(why)
    try:
        return software_metal()
    except UnavailableError as error:
        absent(error)
