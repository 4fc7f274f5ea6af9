"""Masks as run lengths, in the order and the encoding of COCO."""

from collections.abc import Iterable

import torch
from torch import Tensor

from torch_mtl4.ops._errors import expected
from torch_mtl4.vision import kernels
from torch_mtl4.vision.masks import as_bytes

_CAPACITY = 1024  # of runs, of a first attempt


def encode_rle_padded(masks: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
    """Run lengths of masks in results of a fixed size: for graphs, and without waiting for a GPU.

    Pixels are read column by column. The first run is of zeros, and 0 long for a mask that begins with a one; then runs
    of ones and zeros take turns.

    Args:
        masks: [B, H, W] of any real dtype; pixels of the mask are those that are not 0. H and W at least 1.
        capacity: how many runs there is room for, at least 1; H * W + 1 are always enough.

    Returns:
        counts: int32 [B, capacity], the lengths of the first runs, then zeros.
        runs: int32 [B], how many runs a mask has. If that is more than capacity, the last ones are missing in counts.

    Raises:
        TypeError: masks that is no tensor, or complex; a capacity that is no whole number.
        ValueError: another shape, or less than 1.
        NotImplementedError: masks that is no strided tensor.

    Source: COCO API, common/maskApi.c (rleEncode).
    """
    op = "encode_rle_padded"
    if isinstance(capacity, bool) or not isinstance(capacity, (int, torch.SymInt)):
        expected(TypeError, op, "capacity a whole number", type(capacity).__name__)
    if capacity < 1:
        expected(ValueError, op, "capacity of at least 1", capacity)
    return kernels.encode_rle(_check_masks(op, masks), [capacity])


def encode_rle(masks: Tensor) -> list[list[int]]:
    """Run lengths of masks, COCO's uncompressed "counts".

    Args:
        masks: [B, H, W], as of `encode_rle_padded`.

    Returns:
        Of each mask the lengths of all its runs, on the host.

    Raises:
        TypeError, ValueError, NotImplementedError: as `encode_rle_padded` does.

    Source: COCO API, common/maskApi.c (rleEncode).
    """
    masks = _check_masks("encode_rle", masks)
    if len(masks) == 0:
        return []
    counts, runs = kernels.encode_rle(masks, [_CAPACITY])
    runs = runs.tolist()
    if (most := max(runs)) > _CAPACITY:
        counts, _ = kernels.encode_rle(masks, [most])
    return [row[:n] for row, n in zip(counts[:, :most].tolist(), runs, strict=True)]


def coco_rle(masks: Tensor) -> list[dict]:
    """Masks as pycocotools.mask.encode gives them.

    Args:
        masks: [B, H, W], as of `encode_rle_padded`.

    Returns:
        Of each mask {"size": [H, W], "counts": bytes}; for JSON, decode the bytes as ASCII.

    Raises:
        TypeError, ValueError, NotImplementedError: as `encode_rle_padded` does.

    Source: COCO API, common/maskApi.c (rleEncode, rleToString).
    """
    size = list(_check_masks("coco_rle", masks).shape[1:])
    return [{"size": list(size), "counts": _compressed(counts)} for counts in encode_rle(masks)]


def _compressed(counts: Iterable[int]) -> bytes:
    """Each count from the fourth on as its difference to the one two before it, five bits a character, lowest first.

    48 is added to make it readable; 32 says that another character follows, 16 in the last one that it is negative.
    """
    text, counts = bytearray(), list(counts)
    for i, count in enumerate(counts):
        left = count - counts[i - 2] if i > 2 else count
        while True:
            bits, left = left & 31, left >> 5
            last = left == (-1 if bits & 16 else 0)
            text.append(48 + bits + (0 if last else 32))
            if last:
                break
    return bytes(text)


def _check_masks(op: str, masks: Tensor) -> Tensor:
    masks = as_bytes(op, masks)
    if masks.dim() != 3:
        expected(ValueError, op, "masks [B, H, W]", list(masks.shape))
    return masks
