"""Memory that attention needs beyond its inputs, in a fresh process for each size: `memory ours|peer LENGTH`."""

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

HEADS, DIM, KIND = 8, 64, "1x8xLx64, bfloat16, causal"
LENGTHS = (2048, 4096, 8192, 16384)


def table() -> list[dict]:
    """Extra bytes at the peak by length, output included, beside the size of the score matrix."""
    return [
        {
            "length": length,
            "ours_bytes": _in_fresh_process("ours", length),
            "peer_bytes": _in_fresh_process("peer", length),
            "output_bytes": HEADS * length * DIM * 2,
            "scores_bytes": HEADS * length * length * 4,
        }
        for length in LENGTHS
    ]


def _in_fresh_process(which: str, length: int) -> int:
    command = [sys.executable, "-m", "benchmarks.memory", which, str(length)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def extra(which: str, length: int) -> int:
    """How much the peak of this process grows by one call."""
    import torch

    import torch_mtl4

    def call(size: int):
        q, k, v = (torch.full((1, HEADS, size, DIM), 0.5, dtype=torch.bfloat16) for _ in range(3))
        before = _peak()
        if which == "ours":
            torch_mtl4.flash_attention(q, k, v, causal="upper_left")
        else:
            torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return _peak() - before

    call(256)  # threads and code are in place
    return call(length)


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss starts from what the process that started this one held
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    print(extra(sys.argv[1], int(sys.argv[2])))
