import pytest
import torch

from torch_mtl4.msl_backend import emulated


@pytest.fixture(autouse=True)
def on_a_gpu(request):
    """The ops of every test as a GPU would run them, by plan and kernel: `--device msl` on the MSL runner, and
    `--device mps` by way of the MPS backend, on the software Metal device."""
    device = request.config.getoption("--device")
    if device in (None, "cpu"):
        yield
        return
    if request.node.get_closest_marker("cpu_only"):
        pytest.skip("a promise of the CPU kernels")
    if device == "mps":
        request.getfixturevalue("software_metal_device")
        from host.software_metal import on_software_metal as run
    else:
        run = emulated
    with run(request.config.getoption("--gpu"), checked=False):
        yield


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Every tensor that is allocated without being filled starts as NaN, or as the largest value for bytes."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
