"""Mistakes in bodies, and in the text around them, that must not pass: each is made and must be noticed."""

import pytest
import torch

from torch_mtl4 import msl, testing
from torch_mtl4.custom import launch, runner
from torch_mtl4.custom.source import HANDLE, INLINE

from . import kernels as examples

BODY = [
    ("threadgroup_barrier(mem_flags::mem_threadgroup);", ""),
    ("threadgroup_barrier(mem_flags::mem_threadgroup);", "simdgroup_barrier(mem_flags::mem_threadgroup);"),
    ("[TILE + 1]", "[TILE - 1]"),
    ("tile[local.y][local.x] = ", "tile[local.x][local.y] = "),
    ("tile[row][column]", "tile[row][column + 1]"),
    ("x[p.x, p.y]", "x[p.x + 1, p.y]"),
    ("x[p.x, p.y]", "x[p.x, min(p.y, 6u)]"),
    ("p - local", "p + local"),
    ("t % size.y", "t % size.x"),
    ("t / size.y", "t / 8"),
    ("out[first.y + row, first.x + column]", "out[first.x + column, first.y + row]"),
    ("out[", "if (t < 40) out["),
]


@pytest.mark.parametrize(("right", "wrong"), BODY)
def test_a_mistake_in_a_body(right, wrong):
    assert examples.TRANSPOSE.count(right) == 1
    assert not examples.transpose_of(examples.TRANSPOSE.replace(right, wrong)).check(testing.randn(9, 12))


TEXT = [
    ("mtl4_layout[0]", "mtl4_layout[1]"),  # sizes the other way round
    ("mtl4_layout[3]", "mtl4_layout[0]"),  # rows as if they were dense
    ("mtl4_layout[5]", "mtl4_layout[1]"),
    ("mtl4_layout[7]", "mtl4_layout[6]"),
    ("[[buffer(0)]]", "[[buffer(1)]]"),
    ("using T = float", "using T = half"),
    ("TILE = 8", "TILE = 4"),
]


def run_inline(edit, threads=None):
    """Whether the inline text, edited, transposes a slice of a buffer with rows apart."""
    example, x = examples.transpose(), testing.lay_out(testing.randn(9, 12), "poisoned")
    text, out = example.specialize((x,)), torch.empty(12, 9)
    try:
        library = msl.compile(edit(text.text(INLINE)), name="mutant", tier=runner.TIER)
        grid = example.launch(x)
        result = runner.dispatch(library, text, {"x": x, "out": out}, threads or grid, INLINE)
    except (msl.MslError, ValueError):
        return False
    return not result.report and torch.equal(out, x.mT)


@pytest.mark.parametrize(("right", "wrong"), TEXT)
def test_a_mistake_in_the_text_around_it(right, wrong):
    def edit(text):
        assert right in text
        return text.replace(right, wrong, 1)

    assert not run_inline(edit)


def test_without_a_mistake_nothing_is_noticed():
    assert run_inline(lambda text: text)


def test_a_grid_that_is_rounded_up_is_noticed():
    rounded = launch.Launch((16, 16, 1), (8, 8, 1))
    assert not run_inline(lambda text: text, rounded)


def test_a_form_has_the_body_and_the_helpers_as_they_are():
    kernel = examples.make(
        ["x"], ["out"], "out[i] = twice(x[i]); // the last line", twice_reference, helpers="#define N 2\n"
        "inline float twice(float x) { return N * x; } // and here",
    )  # fmt: skip
    for form in (HANDLE, INLINE):
        lines = kernel.source(torch.ones(2), form=form).split("\n")
        for part in (kernel.definition.source, *kernel.definition.helpers.split("\n")):
            assert lines.count(part) == 1
    assert kernel.check(torch.ones(2))


def twice_reference(x: torch.Tensor) -> torch.Tensor:
    return 2 * x
