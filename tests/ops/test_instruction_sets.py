"""Every instruction set that this machine can run, each in its own process, since the choice is made once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import torch_mtl4

PACKAGE = Path(torch_mtl4.__file__).resolve().parents[1]  # the one under test, which may be a build of its own
pytestmark = pytest.mark.cpu_only

INSTRUCTION_SETS = ["baseline", "neon", "avx2", "avx512", "avx512_bf16", "amx"]
CASES = """
import test_random_sweep as sweep
sweep.check_attention(range(40))
sweep.check_mx(range(40))
"""


def run(isa, code):
    # In the folder of the tests: python -c looks for modules where it starts.
    here = Path(__file__).parent
    environment = {**os.environ, "TORCH_MTL4_CPU_ISA": isa}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), environment.get("PYTHONPATH", "")])
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=here)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_random_cases(isa):
    result = run(isa, CASES)
    if "this machine has no" in result.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert result.returncode == 0, result.stderr[-2000:]


def test_an_unknown_name_raises():
    result = run("sse9", "import torch, torch_mtl4; torch_mtl4.mxfp8_quantize(torch.ones(32))")
    assert result.returncode != 0 and "expected baseline" in result.stderr
