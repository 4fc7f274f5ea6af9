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


def q8_0(weights):
    """(blocks of 32 as bytes, what they decode to)"""
    blocks = weights.reshape(len(weights), -1, 32)
    scale = (np.abs(blocks).max(2, keepdims=True) / 127).astype(np.float16)
    wide = scale.astype(np.float32)
    codes = np.rint(np.divide(blocks, wide, where=wide != 0, out=np.zeros_like(blocks))).clip(-127, 127).astype(np.int8)
    data = np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], 2)
    return data.reshape(len(weights), -1), (codes * wide).reshape(weights.shape)


def mul_mm(folder: Path, kind, data, decoded, b, layout=None) -> Case:
    """b [N, K] times weights [M, K] of a format of ggml, by matmul2d if a layout is given."""
    (N, K), M = b.shape, len(data)
    arguments = struct.pack(
        "<2i3Qi4x4Q2i2h4x", K, 1, data.shape[1], data.size, data.size, 1, 4, 4 * K, 4 * K * N, 4 * K * N, M, N, 1, 1
    )
    out, columns = np.zeros((N, M), np.float32), 128 if layout else 32
    tensors = {"GGML_METAL_HAS_TENSOR": 1} if layout else {}
    # Its matmul2d accumulates into a cooperative tensor that it never clears.
    options = {"layout": layout, "zero_cooperative": True} if layout else {}
    return Case(
        "llama",
        f"mul_mm {kind}, " + (f"matmul2d on {layout}" if layout else "simdgroup_matrix"),
        folder / "kernels" / "mul_mm.metal",
        f"kernel_mul_mm_{kind}_f32",
        llama_include(folder),
        (ceil_div(N, columns), ceil_div(M, 64), 1),
        (128,),
        {0: arguments, 1: data, 2: b, 3: msl.Output(out)},
        out,
        b @ decoded.T,
        0.1,
        constants={
            700: int(K % 32 != 0),
            701: int(M % 64 != 0 or N % columns != 0),
            **dict.fromkeys(range(702, 706), 1),
            706: 0,
        },
        defines={"GGML_METAL_HAS_BF16": 1, **tensors},
        options={**options, "threadgroup_memory": {0: 4096 if layout else 8192}},
    )


def mul_mv(folder: Path, data, decoded, b) -> Case:
    """b [N, K], few rows, times weights [M, K] as q8_0: 2 weights' rows a threadgroup of 4 simdgroups."""
    (N, K), M = b.shape, len(data)
    i, n, h = np.int32, np.uint64, np.int16
    arguments = _struct(
        ne00=i(K), ne01=i(M), ne02=i(1), nb00=n(34), nb01=n(data.shape[1]), nb02=n(data.size), nb03=n(data.size),
        ne10=i(K), ne11=i(N), ne12=i(1), nb10=n(4), nb11=n(4 * K), nb12=n(4 * K * N), nb13=n(4 * K * N),
        ne0=i(M), ne1=i(N), nr0=i(2), r2=h(1), r3=h(1),
    )  # fmt: skip
    out = np.zeros((N, M), np.float32)
    return Case(
        "llama",
        "mul_mv q8_0",
        folder / "kernels" / "mul_mv.metal",
        "kernel_mul_mv_q8_0_f32",
        llama_include(folder),
        (ceil_div(M, 2), N, 1),
        (32, 4, 1),
        {0: arguments, 1: data, 2: b, 3: msl.Output(out)},
        out,
        b @ decoded.T,
        1e-3,
        constants={600: 4, 602: 1, 603: 1, 604: 1},
        defines={"GGML_METAL_HAS_BF16": 1},
        options={"threadgroup_memory": {0: 32 * 4 * 2}},
    )


