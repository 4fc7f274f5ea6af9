"""Kernels of other projects through the MSL runner: `python -m tests.msl.corpus`, see `--help`.

Their sources come from PyPI at run time, into a cache outside the repository; nothing of them is committed.
"""
