"""PyTorch's attention kernels: matmul2d for the lane layouts of two generations, and simdgroup_matrix."""

import struct
from pathlib import Path

import numpy as np

from torch_mtl4 import msl

from .cases import Case, attention, ceil_div
from .sources import torch_include, torch_text

B, H, D, LQ, LK = 1, 2, 64, 100, 83


def _parameters() -> bytes:
    strides = [n for length in (LQ, LK, LK, LQ) for n in (H * length * D, length * D, D)]
    return struct.pack("<6i2f12q", B, H, D, LQ, LK, 1, D**-0.5, 1.0, *strides)


def cases(cache: Path) -> list[Case]:
    include = (torch_include(cache),)
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((B, H, n, D)).astype(np.float16) for n in (LQ, LK, LK))
    mask = rng.random((B, H, LQ, LK)) < 0.8
    found = []
    for arch, layout in (("a10", "m5"), ("a9", "pre_m5"), ("a10", "pre_m5")):
        for masked, causal in ((0, 0), (0, 1), (1, 0)):
            out = np.zeros_like(q)
            kind = "bool_" if masked else "float16"
            kernel = f"prefill_attention_mpp_{arch}_float16_bq64_bk32_bd64_wm4_wn1_hm{masked}_dc{causal}_mask{kind}"
            mask_strides = struct.pack("<4q", H * LQ * LK, LQ * LK, LK, 1)
            found.append(
                Case(
                    "torch",
                    f"MppAttention {arch} on {layout}{' masked' * masked}{' causal' * causal}",
                    torch_text("mpp_attention"),
                    kernel,
                    include,
                    (ceil_div(LQ, 64), H, B),
                    (128,),
                    [q, k, v, msl.Output(out), _parameters(), mask_strides, mask],
                    out,
                    attention(q, k, v, D**-0.5, causal, mask if masked else None),
                    4e-3,
                    options={"layout": layout},
                    wrong=(arch, layout) == ("a10", "pre_m5"),
                )
            )
    for dtype, tolerance in (("float16", 4e-3), ("float32", 1e-5)):
        for causal in (0, 1):
            out = np.zeros(q.shape, dtype)
            found.append(
                Case(
                    "torch",
                    f"PrefillAttention {dtype}{' causal' * causal}",
                    torch_text("prefill"),
                    f"prefill_attention_{dtype}_bq32_bk32_bd64_wm4_wn1_hm0_dc{causal}_mask{dtype}",
                    include,
                    (ceil_div(LQ, 32), H, B),
                    (32, 4, 1),
                    [*(x.astype(dtype) for x in (q, k, v)), msl.Output(out), _parameters(), bytes(32), None],
                    out,
                    attention(q, k, v, D**-0.5, causal),
                    tolerance,
                )
            )
    return found
