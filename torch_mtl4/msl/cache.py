"""Build products on disk, under names that hold a hash of everything they depend on."""

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_BYTES = 1 << 30
_YOUNG_SECONDS = 3600  # another process may be about to load what it has just built


def directory() -> Path:
    """TORCH_MTL4_MSL_CACHE, or torch_mtl4/msl in the user's cache directory."""
    root = os.environ.get("TORCH_MTL4_MSL_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(root) if root else base / "torch_mtl4" / "msl"
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def publish(name: str, write: Callable[[Path], None]) -> Path:
    """The cached file of that name; `write(temporary path)` makes it if there is none.

    It is moved into place at once, so that parallel builds do not meet.
    """
    path = directory() / name
    with contextlib.suppress(FileNotFoundError):
        os.utime(path)  # used now: the last to be pruned
        return path
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        temporary = Path(folder) / name
        write(temporary)
        os.replace(temporary, path)
    prune()
    return path


def prune(limit: int = LIMIT_BYTES, youngest: float = _YOUNG_SECONDS) -> None:
    """Deletes the files that were not used for longest until the rest is within the limit."""
    files = []
    for path in directory().glob("*-*.*"):
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            files.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in files)
    now = time.time()
    for used, size, path in sorted(files):
        if total <= limit or now - used < youngest:
            break
        path.unlink(missing_ok=True)
        total -= size