def _products(folder: Path) -> list[Case]:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((n, 96)).astype(np.float32) for n in (100, 50))
    half = a.astype(np.float16)
    formats = {"f16": (half.view(np.uint8), half.astype(np.float32)), "q4_0": _q4_0(a), "q8_0": q8_0(a)}
    found = [
        mul_mm(folder, kind, *weights, b, layout)
        for kind, weights in formats.items()
        for layout in (None, "m5", "pre_m5", "scrambled")
    ]
    return [*found, mul_mv(folder, *formats["q8_0"], b[:3])]


def _struct(**fields) -> bytes:
    """The bytes of a C struct; numpy scalars give the types."""
    types = {np.int16: ctypes.c_int16, np.int32: ctypes.c_int32, np.uint64: ctypes.c_uint64, np.float32: ctypes.c_float}
    layout = type("Arguments", (ctypes.Structure,), {"_fields_": [(n, types[type(v)]) for n, v in fields.items()]})
    return bytes(layout(*(v.item() for v in fields.values())))


def _attention_sizes(q, k, absent) -> bytes:
    """The arguments of flash_attn_ext without a mask, for q [1, H, LQ, D] and k [1, Hkv, LK, D].

    `absent`: the sizes of the mask that is not there. The host passes 0, and the kernel works out x % 0: a finding in a
    checked run, and the end of one that is not. With 1 it does the same work.
    """
    (_, H, LQ, D), (_, HKV, LK, _) = q.shape, k.shape
    i, n, f = np.int32, np.uint64, np.float32
    return _struct(
        ne01=i(LQ), ne02=i(H), ne03=i(1),
        nb01=n(D * 4), nb02=n(LQ * D * 4), nb03=n(H * LQ * D * 4),
        ne11=i(LK), ne12=i(HKV), ne13=i(1), ns10=i(D),
        nb11=n(D * 2), nb12=n(LK * D * 2), nb13=n(HKV * LK * D * 2), ns20=i(D),
        nb21=n(D * 2), nb22=n(LK * D * 2), nb23=n(HKV * LK * D * 2),
        ne31=i(absent), ne32=i(absent), ne33=i(absent), nb31=n(0), nb32=n(0), nb33=n(0),
        ne1=i(H), ne2=i(LQ), ne3=i(1),
        scale=f(D**-0.5), max_bias=f(0), m0=f(1), m1=f(1), n_head_log2=i(2), logit_softcap=f(0),
    )  # fmt: skip


def flash_attention(folder: Path, q, k, v, absent=0) -> Case:
    """Many queries, of float32, and keys and values of float16."""
    (_, H, LQ, D) = q.shape
    out = np.zeros((1, LQ, H, D), np.float32)
    return Case(
        "llama",
        "flash_attn_ext f16 without a mask",
        folder / "kernels" / "fa_f16.metal",
        f"kernel_flash_attn_ext_f16_dk{D}_dv{D}",
        llama_include(folder),
        (ceil_div(LQ, 8), H, 1),
        (32, 4, 1),
        {0: _attention_sizes(q, k, absent), 1: q, 2: k, 3: v, **dict.fromkeys(range(4, 8)), 8: msl.Output(out)},
        out,
        attention(q, k, v, D**-0.5).transpose(0, 2, 1, 3),
        4e-3,
        constants={300: 0, 301: 0, 302: 0, 303: 0, 304: 0, 310: 0, 320: D, 321: D, 322: 4},
        defines={"GGML_METAL_HAS_BF16": 1},
        options={"threadgroup_memory": {0: 2 * 8 * (D + 2 * D + 4 * 64)}},
        findings=frozenset(() if absent else {"division"}),
    )


def cases(cache: Path) -> list[Case]:
    folder, rng = llama_folder(cache), np.random.default_rng(1)
    q = rng.standard_normal((1, 2, 40, 64)).astype(np.float32)
    k, v = (rng.standard_normal((1, 2, 128, 64)).astype(np.float16) for _ in range(2))
    return [*_products(folder), flash_attention(folder, q, k, v)]
