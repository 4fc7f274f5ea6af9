"""`--device mps`: these tests by way of the MPS backend, on the software Metal device of tests/host."""

import pytest

from torch_mtl4 import msl_backend


@pytest.fixture(autouse=True)
def device(request, monkeypatch):
    """What `emulated` is in the module of the test."""
    if request.config.getoption("--device") == "mps" and hasattr(request.module, "emulated"):
        request.getfixturevalue("software_metal_device")
        from host.software_metal import on_software_metal

        monkeypatch.setattr(request.module, "emulated", on_software_metal)


@pytest.fixture(scope="session")
def software_metal_device():
    from host.software_metal import build

    if why := build.missing():
        pytest.skip(why)


@pytest.fixture
def compiled_anew(monkeypatch):
    """A monkeypatch for what libraries are made of: they are compiled from then on, and forgotten in the end."""
    msl_backend._library.cache_clear()
    yield monkeypatch
    msl_backend._library.cache_clear()
