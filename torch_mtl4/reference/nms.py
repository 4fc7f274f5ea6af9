"""Non-maximum suppression in plain PyTorch: the truth for torch_mtl4.vision."""

import math

import torch
from torch import Tensor


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """See `torch_mtl4.vision.nms`: boxes in order, each dropping what it suppresses."""
    return batched_nms(boxes, scores, torch.zeros_like(scores, dtype=torch.int64), iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """See `torch_mtl4.vision.batched_nms`."""
    order = scores.sort(descending=True, stable=True).indices
    boxes, threshold = comparable(boxes[order], iou_threshold)
    idxs = idxs[order]
    alive = torch.ones_like(order, dtype=torch.bool)
    for i in range(len(order)):
        if alive[i]:
            later = slice(i + 1, None)
            alive[later] &= ~(suppresses(boxes[i], boxes[later], threshold) & (idxs[i] == idxs[later]))
    return order[alive]


def nms_padded(
    boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See `torch_mtl4.vision.nms_padded`."""
    idxs = torch.zeros_like(scores, dtype=torch.int64) if idxs is None else idxs
    return padded(batched_nms(boxes, scores, idxs, iou_threshold), len(scores))


def padded(kept: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Indices [N], of which those after the kept ones are -1, and their count [1], as int32."""
    indices = torch.nn.functional.pad(kept.to(torch.int32), (0, n - len(kept)), value=-1)
    return indices, torch.full((1,), len(kept), dtype=torch.int32, device=kept.device)


def comparable(boxes: Tensor, iou_threshold: float) -> tuple[Tensor, float]:
    """Boxes as float32 (float64 stays), and the threshold that its ratios compare with as real numbers do."""
    if boxes.dtype == torch.float64:
        return boxes, iou_threshold
    return boxes.float(), float32_below(iou_threshold)


def float32_below(x: float) -> float:
    """The largest float32 that is at most x: float32 numbers are above the one if and only if above the other."""
    fraction, exponent = math.frexp(x)
    last_bit = max(exponent - 24, -149)
    largest = torch.finfo(torch.float32).max
    return min(max(math.ldexp(math.floor(math.ldexp(fraction, exponent - last_bit)), last_bit), -largest), largest)


def suppresses(boxes: Tensor, others: Tensor, threshold: float | Tensor) -> Tensor:
    """Whether boxes [..., 4] suppress others [..., 4]: area of intersection / area of union > threshold.

    The order of the sums is torchvision's. NaN in a box makes its area NaN, and the ratio, which is above nothing then.
    """
    width, height = (
        (torch.minimum(boxes[..., i + 2], others[..., i + 2]) - torch.maximum(boxes[..., i], others[..., i])).clamp(
            min=0
        )
        for i in (0, 1)
    )
    intersection = width * height
    return intersection / (areas(boxes) + areas(others) - intersection) > threshold


def areas(boxes: Tensor) -> Tensor:
    """Of boxes [..., 4]; negative for one whose corners are exchanged once."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
