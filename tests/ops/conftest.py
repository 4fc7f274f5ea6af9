import pytest
import torch


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Every tensor that is allocated without being filled starts as NaN, or as the largest value for bytes."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
