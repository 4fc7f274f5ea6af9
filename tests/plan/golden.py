"""Plans as short text, one line a pass, for tests that state what a GPU is to run."""

import json
import struct

DEVICES = {
    "M1 macOS 14": "g13g macos14",
    "M2 Pro macOS 15": "g14s macos15",
    "M4 Max macOS 26.0": "g16s macos26.0",
    "M4 Max macOS 26.2": "g16s macos26.2 tensor_ops",
    "M4 Max macOS 27": "g16s macos27 tensor_ops scale_planes",
    "M5 macOS 26.0": "g17g macos26.0",
    "M5 macOS 26.2": "g17g macos26.2 tensor_ops",
    "M5 Max macOS 26.2": "g17s macos26.2 tensor_ops",
    "M5 Max macOS 27": "g17s macos27 tensor_ops scale_planes",
    "M6 macOS 27": "g18g macos27 tensor_ops scale_planes",
}


def summary(plan):
    """`language`, scratch, and per pass: kernel{constants}(arguments) groups x threads params as 64-bit integers."""
    plan = json.loads(plan)
    scratch = [f"{name}: {size} bytes" for name, size in plan["scratch"]]
    return [f"{plan['source']} {plan['language']}", *scratch, *map(_pass, plan["passes"])]


def _pass(step):
    constants = ", ".join(f"{name}={value}".lower() for _, name, value in step["constants"])
    indices = [index for index, _ in step["arguments"]]
    assert len({*indices, step["params"][0]}) == len(indices) + 1, "an index is bound twice"
    arguments = ", ".join(name for _, name in step["arguments"])
    data = bytes.fromhex(step["params"][1])
    params = list(struct.unpack(f"<{len(data) // 8}q", data))
    groups, threads = ("x".join(map(str, step[key])) for key in ("groups", "threads"))
    return f"{step['kernel']}{{{constants}}}({arguments}) {groups} groups of {threads}, {params}"
