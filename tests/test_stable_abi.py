"""The compiled library uses nothing of torch but the C functions of its stable ABI: one build serves many versions."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_mtl4 import _ops

# A mangled C++ name (Itanium ABI; macOS puts one more underscore in front) that mentions a namespace of torch.
CXX_OF_TORCH = re.compile(r"^_{1,2}Z.*(2at|3c10|4c10d|5torch|6caffe2)\d")


def undefined_symbols(library):
    command = ["nm", "-gu"] if sys.platform == "darwin" else ["nm", "-D", "--undefined-only"]
    lines = subprocess.run([*command, library], check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split()[-1].split("@")[0] for line in lines if line.strip() and not line.endswith(":")]


@pytest.mark.parametrize(
    "symbol,is_cxx",
    [
        ("_ZN2at6detail10noopDeleteEPv", True),
        ("_ZNK3c1010TensorImpl5sizesEv", True),
        ("__ZN3c105ErrorC1ENS_14SourceLocationE", True),
        ("_ZN5torch8autograd8GradMode10is_enabledEv", True),
        ("_ZTVN3c1015VirtualGuardImplE", True),
        ("aoti_torch_get_dim", False),
        ("torch_parallel_for", False),
        ("_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev", True),
        ("_ZNSt13runtime_errorC1EPKc", False),
    ],
)
def test_the_pattern_knows_torch_from_the_rest(symbol, is_cxx):
    assert bool(CXX_OF_TORCH.search(symbol)) == is_cxx


def test_the_library_needs_no_cxx_symbol_of_torch():
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    symbols = undefined_symbols(_ops.LIBRARY_PATH)
    assert any("aoti_torch_" in symbol for symbol in symbols)
    assert [symbol for symbol in symbols if CXX_OF_TORCH.search(symbol)] == []


def test_every_op_works_in_a_fresh_process():
    root = Path(__file__).parent.parent
    result = subprocess.run(
        [sys.executable, str(root / "tests" / "abi_smoke.py")], cwd=root, capture_output=True, text=True
    )
    assert result.returncode == 0 and "checks of" in result.stdout, result.stderr
