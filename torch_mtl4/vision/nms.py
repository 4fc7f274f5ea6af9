"""Non-maximum suppression that stays on the GPU: results of a fixed size, or as torchvision gives them."""

import torch
from torch import Tensor

from torch_mtl4.ops import _checks
from torch_mtl4.ops._errors import expected
from torch_mtl4.reference.nms import float32_below, padded
from torch_mtl4.vision import checks, kernels
from torch_mtl4.vision.nms_cpu import nms_cpu


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression: keeps boxes from the largest score down, each unless a kept one overlaps it too much.

    Box j is dropped if a kept box i before it has area(i and j) / (area(i) + area(j) - area(i and j)) > iou_threshold.

    Gives what torchvision.ops.nms does on CPU tensors, also with ties (the first of equal scores comes first), NaN
    scores (ahead of all), and boxes that are empty, turned around, infinite or NaN. float16 and bfloat16, which that
    one does not take, are computed in float32. The size of the result depends on values, so on a GPU the call waits
    for it; `nms_padded` does not. No gradient flows.

    Args:
        boxes: [N, 4] as (x1, y1, x2, y2), of dtype float32, float16 or bfloat16, on the CPU also float64.
        scores: [N] of the dtype of boxes.
        iou_threshold: a finite number; less than 0 keeps one box alone.

    Returns:
        int64 [K], indices of the kept boxes, by descending score.

    Raises:
        TypeError: an argument that is no tensor, of another dtype, or no number.
        ValueError: a shape, a device or a threshold that does not fit.
        NotImplementedError: more than 65,536 boxes on a GPU, whose N * N / 8 bytes of overlaps are 512 MB then.

    Source: torchvision 0.29.1, torchvision/csrc/ops/cpu/nms_kernel.cpp.
    """
    _check("nms", boxes, scores, iou_threshold)
    return _kept(boxes, scores, iou_threshold, None)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Non-maximum suppression among the boxes of each category.

    Equals `nms` of each category's boxes, merged by descending score. torchvision.ops.batched_nms does so too for more
    than 1,000 boxes (there the order of equal scores is left open). For fewer it moves categories apart by adding
    category * (largest coordinate + 1) to all coordinates, which rounds them, and which does not part categories where
    coordinates or categories are negative; `nms(boxes + (idxs * (boxes.max() + 1))[:, None], scores, iou_threshold)`
    gives those results.

    Args:
        boxes, scores, iou_threshold: as of `nms`.
        idxs: [N] the category of each box, of an integer dtype; on a GPU within int32.

    Returns:
        int64 [K], indices of the kept boxes, by descending score; of equal scores the first box comes first.

    Raises:
        TypeError, ValueError, NotImplementedError: as `nms` does.

    Source: torchvision 0.29.1, torchvision/ops/boxes.py.
    """
    _check("batched_nms", boxes, scores, iou_threshold, idxs, categories=True)
    return _kept(boxes, scores, iou_threshold, idxs)


def nms_padded(
    boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`nms`, or `batched_nms`, with results of a fixed size: for graphs, and without waiting for a GPU.

    In compiled and exported graphs it is three Metal kernels: the order of the scores by counting, the overlaps of all
    pairs as bits, and one threadgroup that takes the boxes in order.

    Args:
        boxes, scores, iou_threshold: as of `nms`.
        idxs: the category of each box, as of `batched_nms`; None: all boxes are of one.

    Returns:
        indices: int32 [N], those of the kept boxes by descending score, then -1.
        count: int32 [1], how many are kept.

    Raises:
        TypeError, ValueError, NotImplementedError: as `nms` does, in graphs also for float64.

    Source: torchvision 0.29.1, torchvision/csrc/ops/cpu/nms_kernel.cpp.
    """
    _check("nms_padded", boxes, scores, iou_threshold, idxs)
    return _padded(boxes.detach(), scores.detach(), iou_threshold, idxs)


def _kept(boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None) -> Tensor:
    boxes, scores = boxes.detach(), scores.detach()
    if _eager_on_cpu(boxes):
        return nms_cpu(boxes, scores, iou_threshold, idxs)
    indices, count = _padded(boxes, scores, iou_threshold, idxs)
    return indices[: count.item()].long()


def _padded(boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None) -> tuple[Tensor, Tensor]:
    if _eager_on_cpu(boxes):
        return padded(nms_cpu(boxes, scores, iou_threshold, idxs), scores.shape[0])
    if scores.shape[0] == 0:
        return padded(scores.new_empty(0, dtype=torch.int32), 0)
    return by_kernels(boxes, scores, iou_threshold, idxs)


def _eager_on_cpu(boxes: Tensor) -> bool:
    return boxes.device.type == "cpu" and not torch.compiler.is_compiling()


def by_kernels(
    boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`nms_padded` through the Metal kernels (on CPU tensors: through what runs for them there)."""
    categories = torch.zeros_like(scores, dtype=torch.int32) if idxs is None else idxs.to(torch.int32)
    order = kernels.nms_order(scores)
    # A tensor, since each value of a scalar would make another text, which a GPU would have to compile.
    threshold = torch.full((1,), float32_below(iou_threshold), dtype=torch.float32, device=boxes.device)
    overlaps = kernels.nms_overlaps(boxes, order, categories, threshold)
    return kernels.nms_scan(overlaps, order)


def _check(op: str, boxes, scores, iou_threshold, idxs=None, *, categories: bool = False) -> None:
    _checks.tensor(op, "boxes", boxes)
    if boxes.dtype not in (*_checks.FLOATS, torch.float64):
        expected(TypeError, op, "boxes of dtype float32, bfloat16, float16 or float64", boxes.dtype)
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        expected(ValueError, op, "boxes [N, 4]", _checks.shape(boxes))
    _check_each_box(op, "scores", scores, boxes)
    if scores.dtype != boxes.dtype:
        expected(TypeError, op, f"scores of the dtype of boxes, {boxes.dtype}", scores.dtype)
    if idxs is not None or categories:
        _check_each_box(op, "idxs", idxs, boxes)
        if idxs.dtype.is_floating_point or idxs.dtype.is_complex or idxs.dtype == torch.bool:
            expected(TypeError, op, "idxs of an integer dtype", idxs.dtype)
    checks.number(op, "iou_threshold", iou_threshold)
    if boxes.device.type != "cpu" and boxes.shape[0] > kernels.MAX_BOXES:
        expected(NotImplementedError, op, f"at most {kernels.MAX_BOXES} boxes on a GPU", boxes.shape[0])


def _check_each_box(op: str, name: str, t, boxes: Tensor) -> None:
    _checks.tensor(op, name, t)
    _checks.same_device(op, name, t, "boxes", boxes.device)
    if t.dim() != 1 or t.shape[0] != boxes.shape[0]:
        expected(ValueError, op, f"{name} [N] = [{_checks.shape(boxes)[0]}]", _checks.shape(t))
