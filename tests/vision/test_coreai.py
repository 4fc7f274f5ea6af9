"""torch_mtl4.vision behind a model of segmentation, in Core AI: the kernels in the IR, and what their references give.

A program with kernels does not run on Linux. So the same model is converted a second time with the references in their
place, and run by Core AI's own interpreter.
"""

import asyncio

import pytest
import torch
from torch import nn

pytest.importorskip("coreai_torch", reason="export to Core AI needs coreai-torch: pip install 'torch_mtl4[coreai]'")

from tests.export.conversion import convert, kernels_of
from torch_mtl4 import vision
from torch_mtl4.testing import randn
from torch_mtl4.vision import kernels

NAMES = ["nms_order", "nms_overlaps", "nms_scan", "postprocess_masks", "masks_to_boxes", "encode_rle"]
QUERIES = 20


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


def test_references_in_core_ais_interpreter(tmp_path, monkeypatch):
    from coreai.runtime import NDArray

    segmenter, image = model()
    with torch.no_grad():
        wanted = segmenter(image)
    assert 1 < wanted[1].item() < QUERIES, "nothing would be tested"
    for name in NAMES:
        monkeypatch.setattr(kernels, name, getattr(kernels, name).reference)
    program, emission = convert(segmenter, [image])
    assert not emission.kernels
    asset = program.save_asset(tmp_path / "segmenter.aimodel")

    async def run():
        async with asset.executable() as executable:
            function = executable.load_function("main")
            results = await function({function.desc.input_names[0]: NDArray(image.numpy())})
            return [results[name] for name in function.desc.output_names]

    results = asyncio.run(run())
    assert len(results) == len(wanted)
    for got, want in zip(results, wanted, strict=True):
        assert torch.equal(torch.from_numpy(got.numpy().copy()), want)
