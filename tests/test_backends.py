"""What backend_status() says of a machine without Metal."""

import sys

import pytest

import torch_mtl4
from torch_mtl4 import _native


@pytest.mark.skipif(sys.platform == "darwin", reason="has the MPS backend")
def test_a_machine_without_metal_says_so():
    cpu, mps = torch_mtl4.backend_status()["cpu"], torch_mtl4.backend_status()["mps"]
    assert cpu == (True, _native.cpu_isa())
    assert mps == (False, f"not built: Metal is not on {sys.platform}")
