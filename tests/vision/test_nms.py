"""torch_mtl4.vision.nms, batched_nms and nms_padded on the CPU: values by hand, torchvision's, and errors."""

import inspect
import math

import pytest
import torch

from tests.vision.boxes import RECORDED, clusters, recorded
from torch_mtl4 import vision
from torch_mtl4.reference import nms as reference
from torch_mtl4.testing import LAYOUTS, lay_out

# IoU of boxes 0 and 1: 1/2, of 0 and 2: 1/4, of 1 and 2: 1/2.
BY_HAND = torch.tensor([[0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 1, 1], [9, 9, 9, 9]]).float()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (0.5, [0, 1, 2, 3]),
        (0.49, [0, 2, 3]),
        (0.25, [0, 2, 3]),
        (0.2, [0, 3]),
        (0, [0, 3]),
        (1, [0, 1, 2, 3]),
        (-1, [0]),
    ],
)
def test_values_by_hand(dtype, threshold, kept):
    scores = torch.tensor([4, 3, 2, 1]).to(dtype)
    for function in (vision.nms, reference.nms):
        result = function(BY_HAND.to(dtype), scores, threshold)
        # The box without an area has 0 / 0 with itself alone; -1 is below every ratio.
        assert result.tolist() == kept and result.dtype == torch.int64


def test_a_suppressed_box_suppresses_none():
    boxes = torch.tensor([[0, 0, 10, 1], [4, 0, 14, 1], [8, 0, 18, 1]]).float()  # each overlaps the next one by 6 of 14
    assert vision.nms(boxes, torch.tensor([3.0, 2, 1]), 0.4).tolist() == [0, 2]
    assert vision.nms(boxes, torch.tensor([2.0, 3, 1]), 0.4).tolist() == [1]


def test_order_of_scores():
    boxes = 10 * torch.arange(8.0)[:, None] + torch.tensor([0.0, 0, 1, 1])
    scores = torch.tensor([1, math.nan, math.inf, -math.inf, math.nan, 0.0, -0.0, 0.0])
    assert vision.nms(boxes, scores, 0.5).tolist() == [1, 4, 2, 0, 5, 6, 7, 3]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{case['about']}, {case['dtype']}")
def test_what_torchvision_answers(case):
    (boxes, scores, idxs), threshold = recorded(case), case["iou_threshold"]
    assert vision.nms(boxes, scores, threshold).tolist() == case["kept"]
    assert reference.nms(boxes, scores, threshold).tolist() == case["kept"]
    kept = vision.batched_nms(boxes, scores, idxs, threshold)
    assert sorted(kept.tolist()) == case["kept_of_categories"]
    assert torch.equal(kept, reference.batched_nms(boxes, scores, idxs, threshold))
    apart = boxes + (idxs.to(boxes.dtype) * (boxes.max() + 1))[:, None]
    assert vision.nms(apart, scores, threshold).tolist() == case["kept_with_offsets"]


def test_the_recorded_cases_have_what_they_are_for():
    assert any(math.isnan(score) for case in RECORDED for score in case["scores"])
    assert any(math.isnan(x) for case in RECORDED for box in case["boxes"] for x in box)
    edges = [case for case in RECORDED if "edge" in case["about"]]
    for case in edges:  # a threshold that was rounded to the nearest float32 would answer otherwise, on some pair
        rounded = torch.tensor(case["iou_threshold"], dtype=torch.float32).item()
        assert reference.float32_below(case["iou_threshold"]) < rounded
    assert len(edges) >= 5
    assert any(case["kept_with_offsets"] != case["kept_of_categories"] for case in RECORDED)


@pytest.mark.parametrize("threshold", [0.3, 1 / 3, 1e-45, 0.0, -0.1, 1e-320, -1e300, 2**-149, 1.0, 16777217.0])
def test_the_threshold_as_a_float32(threshold):
    below = reference.float32_below(threshold)
    assert torch.tensor(below, dtype=torch.float32).item() == below
    assert below <= threshold or below == torch.finfo(torch.float32).min
    above = torch.nextafter(torch.tensor(below, dtype=torch.float32), torch.tensor(math.inf)).item()
    assert above > threshold


@pytest.mark.parametrize("n", [255, 256, 257, 1300])
def test_blocks_of_the_cpu(n):
    boxes, scores, idxs = clusters(n)
    assert torch.equal(vision.nms(boxes, scores, 0.3), reference.nms(boxes, scores, 0.3))
    assert torch.equal(vision.batched_nms(boxes, scores, idxs, 0.3), reference.batched_nms(boxes, scores, idxs, 0.3))


def test_a_chain_as_long_as_a_block():
    # Each box suppresses the next one alone: every second one is kept, which takes a step of the iteration a box.
    x = 3.0 * torch.arange(600)
    boxes = torch.stack((x, x * 0, x + 10, x * 0 + 1), 1)  # overlaps 7 of 13, 4 of 16
    assert vision.nms(boxes, -x, 0.5).tolist() == list(range(0, 600, 2))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    boxes, scores, idxs = clusters(70)
    want = vision.batched_nms(boxes, scores, idxs, 0.3)
    scores, idxs = (lay_out(t[None], layout)[0] for t in (scores, idxs))
    assert torch.equal(vision.batched_nms(lay_out(boxes, layout), scores, idxs, 0.3), want)


