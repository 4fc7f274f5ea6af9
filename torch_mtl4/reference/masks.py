"""Post-processing of segmentation masks in plain PyTorch: the truth for torch_mtl4.vision."""

import torch
from torch import Tensor


def postprocess_masks(mask_logits: Tensor, size: tuple[int, int], threshold: float = 0.0) -> Tensor:
    """See `torch_mtl4.vision.postprocess_masks`."""
    resized = torch.nn.functional.interpolate(
        mask_logits.float()[:, None], size=list(size), mode="bilinear", align_corners=False
    )
    return (resized[:, 0] > threshold).to(torch.uint8)


def masks_to_boxes(masks: Tensor) -> Tensor:
    """See `torch_mtl4.vision.masks_to_boxes`."""
    boxes = masks.new_zeros(len(masks), 4, dtype=torch.float32)
    for box, mask in zip(boxes, masks, strict=True):
        y, x = mask.nonzero(as_tuple=True)
        if len(x):
            box.copy_(torch.stack((x.min(), y.min(), x.max(), y.max())))
    return boxes


def encode_rle(masks: Tensor) -> list[list[int]]:
    """See `torch_mtl4.vision.encode_rle`."""
    runs = []
    for mask in masks:
        lengths, last = [0], False
        for pixel in (mask.mT.flatten() != 0).tolist():
            if pixel != last:
                lengths.append(0)
            lengths[-1] += 1
            last = pixel
        runs.append(lengths)
    return runs


def encode_rle_padded(masks: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """See `torch_mtl4.vision.encode_rle_padded`."""
    runs = encode_rle(masks)
    counts = torch.zeros(len(runs), capacity, dtype=torch.int32)
    for row, lengths in zip(counts, runs, strict=True):
        kept = lengths[:capacity]
        row[: len(kept)] = torch.tensor(kept, dtype=torch.int32)
    return counts, torch.tensor([len(lengths) for lengths in runs], dtype=torch.int32)
