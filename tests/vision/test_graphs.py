"""torch_mtl4.vision in torch.compile and torch.export: one call of an op a kernel, static and symbolic sizes."""

import pytest
import torch
from torch import nn
from torch.library import opcheck

from tests.vision.boxes import clusters
from torch_mtl4 import vision
from torch_mtl4.testing import randn
from torch_mtl4.vision import kernels

KERNELS = {
    "vision_nms_order": 1,
    "vision_nms_overlaps": 1,
    "vision_nms_scan": 1,
    "vision_postprocess_masks": 1,
    "vision_masks_to_boxes": 1,
    "vision_encode_rle": 1,
}


class Everything(nn.Module):
    def forward(self, boxes, scores, idxs, logits):
        masks = vision.postprocess_masks(logits, (20, 30), 0.25)
        return (
            *vision.nms_padded(boxes, scores, 0.3, idxs),
            masks,
            vision.masks_to_boxes(masks),
            *vision.encode_rle_padded(masks, 50),
            vision.stability_scores(logits),
        )


def inputs(n: int, masks: int):
    return *clusters(n), randn(masks, 5, 6)


def assert_same(results, n: int, masks: int):
    for got, want in zip(results, Everything()(*inputs(n, masks)), strict=True):
        assert torch.equal(got, want)


def test_compiled_without_a_break():
    compiled = torch.compile(Everything(), fullgraph=True, backend="aot_eager")
    for n, masks in ((40, 2), (33, 3), (70, 4)):
        assert_same(compiled(*inputs(n, masks)), n, masks)


@pytest.mark.parametrize("strict", [False, True])
def test_exported(strict):
    program = torch.export.export(Everything(), inputs(40, 2), strict=strict)
    called = [str(node.target).split(".")[1] for node in program.graph.nodes if "torch_mtl4" in str(node.target)]
    assert {name: called.count(name) for name in called} == KERNELS
    assert_same(program.module()(*inputs(40, 2)), 40, 2)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_with_symbolic_sizes(strict):
    n, masks = torch.export.Dim("n", min=2, max=1000), torch.export.Dim("masks", min=1, max=9)
    program = torch.export.export(
        Everything(), inputs(40, 2), strict=strict, dynamic_shapes=({0: n}, {0: n}, {0: n}, {0: masks})
    )
    for sizes in ((2, 1), (9, 4), (100, 2)):
        assert_same(program.module()(*inputs(*sizes)), *sizes)


def test_nms_exported_with_a_size_that_values_tell():
    class Nms(nn.Module):
        def forward(self, boxes, scores):
            return vision.nms(boxes, scores, 0.3)

    boxes, scores, _ = clusters(40)
    program = torch.export.export(Nms(), (boxes, scores))
    for seed in (0, 1):
        boxes, scores, _ = clusters(40, seed)
        assert torch.equal(program.module()(boxes, scores), vision.nms(boxes, scores, 0.3))


def test_errors_are_those_of_eager_calls():
    boxes, scores, _ = clusters(5)
    compiled = torch.compile(vision.nms_padded, fullgraph=True, backend="eager")
    with pytest.raises(ValueError, match=r"nms_padded: expected scores \[N\] = \[5\], got \[4\]"):
        compiled(boxes, scores[:4], 0.5)
    with pytest.raises(TypeError, match="vision_nms_order: expected scores of dtype float32"):
        compiled(boxes.double(), scores.double(), 0.5)


def test_opcheck():
    boxes, scores, idxs, logits = inputs(40, 2)
    order = kernels.nms_order(scores)
    overlapping = (boxes, order, idxs.int(), torch.tensor([0.3]))
    masks = kernels.postprocess_masks(logits, [20, 30], 0.25)
    for kernel, arguments in (
        (kernels.nms_order, (scores,)),
        (kernels.nms_overlaps, overlapping),
        (kernels.nms_scan, (kernels.nms_overlaps(*overlapping), order)),
        (kernels.postprocess_masks, (logits, [20, 30], 0.25)),
        (kernels.masks_to_boxes, (masks,)),
        (kernels.encode_rle, (masks, [50])),
    ):
        opcheck(kernel.op, arguments)