def test_expanded_boxes():
    boxes, scores = torch.tensor([[0.0, 0, 1, 1]]).expand(5, 4), torch.ones(1).expand(5)
    assert vision.nms(boxes, scores, 0.5).tolist() == [0]


@pytest.mark.parametrize("idxs", [None, torch.zeros(0, dtype=torch.int64)])
def test_no_boxes(idxs):
    boxes, scores = torch.zeros(0, 4), torch.zeros(0)
    assert vision.nms(boxes, scores, 0.5).shape == (0,)
    indices, count = vision.nms_padded(boxes, scores, 0.5, idxs)
    assert indices.shape == (0,) and count.tolist() == [0] and indices.dtype == count.dtype == torch.int32


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_padded(dtype):
    boxes, scores, idxs = clusters(40)
    for given, kept in (
        (None, reference.nms(boxes, scores, 0.3)),
        (idxs.to(dtype), reference.batched_nms(boxes, scores, idxs, 0.3)),
    ):
        indices, count = vision.nms_padded(boxes, scores, 0.3, given)
        assert indices.tolist() == kept.tolist() + [-1] * (40 - len(kept)) and count.tolist() == [len(kept)]
        assert indices.dtype == count.dtype == torch.int32


def test_categories_beyond_int32_are_not_mixed_on_the_cpu():
    boxes = torch.tensor([[0.0, 0, 1, 1]] * 2)
    assert vision.batched_nms(boxes, torch.ones(2), torch.tensor([0, 2**32]), 0.5).tolist() == [0, 1]


def test_no_gradient_flows():
    boxes, scores, _ = clusters(5)
    for result in (vision.nms(boxes.requires_grad_(), scores, 0.5), *vision.nms_padded(boxes, scores, 0.5)):
        assert not result.requires_grad


BOXES, SCORES, IDXS = clusters(3)
BAD = {
    "boxes a list": (([[0.0] * 4], SCORES, 0.5), TypeError, r"expected boxes a torch.Tensor, got list"),
    "whole boxes": ((BOXES.long(), SCORES.long(), 0.5), TypeError, r"boxes of dtype float32, .* got torch.int64"),
    "boxes [N, 5]": ((torch.zeros(3, 5), SCORES, 0.5), ValueError, r"expected boxes \[N, 4\], got \[3, 5\]"),
    "boxes [4]": ((torch.zeros(4), SCORES, 0.5), ValueError, r"expected boxes \[N, 4\], got \[4\]"),
    "fewer scores": ((BOXES, SCORES[:2], 0.5), ValueError, r"expected scores \[N\] = \[3\], got \[2\]"),
    "scores [N, 1]": ((BOXES, SCORES[:, None], 0.5), ValueError, r"expected scores \[N\] = \[3\], got \[3, 1\]"),
    "mixed dtypes": ((BOXES, SCORES.half(), 0.5), TypeError, r"dtype of boxes, torch.float32, got torch.float16"),
    "another device": ((BOXES, SCORES.to("meta"), 0.5), ValueError, r"scores on the device of boxes, cpu, got meta"),
    "no threshold": ((BOXES, SCORES, None), TypeError, r"expected iou_threshold a number, got NoneType"),
    "a tensor": ((BOXES, SCORES, torch.tensor(0.5)), TypeError, r"expected iou_threshold a number, got Tensor"),
    "NaN": ((BOXES, SCORES, math.nan), ValueError, r"expected iou_threshold finite, got nan"),
    "too many": (
        (torch.zeros(65537, 4, device="meta"), torch.zeros(65537, device="meta"), 0.5),
        NotImplementedError,
        r"expected at most 65536 boxes on a GPU, got 65537",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["nms", "nms_padded"])
@pytest.mark.parametrize("what", BAD)
def test_errors(name, what):
    arguments, error, message = BAD[what]
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        getattr(vision, name)(*arguments)


@pytest.mark.parametrize("name", ["batched_nms", "nms_padded"])
@pytest.mark.parametrize(
    ("idxs", "error", "message"),
    [
        (IDXS.float(), TypeError, r"expected idxs of an integer dtype, got torch.float32"),
        (IDXS.bool(), TypeError, r"expected idxs of an integer dtype, got torch.bool"),
        (IDXS[:2], ValueError, r"expected idxs \[N\] = \[3\], got \[2\]"),
        ([0, 1, 2], TypeError, r"expected idxs a torch.Tensor, got list"),
    ],
)
def test_errors_of_categories(name, idxs, error, message):
    function = getattr(vision, name)
    by_name = {"boxes": BOXES, "scores": SCORES, "iou_threshold": 0.5, "idxs": idxs}
    with pytest.raises(error, match=f"^{name}: {message}"):
        function(**by_name)


def test_batched_nms_needs_categories():
    with pytest.raises(TypeError, match=r"^batched_nms: expected idxs a torch.Tensor, got NoneType"):
        vision.batched_nms(BOXES, SCORES, None, 0.5)


@pytest.mark.parametrize("name", ["nms", "batched_nms", "nms_padded"])
def test_reference_has_the_signature(name):
    assert inspect.signature(getattr(reference, name)) == inspect.signature(getattr(vision, name))
