"""`python -m torch_mtl4 selftest`: what runs here, is it right, how fast is it; one file to attach to a bug report."""

import argparse
import json
import traceback
from datetime import datetime, timezone
from pathlib import Path

import torch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("--device", choices=["cpu", "mps"], action="append", help="only on this device (default: all)")
    parser.add_argument("--no-timings", action="store_true", help="check only")
    parser.add_argument("--report", metavar="FILE", default="torch_mtl4-selftest.json", help="where the report goes")


def run(arguments: argparse.Namespace) -> int:
    """Runs the self-test; returns 0, 1 if a check failed, 2 if a device that was asked for is not there."""
    import torch_mtl4
    from torch_mtl4 import machine
    from torch_mtl4.selftest import checks, timings

    status = torch_mtl4.backend_status()
    for name, backend in status.items():
        print(f"{name}: {'yes' if backend.available else 'no'}, {backend.detail}")
    devices = arguments.device or [name for name in ("cpu", "mps") if status[name].available]
    for device in devices:
        if not status[device].available:
            print(f"selftest: expected device {device} to be available, got: {status[device].detail}")
            return 2

    torch.manual_seed(0)
    report = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "backends": {name: backend._asdict() for name, backend in status.items()},
        "checks": [],
        "timings": [],
    }
    for device in devices:
        results = [_checked(check, device) for check in checks.checks()]
        report["checks"] += results
        failed = [result for result in results if result["error"] is not None]
        for result in failed:
            print(f"  FAILED {result['name']}: {result['error'].strip().splitlines()[-1]}")
        print(f"{device}: {len(results) - len(failed)} of {len(results)} checks passed")
        for pair in () if arguments.no_timings else timings.pairs(device):
            line = {"device": device, **timings.measure(pair, device)}
            report["timings"].append(line)
            print(f"  {line['ratio']:6.2f}x  {line['ours_ms']:8.3f} ms  {line['name']}")
    Path(arguments.report).write_text(json.dumps(report, indent=1) + "\n")
    print(f"report: {arguments.report}")
    return int(any(result["error"] is not None for result in report["checks"]))


def _checked(check, device: str) -> dict:
    try:
        check.run(device)
    except Exception:  # of any kind: the report tells
        return {"device": device, "name": check.name, "error": traceback.format_exc()}
    return {"device": device, "name": check.name, "error": None}
