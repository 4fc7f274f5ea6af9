"""Documents whose Python runs as written and prints what they show."""

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path


def blocks_of(path: str) -> list[tuple[str, str]]:
    """(language, text) of the code blocks of a document, by its path in the repository."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (Path(__file__).parents[1] / path).read_text(), re.M | re.S)


def run(blocks: Sequence[tuple[str, str]], name: str) -> tuple[list[str], list[tuple[int, str]]]:
    """What each block of Python printed, and what is shown: (the block before it, its text)."""
    names, printed, shown = {}, [], []
    for kind, block in blocks:
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block, name, "exec"), names)
            printed.append(out.getvalue())
        else:
            assert kind == "text"
            shown.append((len(printed) - 1, block))
    return printed, shown
