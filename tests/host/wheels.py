"""Files out of wheels for macOS, kept in the user's cache directory."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NoReturn

import pytest

TORCH_VERSIONS = ("2.13.0", "2.14.1", "2.15.0")  # from the oldest that the library loads into to the newest
METAL_CPP = ("mlx-metal", "0.32.4", "macosx_26_0_arm64")
PYOBJC = ("pyobjc-framework-Metal", "12.2.2", "macosx_10_9_universal2")


class UnavailableError(RuntimeError):
    """A wheel could not be had: there is no network, or the index does not serve it."""


def absent(why: object) -> NoReturn:
    """Skips the test; in CI, which has brought everything, fails it."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(str(why))


def cache() -> Path:
    """Where downloads are kept: $XDG_CACHE_HOME or ~/.cache, in torch_mtl4/host."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torch_mtl4", "host")


def torch(version: str) -> Path:
    """A folder with torch/include and the dylibs of torch/lib."""
    return _unpacked(("torch", version, "macosx_14_0_arm64"), ("torch/include/", "torch/lib/lib"))


def metal_cpp() -> Path:
    return _unpacked(METAL_CPP, ("mlx/include/metal_cpp/",)) / "mlx/include/metal_cpp"


def pyobjc_metadata() -> Path:
    """The file in which pyobjc keeps Metal's constants."""
    return _unpacked(PYOBJC, ("Metal/_metadata.py",)) / "Metal/_metadata.py"


def _unpacked(wheel: tuple[str, str, str], wanted: tuple[str, ...]) -> Path:
    folder = cache() / "-".join(wheel[:2])
    if not (folder / ".done").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(_download(wheel, folder)) as archive:
            archive.extractall(folder, [entry for entry in archive.namelist() if entry.startswith(wanted)])
        for path in folder.glob("*.whl"):
            path.unlink()
        (folder / ".done").touch()
    return folder


def _download(wheel: tuple[str, str, str], folder: Path) -> Path:
    name, version, tag = wheel
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    # Which Python it is for does not matter: only headers, data and libraries of C++ are read.
    command += ["--python-version", "3.11", "--platform", tag, "--dest", str(folder), f"{name}=={version}"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:  # a machine's own limits are for what it installs, and this is only read
        unlimited = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
        result = subprocess.run(command, capture_output=True, text=True, env=unlimited)
    found = list(folder.glob("*.whl"))
    if result.returncode or not found:
        reason = next((line for line in result.stderr.splitlines() if line.startswith("ERROR")), "no wheel came")
        raise UnavailableError(f"{name} {version} for {tag}: {reason}")
    return found[0]
