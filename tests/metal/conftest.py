"""`--device mps`: these tests by way of the MPS backend, on the software Metal device of tests/host."""

import sys

import pytest

from torch_mtl4 import msl_backend


@pytest.fixture(autouse=True)
def device(request, monkeypatch):
    """What `emulated` is in the modules of this folder."""
    if request.config.getoption("--device") != "mps":
        return
    if request.node.get_closest_marker("emulated_only") or "compiled_anew" in request.fixturenames:
        pytest.skip("of the emulation itself, or of tensors that are not on mps")
    modules = [m for name, m in list(sys.modules.items()) if name.startswith("metal.") and hasattr(m, "emulated")]
    if modules:
        request.getfixturevalue("software_metal_device")
        from host.software_metal import on_software_metal

        for module in modules:
            monkeypatch.setattr(module, "emulated", on_software_metal)


@pytest.fixture
def compiled_anew(monkeypatch):
    """A monkeypatch for what libraries are made of: they are compiled from then on, and forgotten in the end."""
    msl_backend._library.cache_clear()
    yield monkeypatch
    msl_backend._library.cache_clear()
