"""Assets that several tests read."""

import pytest
import torch


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    """The asset of a ScaleRows for 8 rows."""
    from tests.export.apple_kernels import ScaleRows, make

    torch.manual_seed(0)
    return make(tmp_path_factory.mktemp("rows"), ScaleRows(), torch.randn(8, 24))


@pytest.fixture(scope="session")
def any_rows(rows, tmp_path_factory):
    """The asset of the same module for any number of rows."""
    from tests.export.apple_kernels import make

    size = torch.export.Dim("rows", min=1, max=64)
    return make(tmp_path_factory.mktemp("any_rows"), rows.model, rows.x, {"x": {0: size}})
