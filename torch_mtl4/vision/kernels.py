"""The Metal kernels of torch_mtl4.vision. Their bodies are the files of metal/vision/."""

import torch
from torch import Tensor

from torch_mtl4._metal_sources import folder
from torch_mtl4.custom import metal_kernel
from torch_mtl4.reference import masks as reference
from torch_mtl4.reference.nms import suppresses

_WORD = 32  # boxes whose bits one int32 has
MAX_BOXES = 65536
_SCAN_THREADS = 512
_ROWS = 64  # of the overlaps, that a threadgroup computes a word of
_BOXES_THREADS = 256
_RLE_THREADS = 512


def _text(name: str) -> str:
    return (folder() / "vision" / name).read_text(encoding="ascii")


def _ceil_to(n, multiple: int):
    return (n + multiple - 1) // multiple * multiple


def _words(boxes: Tensor):
    return (boxes.shape[0] + _WORD - 1) // _WORD


def _order(scores: Tensor) -> Tensor:
    scores = scores.float()
    nan = scores != scores
    mine, others, i = scores[:, None], scores[None], torch.arange(scores.shape[0], dtype=torch.int32)
    ahead = (others > mine) | (nan[None] & ~nan[:, None])
    behind = (others < mine) | (nan[:, None] & ~nan[None])
    rank = (ahead | (~behind & (i[None] < i[:, None]))).to(torch.int32).sum(1, dtype=torch.int32)
    return ((rank[:, None] == i[None]).to(torch.int32) * i[:, None]).sum(0, dtype=torch.int32)


def _bits() -> Tensor:
    return torch.tensor([1 << b for b in range(_WORD - 1)] + [-(1 << _WORD - 1)], dtype=torch.int32)


def _overlaps(boxes: Tensor, order: Tensor, categories: Tensor, threshold: Tensor) -> Tensor:
    n, words = boxes.shape[0], _words(boxes)
    boxes, categories = boxes.float()[order.long()], categories[order.long()]
    i = torch.arange(n)
    pairs = suppresses(boxes[:, None], boxes[None], threshold) & (categories[:, None] == categories[None])
    pairs = (pairs & (i[:, None] < i[None])).to(torch.int32)
    pairs = torch.nn.functional.pad(pairs, (0, words * _WORD - n)).view(n, words, _WORD)
    return (pairs * _bits()).sum(2, dtype=torch.int32).flatten()


