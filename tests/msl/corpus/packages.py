"""The sources: packages that pip downloads, and what of them is unpacked."""

import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]


@dataclass(frozen=True)
class Package:
    """A file of PyPI; the wheels are those of macOS, the only ones that carry Metal sources."""

    name: str
    version: str
    options: tuple[str, ...]
    wanted: tuple[str, ...]  # parts of the paths that are unpacked

    def fetch(self, cache: Path) -> Path:
        """The folder of its files, downloaded and unpacked at the first call."""
        folder = cache / f"{self.name}-{self.version}"
        if (folder / "complete").exists():
            return folder
        downloads = cache / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        pattern = f"{self.name.replace('-', '_')}-{self.version}*"
        if not list(downloads.glob(pattern)):
            command = [*PIP, *self.options, "--dest", str(downloads), f"{self.name}=={self.version}"]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(f"msl corpus: pip could not download {self.name} {self.version}:\n{result.stderr}")
        (archive,) = downloads.glob(pattern)
        self._unpack(archive, folder)
        (folder / "complete").touch()
        return folder

    def _unpack(self, archive: Path, folder: Path) -> None:
        def wanted(name):
            return any(part in name for part in self.wanted)

        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as z:
                z.extractall(folder, [n for n in z.namelist() if wanted(n)])
        else:
            with tarfile.open(archive) as t:
                t.extractall(folder, [m for m in t.getmembers() if m.isfile() and wanted(m.name)], filter="data")


def _mac(release: str) -> tuple[str, ...]:
    return ("--only-binary=:all:", "--python-version", "3.13", "--platform", f"macosx_{release}_arm64")


MLX = Package("mlx-metal", "0.32.4", _mac("26_0"), ("mlx/include/mlx/backend/metal/kernels/",))
TORCH = Package("torch", "2.14.1", _mac("14_0"), ("include/c10/metal/", "include/ATen/native/mps/kernels/"))
LLAMA = Package(
    "llama-cpp-python",
    "0.3.36",
    ("--no-binary", "llama-cpp-python"),
    ("ggml/src/ggml-metal/", "ggml/src/ggml-common.h", "ggml/include/"),
)
