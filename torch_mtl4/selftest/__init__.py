"""`python -m torch_mtl4 selftest`: checks and times the ops on every device of this machine, and writes one report."""
