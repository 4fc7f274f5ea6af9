"""Models for Apple's own runtimes. Importing this loads no exporter; `torch_mtl4.export.coreai` is imported by name."""

from torch_mtl4.export.mlpackage import MLPackage, mlpackage

__all__ = ["MLPackage", "mlpackage"]
