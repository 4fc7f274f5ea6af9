"""Verification finds what is wrong in a saved asset: texts, operands, grids, sizes, references."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("coreai_torch", reason="Core AI is not installed: pip install torch_mtl4[coreai]")


from tests.export.apple_kernels import change, set_text
from torch_mtl4.export.coreai._apple import InsertionPoint, ir
from torch_mtl4.export.coreai.verify import Expected, ExportVerificationError, Verification, check_texts, verify


@pytest.fixture
def case(rows, tmp_path):
    made = rows.copied_to(tmp_path)
    expected = Expected({"x": made.x}, {}, {"y": made.model(made.x).detach()}, {"y": 1e-4})
    return SimpleNamespace(path=made.path, records=made.records, expected=[expected], name=made.name)


def verified(case, **options) -> Verification:
    result = Verification()
    check_texts(case.path, case.records)
    verify(case.path, case.records, case.expected, result, **options)
    return result


def test_what_is_right_passes_and_is_noted(case):
    result = verified(case)
    assert result.kernels == [case.name] and not result.skipped
    error, allowed = result.outputs["y"]
    assert 0 <= error <= allowed == 1e-4


def test_without_the_run_of_the_model_kernels_are_checked_on_drawn_operands(case):
    result = verified(case, run_model=False)
    assert result.kernels == [case.name] and not result.outputs


def test_a_large_kernel_is_skipped_and_noted(case):
    result = verified(case, flops=10)
    assert not result.kernels and case.name in result.skipped[0] and "bounded" in result.skipped[0]
    assert len(result.skipped) == 1 and "y" in result.outputs


def test_a_text_that_is_not_the_one_that_was_emitted(case):
    change(case.path, lambda op: set_text(op, "x[i.x, i.y] * w[i.x]", "x[i.x, i.y] + w[i.x]"))
    with pytest.raises(ExportVerificationError, match=rf"{case.name}: expected the text that was emitted"):
        check_texts(case.path, case.records)


def test_a_kernel_that_nobody_emitted(case):
    with pytest.raises(ExportVerificationError, match=f"{case.name}: expected a kernel that this export emitted"):
        check_texts(case.path, {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x[i.x, i.y] * w[i.x]", "x[i.x, i.y] + w[i.x]", r"result 0 on \[\[8, 24\], \[24\]\].* at \[0, 0\] expected"),
        ("most = max(most", "most = min(most", r"result 1 on .* at \[0\] expected"),
        ("if (i.x != 0) return;", "if (i.x != 0 || i.y == 3) return;", "unwritten-output"),
        ("largest[i.y] = most;", "largest[i.y + 1] = most;", "out-of-bounds"),
        ("if (i.x != 0) return;", "if (i.x > 1) return; largest[i.y] = i.x;", "race"),
        ("float most", "flaot most", "does not compile as macos27"),
    ],
)
def test_a_kernel_that_is_wrong_on_the_runner(case, old, new, message):
    for record in case.records.values():
        assert old in record.text
        record.text = record.text.replace(old, new)
    change(case.path, lambda op: set_text(op, old, new))
    with pytest.raises(ExportVerificationError, match=rf"(?s){case.name}.*{message}"):
        verified(case)


def test_a_wrong_reference(case):
    for record in case.records.values():
        record.reference = lambda x, w: (x * w, x.amin(-1))
    with pytest.raises(ExportVerificationError, match=f"{case.name}: result 1 on"):
        verified(case)


def test_a_reference_that_does_not_fit_the_file(case):
    for record in case.records.values():
        record.reference = lambda x, w: x * w
    with pytest.raises(ExportVerificationError, match=f"{case.name}: expected 2 results"):
        verified(case)


def _constant(values, op):
    with InsertionPoint(op):
        return ir.constant(torch.tensor(values).to(torch.uint32).numpy())


def test_a_grid_that_is_too_small(case):
    def cut(op):
        op.operands[2] = _constant([24, 7, 1], op)

    change(case.path, cut)
    with pytest.raises(ExportVerificationError, match=rf"(?s){case.name}.*unwritten-output"):
        verified(case)


def test_sizes_that_the_file_announces_wrongly(case):
    def cut(op):
        op.operands[5] = _constant([7], op)

    change(case.path, cut)
    with pytest.raises(ExportVerificationError, match=r"expected the sizes \[8\] of result 1, the asset announces"):
        verified(case)


def test_operands_that_are_not_the_model_s(case):
    first = []

    def feed_the_second_call_what_the_first_had(op):
        first.append(op.operands[0])
        op.operands[0] = first[0]

    change(case.path, feed_the_second_call_what_the_first_had)
    with pytest.raises(ExportVerificationError, match=r"output y: allowed error .* at \[0, 0\] expected"):
        verified(case)


def test_an_output_that_is_missing(case):
    case.expected[0].outputs["z"] = torch.zeros(3)
    with pytest.raises(ExportVerificationError, match="output z: the asset does not have it"):
        verified(case)
