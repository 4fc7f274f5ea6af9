"""Reads the DWARF 4 debug information of compiled kernels, so that reports need no debugger on the machine."""

from .frames import FrameTable

__all__ = ["FrameTable"]
