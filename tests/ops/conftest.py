import pytest
import torch

from torch_mtl4.msl_backend import emulated


@pytest.fixture(autouse=True)
def on_a_gpu(request):
    """`--device msl`: the ops of every test as a GPU would run them, by plan and kernel, on the MSL runner."""
    if request.config.getoption("--device") != "msl":
        yield
        return
    if request.node.get_closest_marker("cpu_only"):
        pytest.skip("a promise of the CPU kernels")
    with emulated(request.config.getoption("--gpu"), checked=False):
        yield


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Every tensor that is allocated without being filled starts as NaN, or as the largest value for bytes."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
