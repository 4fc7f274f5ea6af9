import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parent / "kernels"


def python(*arguments, **environment):
    """Runs a Python of its own, from any folder, with the package that is under test."""
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


@functools.cache
def _compile(name, checked, constants):
    from torch_mtl4 import msl

    return msl.compile(KERNELS / name, checked=checked, constants=dict(constants))


@pytest.fixture(params=[False, True], ids=["fast", "checked"])
def checked(request):
    return request.param


@pytest.fixture
def library(checked):
    """Compiles a kernel file of this folder, once a session, fast and checked; its report starts empty."""

    def load(name, **constants):
        lib = _compile(name, checked, tuple(constants.items()))
        lib.report.clear()
        return lib

    return load
