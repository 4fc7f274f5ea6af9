"""The command line: `check` a source, `run` a kernel and look for its bugs, count what it `cost`s.

Exit codes: 0 clean, 1 findings, 2 the command or the source is wrong.
"""

import argparse
import json
import sys

from ..errors import CompileError, MslError
from ..frontend import MslSyntaxError
from ..kernel import LAYOUTS
from ..tiers import DEFAULT_TIER
from . import commands

CLEAN, FINDINGS, WRONG = 0, 1, 2

_ARGUMENTS = """
arguments of the kernel, by name or index:
  --buffer x=64x1000              64 x 1000 elements of the parameter's type: random ones if the kernel only
                                  reads them, else undefined, as an output is
  --buffer x=float16:64x1000      ... of that type, where the parameter does not name one
  --buffer x=64x1000:zeros        ... filled: zeros, ones, arange, normal, or a number
  --buffer x=input.npy            contents of a file
  --value n=1000                  a number; several for a vector, with types for a struct: --value p=uint32:7,float32:.5
"""


def main(argv: list[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        outcome = options.command(options)
    except CompileError as error:
        return _wrong(options, "does not compile", error.diagnostics.strip())
    except (MslError, MslSyntaxError, ValueError, TypeError, NotImplementedError, OSError) as error:
        return _wrong(options, "error", str(error))
    if options.json:
        print(json.dumps(outcome.as_dict(), indent=2))
    else:
        from .render import show

        show(outcome)
    return FINDINGS if outcome.findings else CLEAN


def _wrong(options, what: str, text: str) -> int:
    if options.json:
        print(json.dumps({"error": text}, indent=2))
    else:
        print(f"{options.source}: {what}: {text}", file=sys.stderr)
    return WRONG


def _parser() -> argparse.ArgumentParser:
    source = argparse.ArgumentParser(add_help=False)
    source.add_argument("source", metavar="kernel.metal")
    source.add_argument("-I", "--include", action="append", default=[], metavar="DIR", help="directory for #include")
    source.add_argument("-D", "--define", action="append", default=[], metavar="NAME[=VALUE]", help="macro")
    source.add_argument("--constant", action="append", default=[], metavar="KEY=VALUE", help="function constant")
    source.add_argument("--only", metavar="REGEX", help="of the kernels, only those")
    source.add_argument("--tier", default=DEFAULT_TIER, help="operating system, default %(default)s")
    source.add_argument("--json", action="store_true", help="machine-readable output")

    launch = argparse.ArgumentParser(add_help=False)
    launch.add_argument("-k", "--kernel", help="its name; may be left out if there is only one")
    launch.add_argument("--groups", metavar="NxN", help="threadgroups per grid")
    launch.add_argument("--threads", metavar="NxN", help="threads per grid, instead of --groups")
    launch.add_argument("--threadgroup", metavar="NxN", required=True, help="threads per threadgroup")
    launch.add_argument("-b", "--buffer", action="append", default=[], metavar="KEY=SPEC")
    launch.add_argument("-v", "--value", action="append", default=[], metavar="KEY=NUMBER")
    launch.add_argument("--threadgroup-memory", action="append", default=[], metavar="INDEX=BYTES")
    launch.add_argument("--layout", choices=[*LAYOUTS, "all"], default="m5", help="of cooperative tensors")

    parser = argparse.ArgumentParser(prog="python -m torch_mtl4.msl", description=__doc__)
    commands_ = parser.add_subparsers(required=True, metavar="check|run|cost")
    kind = argparse.RawDescriptionHelpFormatter

    check = commands_.add_parser("check", parents=[source], help="compile, and look for what Apple's compiler refuses")
    check.set_defaults(command=commands.check)
    run = commands_.add_parser(
        "run", parents=[source, launch], help="run a kernel and look for bugs", epilog=_ARGUMENTS, formatter_class=kind
    )
    run.add_argument(
        "--orders", type=int, default=2, metavar="N", help="besides the plain order of threads, N random ones"
    )
    run.add_argument("--fast", action="store_true", help="no checks except guard pages")
    run.add_argument("--save", action="append", default=[], metavar="KEY=FILE", help="write a buffer to a .npy file")
    run.set_defaults(command=commands.run)
    cost = commands_.add_parser(
        "cost", parents=[source, launch], help="count what a dispatch does", epilog=_ARGUMENTS, formatter_class=kind
    )
    cost.add_argument("--per", type=int, metavar="N", help="also divided by N outputs")
    cost.add_argument("--baseline", metavar="FILE", help="compare with what an earlier --json has printed")
    cost.set_defaults(command=commands.cost)
    return parser
