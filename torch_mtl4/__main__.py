"""`python -m torch_mtl4 <command>`: runs a command of the package."""

import argparse
import sys
from importlib import import_module

# name: (module with add_arguments(parser) and run(arguments) -> exit code, one line of help)
COMMANDS = {
    "demo": ("torch_mtl4.demo.cli", "stock PyTorch beside torch_mtl4 on a real language model and a real encoder"),
    "selftest": (
        "torch_mtl4.selftest.cli",
        "check and time the ops on every device of this machine; writes a report",
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Runs the command that argv names and returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m torch_mtl4", description="Tools of torch_mtl4.")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name in argv[:1]:  # the other commands' modules stay unloaded
            import_module(module).add_arguments(command)
    arguments = parser.parse_args(argv)
    return import_module(COMMANDS[arguments.command][0]).run(arguments)


if __name__ == "__main__":
    sys.exit(main())
