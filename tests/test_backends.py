"""What backend_status() says of a machine without Metal."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torch_mtl4 import _native


@pytest.mark.skipif(sys.platform == "darwin", reason="has the MPS backend")
def test_a_machine_without_metal_says_so():
    # In a process of its own: tests/host puts a Metal device into this one.
    command = [sys.executable, "-c", "import json, torch_mtl4; print(json.dumps(torch_mtl4.backend_status()))"]
    result = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    status = json.loads(result.stdout)
    assert status["cpu"] == [True, _native.cpu_isa()]
    assert status["mps"] == [False, f"not built: Metal is not on {sys.platform}"]
