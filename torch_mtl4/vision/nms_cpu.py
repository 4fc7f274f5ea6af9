"""Non-maximum suppression on the CPU: blocks of boxes at a time, so that PyTorch has long vectors to work on."""

import torch
from torch import Tensor

from torch_mtl4.reference.nms import areas, comparable

_BLOCK = 256  # boxes that are settled among themselves before they meet the others
_CHUNK = 1024  # others that they meet at a time: as many pairs as fit into a core's cache


def nms_cpu(boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None) -> Tensor:
    """Indices int64 [K] of the kept boxes; see `torch_mtl4.vision.nms` and `batched_nms`."""
    order = scores.sort(descending=True, stable=True).indices
    pairs = _Pairs(boxes[order], iou_threshold, None if idxs is None else idxs[order])
    alive = torch.ones_like(order, dtype=torch.bool)
    for start in range(0, len(order), _BLOCK):
        block = start + alive[start : start + _BLOCK].nonzero()[:, 0]
        block = block[_settled(pairs.suppress(block, block).triu(1))]
        alive[start : start + _BLOCK] = False
        alive[block] = True
        later = start + _BLOCK + alive[start + _BLOCK :].nonzero()[:, 0]
        for others in later.split(_CHUNK):
            alive[others] = ~pairs.suppress(block, others).any(0)
    return order[alive]


class _Pairs:
    """What `torch_mtl4.reference.nms.suppresses` says of pairs of boxes, in place."""

    def __init__(self, boxes: Tensor, iou_threshold: float, categories: Tensor | None):
        boxes, self._threshold = comparable(boxes, iou_threshold)
        self._corners = boxes.T.contiguous()
        self._areas = areas(boxes)
        self._categories = categories

    def suppress(self, some: Tensor, others: Tensor) -> Tensor:
        """[len(some), len(others)]: whether the one suppresses the other. Both are indices."""
        width, height = self._common(0, some, others), self._common(1, some, others)
        intersection = width.mul_(height)
        union = torch.add(self._areas[some, None], self._areas[others], out=height).sub_(intersection)
        suppressed = intersection.div_(union) > self._threshold
        if self._categories is not None:
            suppressed &= self._categories[some, None] == self._categories[others]
        return suppressed

    def _common(self, axis: int, some: Tensor, others: Tensor) -> Tensor:
        low, high = self._corners[axis], self._corners[axis + 2]
        end = torch.minimum(high[some, None], high[others])
        return end.sub_(torch.maximum(low[some, None], low[others])).clamp_(min=0)


def _settled(suppressed: Tensor) -> Tensor:
    """Which of n boxes are kept, where suppressed [n, n] says which one suppresses which later one.

    kept = not suppressed by a kept one: it has one solution, and step i of the iteration has it for the first i boxes.
    """
    kept = torch.ones(len(suppressed), dtype=torch.bool)
    while True:
        settled = ~(suppressed & kept[:, None]).any(0)
        if torch.equal(settled, kept):
            return kept
        kept = settled
