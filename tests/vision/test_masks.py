"""postprocess_masks, masks_to_boxes and stability_scores: by the references and by the kernels in the MSL runner."""

import inspect
import math

import pytest
import torch
import torch.nn.functional as F

from tests.vision.mutants import mutant, noticed, without_barrier
from torch_mtl4 import vision
from torch_mtl4.custom import on_cpu
from torch_mtl4.reference import masks as reference
from torch_mtl4.testing import LAYOUTS, lay_out, randn
from torch_mtl4.vision import kernels

WAYS = pytest.mark.parametrize("way", ["reference", "msl"])
SIZES = [
    ((1, 1, 1), (1, 1)),
    ((1, 1, 1), (5, 33)),
    ((2, 3, 5), (7, 9)),
    ((3, 8, 8), (9, 65)),
    ((2, 20, 20), (5, 7)),
    ((1, 32, 24), (120, 100)),
    ((2, 9, 40), (20, 300)),
    ((1, 7, 7), (7, 7)),
]


def same_but_at_the_threshold(masks, logits, size, threshold) -> bool:
    """Whether pixels differ from F.interpolate's only where its value is a few roundings from the threshold.

    PyTorch has several kernels, each of which rounds in an order of its own.
    """
    values = F.interpolate(logits.float()[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    close = (values - threshold).abs() <= 4 * torch.finfo(torch.float32).eps * logits.abs().max()
    return bool(((masks == (values > threshold)) | close).all())


@WAYS
@pytest.mark.parametrize(("shape", "size"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_masks_are_those_of_interpolate(way, shape, size, dtype):
    logits = randn(*shape, dtype=dtype)
    with on_cpu(way):
        masks = vision.postprocess_masks(logits, size, 0.125)
    assert masks.dtype == torch.uint8 and masks.shape == (shape[0], *size) and masks.max() <= 1
    assert same_but_at_the_threshold(masks, logits, size, 0.125)


@WAYS
def test_masks_by_hand(way):
    # Between 0 and 4 at centers 1/2 and 3/2, four pixels have centers 1/4, 3/4, 5/4, 7/4: values 0, 1, 3, 4.
    logits = torch.tensor([[[0.0, 4]]])
    with on_cpu(way):
        assert vision.postprocess_masks(logits, (1, 4), 1.0).tolist() == [[[0, 0, 1, 1]]]
        assert vision.postprocess_masks(logits, (2, 4), 0.5).tolist() == [[[0, 1, 1, 1]] * 2]


@WAYS
def test_logits_that_are_no_numbers(way):
    logits = torch.tensor([[[math.nan, 1, math.inf, -math.inf, 2, 3, -math.inf]]])
    with on_cpu(way):
        assert vision.postprocess_masks(logits, (1, 7)).tolist() == [[[0, 1, 0, 0, 1, 1, 0]]]  # 0 * inf
        for size in ((1, 300), (90, 7), (120, 21)):
            assert torch.equal(vision.postprocess_masks(logits, size), reference.postprocess_masks(logits, size))


@WAYS
def test_leading_dimensions(way):
    logits = randn(2, 3, 4, 5)
    with on_cpu(way):
        masks = vision.postprocess_masks(logits, [8, 9])
        assert masks.shape == (2, 3, 8, 9)
        assert torch.equal(masks.flatten(0, 1), vision.postprocess_masks(logits.flatten(0, 1), (8, 9)))
        assert torch.equal(vision.postprocess_masks(logits[0, 0], (8, 9)), masks[0, 0])
        assert vision.postprocess_masks(logits[:0], (8, 9)).shape == (0, 3, 8, 9)
        assert vision.masks_to_boxes(masks).shape == (2, 3, 4)
        assert torch.equal(vision.masks_to_boxes(masks)[1, 2], vision.masks_to_boxes(masks[1, 2]))
        assert vision.masks_to_boxes(masks[:, :0]).shape == (2, 0, 4)


def some_masks() -> torch.Tensor:
    masks = torch.zeros(6, 40, 70, dtype=torch.uint8)
    masks[1] = 1
    masks[2, 7, 32] = 1
    masks[3, 39, 69] = masks[3, 0, 69] = 255
    masks[4, 33:36, 5:64] = 2
    masks[5] = (randn(40, 70) > 2.5).to(torch.uint8)
    return masks


@WAYS
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32, torch.int64], ids=str)
def test_boxes(way, dtype):
    masks = some_masks()
    if dtype == torch.float32:
        masks = masks / 1000  # a pixel that is not 0 is of the mask, however small
    masks = masks.to(dtype)
    with on_cpu(way):
        boxes = vision.masks_to_boxes(masks)
    by_hand = [[0, 0, 0, 0], [0, 0, 69, 39], [32, 7, 32, 7], [69, 0, 69, 39], [5, 33, 63, 35]]
    assert boxes[:5].tolist() == by_hand and boxes.dtype == torch.float32
    assert torch.equal(boxes, reference.masks_to_boxes(masks))


def test_stability():
    logits = torch.tensor([[[-2.0, -1, -0.5, 0.5, 1, 1.5]], [[-9.0] * 6]])
    scores = vision.stability_scores(logits)
    assert scores[0] == 1 / 4 and scores[1].isnan() and scores.dtype == torch.float32  # above 1: one, above -1: four
    assert vision.stability_scores(logits[0].half(), 0.5, 0.25) == 2 / 3
    assert vision.stability_scores(logits.double(), offset=0).tolist()[0] == 1


@pytest.mark.parametrize(("shape", "size"), SIZES)
def test_watched(shape, size):
    logits = randn(*shape)
    for kernel, inputs in (
        (kernels.postprocess_masks, (logits, list(size), 0.125)),
        (kernels.masks_to_boxes, ((logits > 0.5).to(torch.uint8),)),
    ):
        assert (report := kernel.check(*inputs)), report


@pytest.mark.parametrize("layout", LAYOUTS)
def test_watched_in_every_layout(layout):
    logits = lay_out(randn(3, 6, 7), layout)
    assert (report := kernels.postprocess_masks.check(logits, [11, 35], 0.125)), report
    assert (report := kernels.masks_to_boxes.check(lay_out(some_masks(), layout))), report


MUTATIONS = {
    "postprocess_masks": [
        ("logit > threshold", "logit >= threshold"),
        ("masks.get_extent(1)", "masks.get_extent(0)"),
        ("y, mask, masks", "y, 0, masks"),
        ("resized(logits, x, y", "resized(logits, x, y + 1"),
        ("masks[x, y, mask]", "masks[x, y, 0]"),
    ],
    "masks_to_boxes": [
        ("x += 32", "x += 33"),
        ("x < width", "x <= width"),
        ("y < height", "y < height - 1"),
        ("int i = 1; i < int(simdgroups)", "int i = 1; i < int(simdgroups) - 1"),
        ("if (box.z < 0) box = 0;", ""),
        ("simd_max(box.z)", "box.z"),
    ],
}
INPUTS = {
    "postprocess_masks": (torch.tensor([[[0.0, 1], [2, 4]], [[5, 7], [0, 1]]]), [5, 8], 1.0),
    "masks_to_boxes": (some_masks(),),
}


@pytest.mark.parametrize(("name", "old", "new"), [(k, *pair) for k, pairs in MUTATIONS.items() for pair in pairs])
def test_a_wrong_index_is_noticed(name, old, new):
    assert noticed(mutant(getattr(kernels, name), old, new), *INPUTS[name])


def test_the_missing_barrier_is_noticed():
    assert noticed(without_barrier(kernels.masks_to_boxes, 0), *INPUTS["masks_to_boxes"])


LOGITS = randn(2, 3, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[0.0]], (2, 2)), TypeError, r"expected mask_logits a torch.Tensor, got list"),
        ((LOGITS.long(), (2, 2)), TypeError, r"expected mask_logits of dtype float32, bfloat16 or float16, got"),
        ((LOGITS.double(), (2, 2)), NotImplementedError, r"expected mask_logits of dtype .* got torch.float64"),
        ((LOGITS[0, 0], (2, 2)), ValueError, r"expected mask_logits \[..., H, W\] with pixels, got \[4\]"),
        ((LOGITS[:, :0], (2, 2)), ValueError, r"with pixels, got \[2, 0, 4\]"),
        ((LOGITS, 8), TypeError, r"expected size \(H, W\), got int"),
        ((LOGITS, (8, 8, 8)), TypeError, r"expected size \(H, W\), got \(8, 8, 8\)"),
        ((LOGITS, (8.0, 8)), TypeError, r"expected size \(H, W\) of whole numbers, got float"),
        ((LOGITS, (0, 8)), ValueError, r"expected size \(H, W\) of at least 1 each, got \[0, 8\]"),
        ((LOGITS, (8, 8), None), TypeError, r"expected threshold a number, got NoneType"),
        ((LOGITS, (8, 8), math.inf), ValueError, r"expected threshold finite, got inf"),
    ],
)
def test_errors_of_postprocess_masks(arguments, error, message):
    with pytest.raises(error, match=f"^postprocess_masks: .*{message}"):
        vision.postprocess_masks(*arguments)


@pytest.mark.parametrize(
    ("name", "argument", "error", "message"),
    [
        ("masks_to_boxes", [[1]], TypeError, r"expected masks a torch.Tensor, got list"),
        ("masks_to_boxes", LOGITS.cfloat(), TypeError, r"expected masks of a real dtype, got torch.complex64"),
        ("masks_to_boxes", LOGITS[..., :0], ValueError, r"expected masks \[..., H, W\] with pixels, got \[2, 3, 0\]"),
        ("stability_scores", LOGITS.int(), TypeError, r"expected mask_logits of a floating dtype, got torch.int32"),
        ("stability_scores", LOGITS[0, 0], ValueError, r"expected mask_logits .* with pixels, got \[4\]"),
    ],
)
def test_errors(name, argument, error, message):
    with pytest.raises(error, match=f"^{name}: {message}"):
        getattr(vision, name)(argument)


@pytest.mark.parametrize("name", ["postprocess_masks", "masks_to_boxes"])
def test_reference_has_the_signature(name):
    assert inspect.signature(getattr(reference, name)) == inspect.signature(getattr(vision, name))
