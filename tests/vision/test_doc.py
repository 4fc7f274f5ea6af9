"""docs/vision.md: its Python runs as written and prints what it shows."""

import contextlib
import io
import re
from pathlib import Path

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (Path(__file__).parents[2] / "docs/vision.md").read_text(), re.M | re.S)


def test_python_runs_and_prints_what_it_shows():
    names, printed, shown = {}, [], []
    for kind, block in BLOCKS:
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block, "vision.md", "exec"), names)
            printed.append(out.getvalue())
        else:
            shown.append(block)
    assert printed == shown and len(printed) == 3
