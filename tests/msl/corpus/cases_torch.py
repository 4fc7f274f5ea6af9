"""PyTorch's attention kernels: matmul2d for the lane layouts of two generations, simdgroup_matrix, and few queries."""

import struct
from pathlib import Path

import numpy as np

from torch_mtl4 import msl

from .cases import Case, attention, ceil_div
from .sources import torch_include, torch_text

TOLERANCE = {"float16": 4e-3, "float32": 1e-5}


def _parameters(q, k) -> bytes:
    b, h, lq, d = q.shape
    strides = [n for t in (q, k, k, q) for n in (t.shape[1] * t.shape[2] * d, t.shape[2] * d, d)]
    return struct.pack("<6i2f12q", b, h, d, lq, k.shape[2], h // k.shape[1], d**-0.5, 1.0, *strides)


def mpp(cache: Path, q, k, v, arch="a10", layout="m5", causal=0, mask=None) -> Case:
    """Prefill by matmul2d, of float16."""
    out, masked = np.zeros_like(q), int(mask is not None)
    (b, h, lq, d), lk = q.shape, k.shape[2]
    kind = "bool_" if masked else "float16"
    return Case(
        "torch",
        f"MppAttention {arch} on {layout}{' masked' * masked}{' causal' * causal}",
        torch_text("mpp_attention"),
        f"prefill_attention_mpp_{arch}_float16_bq64_bk32_bd{d}_wm4_wn1_hm{masked}_dc{causal}_mask{kind}",
        (torch_include(cache),),
        (ceil_div(lq, 64), h, b),
        (128,),
        [q, k, v, msl.Output(out), _parameters(q, k), struct.pack("<4q", h * lq * lk, lq * lk, lk, 1), mask],
        out,
        attention(q, k, v, d**-0.5, causal, mask),
        TOLERANCE["float16"],
        options={"layout": layout},
        wrong=(arch, layout) == ("a10", "pre_m5"),
    )


def prefill(cache: Path, q, k, v, causal=0) -> Case:
    """Prefill by simdgroup_matrix."""
    (b, h, lq, d), dtype, out = q.shape, q.dtype.name, np.zeros_like(q)
    return Case(
        "torch",
        f"PrefillAttention {dtype}{' causal' * causal}",
        torch_text("prefill"),
        f"prefill_attention_{dtype}_bq32_bk{32 if d < 128 else 16}_bd{d}_wm4_wn1_hm0_dc{causal}_mask{dtype}",
        (torch_include(cache),),
        (ceil_div(lq, 32), h, b),
        (32, 4, 1),
        [q, k, v, msl.Output(out), _parameters(q, k), bytes(32), None],
        out,
        attention(q, k, v, d**-0.5, causal),
        TOLERANCE[dtype],
    )


def decode(cache: Path, q, k, v) -> list[Case]:
    """Few queries, the keys split into 32 blocks: two dispatches, and only the second has a result to compare."""
    (b, h, lq, d), (_, heads_kv, lk, _) = q.shape, k.shape
    name = {"float16": "half", "float32": "float"}[q.dtype.name]
    blocks, rows = 32, b * h * lq
    partials, out = np.zeros((rows, blocks, d), q.dtype), np.zeros_like(q)
    sums, maxs = (np.zeros((rows, blocks), np.float32) for _ in range(2))
    strides = [np.array([*three, 0], np.uint32) for three in ((lq * d, lk * d, lk * d), (d, d, d))]
    batches = np.array([h * lq * d, heads_kv * lk * d, heads_kv * lk * d, h], np.uint32)
    sizes = [np.uint32(h // heads_kv), np.uint32(lk), *strides, np.float32(d**-0.5), None, bytes(16), batches]
    given = [q, k, v, *map(msl.Output, (partials, sums, maxs)), *sizes]
    common = {"corpus": "torch", "source": torch_text("decode"), "include": (torch_include(cache),)}
    return [
        Case(
            **common,
            name="sdpa_vector_2pass_1",
            kernel=f"sdpa_vector_2pass_1_{name}_{d}_{d}_masknone",
            groups=(b * h, lq, blocks),
            threadgroup=(256, 1, 1),
            buffers=given,
            output=partials[:0],
            expected=partials[:0],
            tolerance=0,
            findings=frozenset({"race"}),  # all lanes of a simdgroup write the same sum, and the same maximum
        ),
        Case(
            **common,
            name="sdpa_vector_2pass_2",
            kernel=f"sdpa_vector_2pass_2_{name}_{d}",
            groups=(b * h, lq, 1),
            threadgroup=(1024, 1, 1),
            buffers=[partials, sums, maxs, msl.Output(out)],
            output=out,
            expected=attention(q, k, v, d**-0.5),
            tolerance=TOLERANCE[q.dtype.name],
        ),
    ]


def cases(cache: Path) -> list[Case]:
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, n, 64)).astype(np.float16) for n in (100, 83, 83))
    mask = rng.random((1, 2, 100, 83)) < 0.8
    found = [
        mpp(cache, q, k, v, arch, layout, causal, mask if masked else None)
        for arch, layout in (("a10", "m5"), ("a9", "pre_m5"), ("a10", "pre_m5"))
        for masked, causal in ((0, 0), (0, 1), (1, 0))
    ]
    found += [prefill(cache, *(x.astype(t) for x in (q, k, v)), causal) for t in TOLERANCE for causal in (0, 1)]
    q, k, v = (rng.standard_normal((1, *shape, 64)).astype(np.float16) for shape in ((4, 2), (2, 600), (2, 600)))
    return found + decode(cache, q, k, v)
