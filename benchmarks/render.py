"""Writes the tables of the pages from the measurements' JSON files: `python benchmarks/render.py [--check]`.

In the text, a table stands between `<!-- table: FILE -->` and `<!-- end of table -->`. Needs only Python itself.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = "README.md", "docs/msl_cost.md", "docs/coreai.md"
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def markdown(result: dict) -> str:
    """Returns the text for one result: of the benchmarks, of the demo, or of counting."""
    if result.get("kind") == "msl_cost":
        return _costs(result)
    if result.get("kind") == "coreai":
        return _coreai(result)
    return _demo(result) if "models" in result else _benchmarks(result)


def _machine(result: dict) -> str:
    facts = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return f"{facts['processor']}, {facts['threads']} threads, {facts['system']}, {versions}"


def _benchmarks(result: dict) -> str:
    roof = result["roofline"]
    isa = result["machine"]["isa"]["torch_mtl4"]
    lines = [
        f"{_machine(result)}; instruction set {isa}; commit {result['commit']}{' (modified)' * result['modified']}, "
        f"{result['date']}. At best torch reads {roof['read_gb_s']:.0f} GB/s and multiplies "
        f"{roof['float32_gflop_s']:.0f} GFLOP/s in float32, {roof['bfloat16_gflop_s']:.0f} in bfloat16.",
        "",
        "| op | work | dtype | ms | peer's ms | speed-up | goal | of roofline |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for case in result["cases"]:
        goal = (
            "" if case["goal"] is None else f"{case['goal']:g}x{'' if case['ratio'] >= case['goal'] else ' (missed)'}"
        )
        lines.append(
            f"| `{case['op']}` | {case['name']} | {case['dtype']} | {_ms(case['ours_ms'])} | {_ms(case['peer_ms'])} "
            f"| {case['ratio']:.2f}x | {goal} | {case['of_roofline']:.0%} |"
        )
    peers = {case["op"]: case["peer"] for case in result["cases"]}
    lines += ["", "Peers: " + "; ".join(f"`{op}`: `{peer}`" for op, peer in peers.items()) + ". Medians (quartiles)."]
    if "memory" in result:
        lines += ["", *_memory(result["memory"])]
    return "\n".join(lines)


def _ms(times: dict) -> str:
    return f"{times['median_ms']:.3g} ({times['low_ms']:.3g} to {times['high_ms']:.3g})"


def _memory(memory: dict) -> list[str]:
    head = f"| extra memory at the peak of attention, {memory['kind']} | output itself | ours | torch | score matrix |"
    rows = [
        f"| L = {row['length']} | {_mb(row['output_bytes'])} | {_mb(row['ours_bytes'])} | {_mb(row['peer_bytes'])} "
        f"| {_mb(row['scores_bytes'])} |"
        for row in memory["lengths"]
    ]
    return [head, "|---|---:|---:|---:|---:|", *rows]


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"


def _demo(result: dict) -> str:
    parts = [f"{_machine(result)}. `make demo` took {result['seconds']:.0f} s."]
    for model in result["models"]:
        columns = len(model["table"]["titles"])
        parts += ["", f"**{model['name']}** ({model['kind']}, {model['dtype']})", ""]
        parts += ["| | " + " | ".join(model["table"]["titles"]) + " |", "|---|" + "---:|" * columns]
        parts += ["| " + " | ".join(row) + " |" for row in model["table"]["rows"]]
    return "\n".join([*parts, "", result["models"][0]["table"]["caption"]])


def more(case: dict) -> list[str]:
    """In which of bytes and barriers our kernel, the first of a counted case, is over 1 % above the best of its peers.

    Less than that is the logarithm of the softmax's denominator, which only ours gives.
    """
    measures = {
        "device bytes": lambda kernel: (kernel["device_read"] + kernel["device_written"]) / kernel["outputs"],
        "threadgroup barriers": lambda kernel: kernel["threadgroup_barriers"] / kernel["outputs"],
    }
    ours, *peers = case["kernels"]
    return [name for name, of in measures.items() if of(ours) > 1.01 * min(map(of, peers))]


def per_output(kernel: dict) -> list[str]:
    """The counts of a kernel for an output element, as `COUNTS` names them."""

    def of(*names: str, scale: int = 1) -> str:
        count = scale * sum(kernel[name] for name in names) / kernel["outputs"]
        return f"{count:.3g}" if count < 100 else f"{count:,.0f}"

    return [
        f"{of('device_read')} ({of('device_read_unique')})",
        of("device_written"),
        of("threadgroup_read", "threadgroup_written"),
        of("threadgroup_barriers", scale=1000),
        of("simdgroup_barriers", scale=1000),
        of("multiply_accumulates"),
        of("simdgroup_operations"),
    ]


COUNTS = (
    "device bytes read (unique)", "device bytes written", "threadgroup bytes", "threadgroup barriers / 1000",
    "simdgroup barriers / 1000", "multiply-accumulates", "simdgroup operations",
)  # fmt: skip


def _costs(result: dict) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in result["packages"].items())
    lines = [
        f"Commit {result['commit']}{' (modified)' * result['modified']}, {result['date']}; {packages}; "
        f"{result['compiler']}. {result['scaled']}",
        "",
        "| case | kernel | " + " | ".join(COUNTS) + " |",
        "|---|---|" + "---:|" * len(COUNTS),
    ]
    for case in result["cases"]:
        marks, title = more(case), f"`{case['op']}` {case['shape']}, {case['tier']}"
        for i, kernel in enumerate(case["kernels"]):
            name = kernel["name"] + f" **(more {' and '.join(marks)})**" * bool(marks and not i)
            lines.append(f"| {'' if i else title} | {name} | " + " | ".join(per_output(kernel)) + " |")
    return "\n".join(lines)


def _coreai(result: dict) -> str:
    size, medians, runs = result["model"], result["medians"], result["runs"]["ours"]
    packages = ", ".join(f"{name} {number}" for name, number in result["packages"].items())
    lines = [
        f"{_machine(result)}, {packages}; commit {result['commit']}{' (modified)' * result['modified']}, "
        f"{result['date']}; load of the machine at the start {result['load']:.1f}. A Llama of "
        f"{runs[0]['parameters'] / 1e6:.0f} M float16 parameters ({size['layers']} layers, hidden size "
        f"{size['hidden']}), {size['tokens']} tokens; medians of {len(runs)} runs, each in a process of its own, in "
        "turns.",
        "",
        "| export | stock | ours | ratio | goal |",
        "|---|---:|---:|---:|---:|",
    ]
    for key, name in _COREAI.items():
        goal = result["goals"].get(key)
        ratio = result["ratios"][key]
        missed = " (missed)" if goal is not None and ratio > goal else ""
        lines.append(
            f"| {name} | {medians['stock'][key]:.4g} | {medians['ours'][key]:.4g} | {ratio:.2f} "
            f"| {'' if goal is None else f'{goal:g}'}{missed} |"
        )
    steps = result["runs"]["ours"][-1]["steps"]
    lines += [
        "",
        "Ours, the last run: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in steps.items()) + ".",
    ]
    return "\n".join(lines)


_COREAI = {
    "seconds": "seconds from the model to the file",
    "cpu_seconds": "the same, of processor time",
    "peak_mb": "peak memory of the process, MB",
    "asset_mb": "size of the file, MB",
}


def main(arguments: list[str]) -> int:
    """Rewrites the pages, or with --check only tells whether they are as the files say."""
    return max(_page(page, arguments == ["--check"]) for page in PAGES)


def _page(page: str, check: bool) -> int:
    path = ROOT / page
    text = path.read_text()

    def fill(match: re.Match) -> str:
        return match[1] + markdown(json.loads((ROOT / match[2]).read_text())) + "\n" + match[3]

    rendered = TABLE.sub(fill, text)
    if check:
        if rendered != text:
            print(
                f"{page}: its tables differ from benchmarks/results; run python benchmarks/render.py", file=sys.stderr
            )
        return int(rendered != text)
    path.write_text(rendered)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
