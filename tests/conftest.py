import os

# Before torch loads OpenMP: threads that wait should sleep. Spinning, they make the many tiny parallel regions of these
# tests up to forty times slower where the machine's cores are shared.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