def _scan(overlaps: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    n = order.shape[0]
    pairs = ((overlaps.view(n, -1, 1) & _bits()) != 0).flatten(1)[:, :n]
    i = torch.arange(n)
    kept = i >= 0
    for box in range(n):
        kept = kept & ~(pairs[box] & kept[box])
    place = torch.where(kept, kept.to(torch.int32).cumsum(0, dtype=torch.int32) - 1, -1)
    here = (place[:, None] == i[None]).to(torch.int32)
    indices = (here * (order[:, None] + 1)).sum(0, dtype=torch.int32) - 1
    return indices, kept.to(torch.int32).sum(0, keepdim=True, dtype=torch.int32)


nms_order = metal_kernel(
    "vision_nms_order",
    ["scores"],
    ["order"],
    _text("nms_order.metal"),
    _order,
    grid=lambda scores, **_: (_ceil_to(scores.shape[0], 256),),
    threadgroup=(256,),
    thread_parameters={"box": "uint thread_position_in_grid"},
    output_shapes=lambda scores: [scores.shape],
    output_dtypes=[torch.int32],
    helpers=_text("nms.h"),
)

nms_overlaps = metal_kernel(
    "vision_nms_overlaps",
    ["boxes", "order", "categories", "threshold"],
    ["overlaps"],
    _text("nms_overlaps.metal"),
    _overlaps,
    grid=lambda boxes, **_: (_ceil_to(boxes.shape[0], _ROWS), _words(boxes)),
    threadgroup=(_ROWS,),
    thread_parameters={
        "position": "uint2 thread_position_in_grid",
        "thread_in_group": "uint thread_index_in_threadgroup",
    },
    output_shapes=lambda boxes, **_: [(boxes.shape[0] * _words(boxes),)],
    output_dtypes=[torch.int32],
    helpers=_text("nms.h"),
)

nms_scan = metal_kernel(
    "vision_nms_scan",
    ["overlaps", "order"],
    ["indices", "count"],
    _text("nms_scan.metal"),
    _scan,
    grid=(_SCAN_THREADS,),
    threadgroup=(_SCAN_THREADS,),
    thread_parameters={
        "thread_in_group": "uint thread_index_in_threadgroup",
        "lane": "uint thread_index_in_simdgroup",
        "simdgroup": "uint simdgroup_index_in_threadgroup",
    },
    constants={"WORDS": MAX_BOXES // _WORD, "THREADS": _SCAN_THREADS},
    output_shapes=lambda overlaps, order: [order.shape, (1,)],
    output_dtypes=[torch.int32, torch.int32],
)


def _postprocess(mask_logits: Tensor, size: list[int], threshold: float) -> Tensor:
    return reference.postprocess_masks(mask_logits, size, threshold)


def _boxes(masks: Tensor) -> Tensor:
    def ends(pixels: Tensor) -> tuple[Tensor, Tensor]:
        at, n = torch.arange(pixels.shape[1], dtype=torch.int32), pixels.shape[1]
        return torch.where(pixels, at, n).amin(1), torch.where(pixels, at, -1).amax(1)

    mask = masks != 0
    (x1, x2), (y1, y2) = ends(mask.any(1)), ends(mask.any(2))
    boxes = torch.stack((x1, y1, x2, y2), 1)
    return torch.where(x2[:, None] < 0, 0, boxes).float()


def _runs(masks: Tensor, capacity: list[int]) -> tuple[Tensor, Tensor]:
    pixels = (masks != 0).transpose(1, 2).flatten(1).to(torch.int32)
    before = torch.nn.functional.pad(pixels[:, :-1], (1, 0))
    run = (pixels != before).to(torch.int32).cumsum(1, dtype=torch.int32)
    room = torch.zeros(masks.shape[0], capacity[0] + 1, dtype=torch.int32)
    room = torch.zeros(masks.shape[0], capacity[0] + 1, dtype=torch.int32)
    counts = room.scatter(1, run.clamp(max=capacity[0]).long(), 1, reduce="add")
    return counts[:, : capacity[0]].clone(), run[:, -1] + 1


postprocess_masks = metal_kernel(
    "vision_postprocess_masks",
    ["logits", "size", "threshold"],
    ["masks"],
    _text("postprocess_masks.metal"),
    _postprocess,
    grid=lambda logits, size, **_: (size[1], size[0], logits.shape[0]),
    threadgroup=(32, 8),
    thread_parameters={"position": "uint3 thread_position_in_grid"},
    output_shapes=lambda logits, size, **_: [(logits.shape[0], size[0], size[1])],
    output_dtypes=[torch.uint8],
    helpers=_text("resize.h"),
)

_THREADS_OF_A_GROUP = {
    "group": "uint2 threadgroup_position_in_grid",
    "thread_in_group": "uint thread_index_in_threadgroup",
}

masks_to_boxes = metal_kernel(
    "vision_masks_to_boxes",
    ["masks"],
    ["boxes"],
    _text("masks_to_boxes.metal"),
    _boxes,
    grid=lambda masks, **_: (_BOXES_THREADS, masks.shape[0]),
    threadgroup=(_BOXES_THREADS,),
    thread_parameters=_THREADS_OF_A_GROUP
    | {
        "lane": "uint thread_index_in_simdgroup",
        "simdgroup": "uint simdgroup_index_in_threadgroup",
        "simdgroups": "uint simdgroups_per_threadgroup",
    },
    output_shapes=lambda masks: [(masks.shape[0], 4)],
    output_dtypes=[torch.float32],
)

encode_rle = metal_kernel(
    "vision_encode_rle",
    ["masks", "capacity"],
    ["counts", "runs"],
    _text("encode_rle.metal"),
    _runs,
    grid=lambda masks, **_: (_RLE_THREADS, masks.shape[0]),
    threadgroup=(_RLE_THREADS,),
    thread_parameters=_THREADS_OF_A_GROUP,
    constants={"THREADS": _RLE_THREADS},
    output_shapes=lambda masks, capacity: [(masks.shape[0], capacity[0]), (masks.shape[0],)],
    output_dtypes=[torch.int32, torch.int32],
)
