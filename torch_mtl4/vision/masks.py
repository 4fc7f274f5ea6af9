"""Segmentation masks on the GPU: logits to masks of an image's size, masks to boxes, and how stable masks are."""

import torch
from torch import Tensor

from torch_mtl4.ops import _checks
from torch_mtl4.ops._errors import expected
from torch_mtl4.vision import checks, kernels


def postprocess_masks(mask_logits: Tensor, size: tuple[int, int], threshold: float = 0.0) -> Tensor:
    """Masks of an image's size from a model's logits, which are resized in float32 but never stored.

    mask = F.interpolate(mask_logits.float(), size, mode="bilinear", align_corners=False) > threshold

    The kernel rounds each step as PyTorch's vectorized CPU kernel does. No gradient flows.

    Args:
        mask_logits: [..., h, w] of dtype float32, float16 or bfloat16; h and w at least 1.
        size: (H, W) of the image, at least 1 each.
        threshold: a finite number. Logits above it are of the mask; NaN is not, nor is an infinity that weighs 0.

    Returns:
        uint8 [..., H, W], of ones where the mask is and zeros elsewhere.

    Raises:
        TypeError: mask_logits that is no floating tensor, sizes or a threshold that are no numbers.
        ValueError: a shape without pixels, a threshold that is not finite.
        NotImplementedError: float64.

    Source: PyTorch 2.13, aten/src/ATen/native/cpu/UpSampleKernel.cpp.
    """
    op = "postprocess_masks"
    _checks.tensor(op, "mask_logits", mask_logits)
    _checks.float_dtype(op, "mask_logits", mask_logits.dtype)
    checks.pixels(op, "mask_logits", mask_logits)
    height, width = _check_size(op, size)
    checks.number(op, "threshold", threshold)
    *leading, h, w = mask_logits.shape
    masks = kernels.postprocess_masks(mask_logits.detach().reshape(-1, h, w), [height, width], float(threshold))
    return masks.reshape(*leading, height, width)


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The smallest boxes around masks.

    Equals torchvision.ops.masks_to_boxes: corners are pixels of the mask, so a mask of one pixel has x1 = x2, and a
    mask without pixels has the box of zeros (also in Segment Anything).

    Args:
        masks: [..., H, W] of any real dtype; pixels of the mask are those that are not 0. H and W at least 1.

    Returns:
        float32 [..., 4] as (x1, y1, x2, y2).

    Raises:
        TypeError: masks that is no tensor, or complex.
        ValueError: masks without pixels.
        NotImplementedError: masks that is no strided tensor.

    Source: torchvision 0.29.1, torchvision/ops/boxes.py.
    """
    masks = as_bytes("masks_to_boxes", masks)
    *leading, h, w = masks.shape
    return kernels.masks_to_boxes(masks.reshape(-1, h, w)).reshape(*leading, 4)


def stability_scores(mask_logits: Tensor, threshold: float = 0.0, offset: float = 1.0) -> Tensor:
    """How little a mask changes with its threshold: the IoU of the masks of a higher and of a lower one.

    score = sum(mask_logits > threshold + offset) / sum(mask_logits > threshold - offset)

    In plain PyTorch, which does it without waiting for a GPU.

    Args:
        mask_logits: [..., h, w] of a floating dtype.
        threshold: of the masks.
        offset: what it is raised and lowered by.

    Returns:
        float32 [...]; NaN where even the larger mask is empty.

    Raises:
        TypeError: mask_logits that is no floating tensor, a threshold or offset that is no number.
        ValueError: mask_logits without pixels, numbers that are not finite.
        NotImplementedError: mask_logits that is no strided tensor.

    Source: Segment Anything, segment_anything/utils/amg.py (calculate_stability_score).
    """
    op = "stability_scores"
    _checks.tensor(op, "mask_logits", mask_logits)
    if not mask_logits.dtype.is_floating_point:
        expected(TypeError, op, "mask_logits of a floating dtype", mask_logits.dtype)
    checks.pixels(op, "mask_logits", mask_logits)
    checks.number(op, "threshold", threshold)
    checks.number(op, "offset", offset)
    inner, outer = (
        (mask_logits > at).sum((-2, -1), dtype=torch.int32) for at in (threshold + offset, threshold - offset)
    )
    return inner.float() / outer.float()


def as_bytes(op: str, masks: Tensor) -> Tensor:
    """Checked masks as uint8, where what is not 0 is the mask."""
    _checks.tensor(op, "masks", masks)
    if masks.dtype.is_complex:
        expected(TypeError, op, "masks of a real dtype", masks.dtype)
    checks.pixels(op, "masks", masks)
    if masks.dtype == torch.uint8:
        return masks
    return masks.to(torch.uint8) if masks.dtype == torch.bool else (masks != 0).to(torch.uint8)


def _check_size(op: str, size) -> tuple[int, int]:
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        expected(TypeError, op, "size (H, W)", size if isinstance(size, (tuple, list)) else type(size).__name__)
    for n in size:
        if isinstance(n, bool) or not isinstance(n, (int, torch.SymInt)):
            expected(TypeError, op, "size (H, W) of whole numbers", type(n).__name__)
    if size[0] < 1 or size[1] < 1:
        expected(ValueError, op, "size (H, W) of at least 1 each", [_checks.known(n) for n in size])
    return size[0], size[1]
