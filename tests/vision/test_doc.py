"""docs/vision.md: its Python runs as written and prints what it shows."""

from tests.documents import blocks_of, run


def test_python_runs_and_prints_what_it_shows():
    printed, shown = run(blocks_of("docs/vision.md"), "vision.md")
    assert printed == [block for _, block in shown] and len(printed) == 3
