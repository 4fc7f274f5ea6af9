"""Models with kernels of this package in other runtimes' files. Each is a subpackage, imported by name."""
