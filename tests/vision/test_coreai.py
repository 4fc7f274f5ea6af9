"""torch_mtl4.vision behind a model of segmentation, exported to Core AI, and what the saved asset computes.

Each kernel runs on the MSL runner as the asset has it, and the asset, with references in place of its kernels, gives
what the model gives.
"""

import pytest
import torch
from torch import nn

pytest.importorskip("coreai_torch", reason="export to Core AI needs coreai-torch: pip install 'torch_mtl4[coreai]'")

from tests.export.conversion import convert, kernels_of
from torch_mtl4 import vision
from torch_mtl4.export import coreai
from torch_mtl4.testing import randn
from torch_mtl4.vision import kernels

NAMES = ["nms_order", "nms_overlaps", "nms_scan", "postprocess_masks", "masks_to_boxes", "encode_rle"]
QUERIES = 12


class Segmenter(nn.Module):
    """Queries look at an image; each gives a box, a score and a mask, and those that overlap are dropped."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.queries = nn.Parameter(randn(QUERIES, 8, seed=1))
        self.corners, self.score = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, image):
        features = self.features(image)[0]
        queries = self.queries + features.mean((1, 2))
        logits = torch.einsum("qc,chw->qhw", queries, features)
        center, side = self.corners(queries).sigmoid().split(2, 1)
        boxes = torch.cat((center - side, center + side), 1)
        indices, count = vision.nms_padded(boxes, self.score(queries)[:, 0], 0.5)
        masks = vision.postprocess_masks(logits, (24, 30))
        return indices, count, masks, vision.masks_to_boxes(masks), *vision.encode_rle_padded(masks, 64)


def model() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Segmenter().eval(), randn(1, 3, 9, 10, seed=2)


def test_the_kernels_are_in_the_program():
    segmenter, image = model()
    program, emission = convert(segmenter, [image])
    texts = dict(kernels_of(program))
    assert sorted(kernel.op for kernel in emission.kernels.values()) == sorted(f"vision_{name}" for name in NAMES)
    for name in NAMES:
        kernel = getattr(kernels, name)
        (text,) = [text for function, text in texts.items() if function.startswith(f"{kernel.name}_")]
        assert kernel.definition.source in text and kernel.definition.helpers in text


def test_exported_and_verified(tmp_path):
    segmenter, image = model()
    with torch.no_grad():
        assert 1 < segmenter(image)[1].item() < QUERIES, "nothing would be tested"
    report = coreai.export(segmenter, image, tmp_path / "segmenter.aimodel", attention=False, weights=None)
    assert len(report.verification.kernels) == len(NAMES) and not report.verification.skipped
    assert [error for error, _ in report.verification.outputs.values()] == [0.0] * 6
