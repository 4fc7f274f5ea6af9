"""Boxes for tests of non-maximum suppression: random ones that overlap, and torchvision's answers to hostile ones."""

import json
from pathlib import Path

import torch

# What torchvision 0.29.1 (on torch 2.14.1, CPU) answered: nms, batched_nms by category (as it does from 1,001 boxes on;
# sorted) and with offsets (as it does for fewer).
RECORDED = json.loads(Path(__file__).with_name("torchvision_nms.json").read_text())


def clusters(n: int, seed: int = 0, dtype: torch.dtype = torch.float32):
    """n boxes around a few centers, scores with ties, and categories 0 to 2."""
    g = torch.Generator().manual_seed(seed)
    centers = torch.rand(max(1, n // 6), 2, generator=g) * 50
    corner = centers[torch.randint(0, len(centers), (n,), generator=g)] + torch.randn(n, 2, generator=g)
    boxes = torch.cat((corner, corner + 5 + torch.rand(n, 2, generator=g)), 1)
    scores = torch.randint(0, max(2, n // 2), (n,), generator=g)
    return boxes.to(dtype), scores.to(dtype), torch.randint(0, 3, (n,), generator=g)


def recorded(case: dict):
    """boxes, scores, idxs of a recorded case."""
    dtype = getattr(torch, case["dtype"])
    return (
        torch.tensor(case["boxes"], dtype=dtype),
        torch.tensor(case["scores"], dtype=dtype),
        torch.tensor(case["idxs"]),
    )
