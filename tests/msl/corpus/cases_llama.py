"""llama.cpp: matrix products by simdgroup_matrix and by matmul2d, plain and quantized; flash attention."""

import ctypes
import struct
from pathlib import Path

import numpy as np

from torch_mtl4 import msl

from .cases import Case, attention, ceil_div
from .sources import llama_folder, llama_include


def _q4_0(weights):
    """(blocks of 32 as bytes, what they decode to)"""
    blocks = weights.reshape(len(weights), -1, 32)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(2)[..., None], 2)[..., 0]
    scale = (extreme / -8).astype(np.float16)
    wide = scale.astype(np.float32)
    inverse = np.divide(1, wide, where=wide != 0, out=np.zeros_like(wide))
    codes = np.clip(np.floor(blocks * inverse[..., None] + 8.5), 0, 15).astype(np.uint8)
    data = np.concatenate([scale[..., None].view(np.uint8), codes[..., :16] | codes[..., 16:] << 4], 2)
    decoded = ((codes.astype(np.float32) - 8) * wide[..., None]).reshape(weights.shape)
    return data.reshape(len(weights), -1), decoded


def _products(folder: Path) -> list[Case]:
    rng = np.random.default_rng(1)
    M, N, K = 100, 50, 96
    a, b = (rng.standard_normal((n, K)).astype(np.float32) for n in (M, N))
    half = a.astype(np.float16)
    found = []
    for kind, (data, decoded) in {"f16": (half.view(np.uint8), half.astype(np.float32)), "q4_0": _q4_0(a)}.items():
        arguments = struct.pack(
            "<2i3Qi4x4Q2i2h4x", K, 1, data.shape[1], data.size, data.size, 1, 4, 4 * K, 4 * K * N, 4 * K * N, M, N, 1, 1
        )
        for layout in (None, "m5", "pre_m5", "scrambled"):
            out = np.zeros((N, M), np.float32)
            tensors = {"GGML_METAL_HAS_TENSOR": 1} if layout else {}
            # Its matmul2d accumulates into a cooperative tensor that it never clears.
            options = {"layout": layout, "zero_cooperative": True} if layout else {}
            found.append(
                Case(
                    "llama",
                    f"mul_mm {kind}, " + (f"matmul2d on {layout}" if layout else "simdgroup_matrix"),
                    folder / "kernels" / "mul_mm.metal",
                    f"kernel_mul_mm_{kind}_f32",
                    llama_include(folder),
                    (ceil_div(N, 128 if layout else 32), ceil_div(M, 64), 1),
                    (128,),
                    {0: arguments, 1: data, 2: b, 3: msl.Output(out)},
                    out,
                    b @ decoded.T,
                    0.1,
                    constants={700: int(K % 32 != 0), 701: 1, 702: 1, 703: 1, 704: 1, 705: 1, 706: 0},
                    defines={"GGML_METAL_HAS_BF16": 1, **tensors},
                    options={**options, "threadgroup_memory": {0: 4096 if layout else 8192}},
                )
            )
    return found


def _struct(**fields) -> bytes:
    """The bytes of a C struct; numpy scalars give the types."""
    types = {np.int32: ctypes.c_int32, np.uint64: ctypes.c_uint64, np.float32: ctypes.c_float}
    layout = type("Arguments", (ctypes.Structure,), {"_fields_": [(n, types[type(v)]) for n, v in fields.items()]})
    return bytes(layout(*(v.item() for v in fields.values())))


def _flash_attention(folder: Path) -> list[Case]:
    rng = np.random.default_rng(1)
    H, D, LQ, LK = 2, 64, 40, 128
    q = rng.standard_normal((1, H, LQ, D)).astype(np.float32)
    k, v = (rng.standard_normal((1, H, LK, D)).astype(np.float16) for _ in range(2))
    i, n, f = np.int32, np.uint64, np.float32
    arguments = _struct(
        ne01=i(LQ), ne02=i(H), ne03=i(1),
        nb01=n(D * 4), nb02=n(LQ * D * 4), nb03=n(H * LQ * D * 4),
        ne11=i(LK), ne12=i(H), ne13=i(1), ns10=i(D),
        nb11=n(D * 2), nb12=n(LK * D * 2), nb13=n(H * LK * D * 2), ns20=i(D),
        nb21=n(D * 2), nb22=n(LK * D * 2), nb23=n(H * LK * D * 2),
        ne31=i(0), ne32=i(0), ne33=i(0), nb31=n(0), nb32=n(0), nb33=n(0),
        ne1=i(H), ne2=i(LQ), ne3=i(1),
        scale=f(D**-0.5), max_bias=f(0), m0=f(1), m1=f(1), n_head_log2=i(2), logit_softcap=f(0),
    )  # fmt: skip
    out = np.zeros((1, LQ, H, D), np.float32)
    return [
        Case(
            "llama",
            "flash_attn_ext f16 without a mask",
            folder / "kernels" / "fa_f16.metal",
            "kernel_flash_attn_ext_f16_dk64_dv64",
            llama_include(folder),
            (ceil_div(LQ, 8), H, 1),
            (32, 4, 1),
            {0: arguments, 1: q, 2: k, 3: v, **dict.fromkeys(range(4, 8)), 8: msl.Output(out)},
            out,
            attention(q, k, v, D**-0.5).transpose(0, 2, 1, 3),
            4e-3,
            constants={300: 0, 301: 0, 302: 0, 303: 0, 304: 0, 310: 0, 320: D, 321: D, 322: 4},
            defines={"GGML_METAL_HAS_BF16": 1},
            options={"threadgroup_memory": {0: 2 * 8 * (64 + 2 * 64 + 4 * 64)}},
            findings=frozenset({"division"}),  # x % 0: the host passes sizes of 0 for a mask that is not there
        )
    ]


def cases(cache: Path) -> list[Case]:
    folder = llama_folder(cache)
    return _products(folder) + _flash_attention(folder)
