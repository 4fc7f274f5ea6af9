"""Models for Apple's own runtimes: `coreai.export` and `mlpackage`. Importing this loads no exporter."""

from torch_mtl4.export import coreai
from torch_mtl4.export.mlpackage import MLPackage, mlpackage

__all__ = ["MLPackage", "coreai", "mlpackage"]
