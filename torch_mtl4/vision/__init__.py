"""Post-processing of detection and segmentation that stays on the GPU: kernels made with `torch_mtl4.metal_kernel`.

Boxes: nms, batched_nms, nms_padded. Masks: postprocess_masks, masks_to_boxes, stability_scores. Run lengths:
encode_rle, encode_rle_padded, coco_rle.
"""

from torch_mtl4.vision.masks import masks_to_boxes, postprocess_masks, stability_scores
from torch_mtl4.vision.nms import batched_nms, nms, nms_padded
from torch_mtl4.vision.rle import coco_rle, encode_rle, encode_rle_padded

__all__ = [
    "batched_nms",
    "coco_rle",
    "encode_rle",
    "encode_rle_padded",
    "masks_to_boxes",
    "nms",
    "nms_padded",
    "postprocess_masks",
    "stability_scores",
]
