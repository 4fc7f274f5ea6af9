"""MLX: quantized products, gemm and attention, with and without matmul2d."""

import struct

import ml_dtypes
import numpy as np

from torch_mtl4 import msl

from .cases import Case, attention, ceil_div
from .mlx_maker import Maker

TYPES = {"float16": "half", "float32": "float"}


def affine(rng, rows, columns, bits, group=64):
    """(packed codes, scales, biases) of a weight [rows, columns], of which `decoded` makes numbers."""
    codes, per_word = rng.integers(0, 2**bits, (rows, columns)), 32 // bits
    packed = sum(codes[:, i::per_word].astype(np.uint32) << np.uint32(bits * i) for i in range(per_word))
    scales = (rng.random((rows, columns // group)) * 0.1 * 16 / 2**bits).astype(np.float32)
    biases = rng.standard_normal((rows, columns // group)).astype(np.float32)
    return packed, scales, biases


def decoded(packed, scales, biases, bits):
    """The numbers of a weight, [rows, columns], as float32."""
    codes = np.stack([packed >> np.uint32(s) & np.uint32(2**bits - 1) for s in range(0, 32, bits)], 2)
    codes = codes.reshape(len(packed), -1)
    group = codes.shape[1] // scales.shape[1]
    return codes * np.repeat(scales.astype(np.float32), group, 1) + np.repeat(biases.astype(np.float32), group, 1)


def qmv(make: Maker, x, weight, numbers, bits, tolerance=1e-3) -> Case:
    """x [m, k] of few rows. Two arrays beside the codes are scales and biases (affine); one, of bytes, is mxfp."""
    affine_ = len(weight) == 3
    file, prefix, group = ("quantized", "affine", 64) if affine_ else ("fp_quantized", "fp", 32)
    out = np.zeros((len(x), len(numbers)), x.dtype)
    operands = [*weight, x] if affine_ else [*weight, None, x]
    sizes = [msl.Output(out), np.int32(x.shape[1]), np.int32(len(numbers))]
    return make.case(
        file,
        f"{prefix}_qmv_fast",
        f"{TYPES[x.dtype.name]}, {group}, {bits}, false",
        f"{prefix}_qmv_fast {bits}-bit",
        {**dict(enumerate([*operands, *sizes])), **dict.fromkeys(range(7, 20 if affine_ else 14))},
        out,
        x.astype(np.float32) @ numbers.T,
        tolerance,
        (32, 2, 1),
        groups=(len(x), len(numbers) // 8, 1),
    )


def qmm(make: Maker, x, weight, numbers, bits, tolerance=0.5, nax=False) -> Case:
    """x [m, k] of many rows; as for qmv. With nax by matmul2d, in tiles of 64 x 64."""
    affine_ = len(weight) == 3
    file, prefix, group = ("quantized", "affine", 64) if affine_ else ("fp_quantized", "fp", 32)
    tile, suffix = (64, "_nax") if nax else (32, "")
    template = f"{TYPES[x.dtype.name]}, {group}, {bits}, true, false"
    if nax and affine_:
        template += ", 64, 64, 64, 2, 2"
    (m, k), n = x.shape, len(numbers)
    out = np.zeros((m, n), x.dtype)
    operands = [*weight, x] if affine_ else [*weight, None, x]
    sizes = [msl.Output(out), np.int32(k), np.int32(n), np.int32(m)]
    return make.case(
        file + suffix,
        f"{prefix}_qmm_t{suffix}",
        template,
        f"{prefix}_qmm_t{suffix} {bits}-bit",
        {
            **dict(enumerate([*operands, *sizes])),
            **dict.fromkeys(range(8, 20 if affine_ and not nax else 15 + affine_)),
        },
        out,
        x.astype(np.float32) @ numbers.T,
        tolerance,
        (32, 2, 2),
        groups=(n // tile, ceil_div(m, tile), 1),
        # As for gemm_nax below: simdgroups at the edge run another instantiation of the loop.
        findings=frozenset({"divergent-barrier"} if nax and m % tile else ()),
    )


def quantized(make: Maker, rng) -> list[Case]:
    rows, k, m = 64, 512, 40
    weight = affine(rng, rows, k, 4)
    half = (weight[0], *(t.astype(np.float16) for t in weight[1:]))
    numbers, numbers_half = decoded(*weight, 4), decoded(*half, 4)
    out = np.zeros((rows, k), np.float32)
    x = rng.standard_normal((m, k)).astype(np.float16)
    return [
        qmv(make, rng.standard_normal((1, k)).astype(np.float32), weight, numbers, 4),
        qmm(make, x, half, numbers_half, 4),
        make.case(
            "quantized",
            "affine_dequantize",
            "float, 64, 4, false",
            "affine_dequantize 4-bit",
            [weight[0].view(np.uint8), *weight[1:], msl.Output(out)],
            out,
            numbers,
            1e-5,
            (64, 1, 1),
            threads=(out.size // 2, 1, 1),
        ),
        *_mxfp8(make, rng, x, rows),
    ]


def _mxfp8(make: Maker, rng, x, rows) -> list[Case]:
    k = x.shape[1]
    data = rng.integers(0, 0x78, (rows, k)).astype(np.uint8) | (rng.integers(0, 2, (rows, k)) << 7).astype(np.uint8)
    scale = rng.integers(118, 122, (rows, k // 32)).astype(np.uint8)
    powers = np.exp2(scale.astype(np.float32) - 127).repeat(32, 1)
    numbers = data.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * powers
    weight = data.view(np.uint32), scale
    return [
        qmv(make, x[:1].astype(np.float32), weight, numbers, 8, 0.1),
        qmm(make, x, weight, numbers, 8, 1),
        qmm(make, x, weight, numbers, 8, 1, nax=True),
    ]


def gemm(make: Maker, rng) -> list[Case]:
    found = []
    for nax, (m, n, k) in ((False, (150, 96, 80)), (True, (150, 96, 320))):
        bm, bn, bk, wm, wn = (64, 64, 256, 2, 2) if nax else (64, 64, 16, 2, 2)
        file = "steel_gemm_fused_nax" if nax else "steel_gemm_fused"
        for ta, tb, layout in [
            (a, b, lay) for a, b in ((0, 0), (0, 1), (1, 0)) for lay in (("m5", "pre_m5") if nax else ("m5",))
        ]:
            a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
            stored_a, stored_b = (np.ascontiguousarray(v.T) if t else v for v, t in ((a, ta), (b, tb)))
            out = np.zeros((m, n), np.float16)
            tiles = ceil_div(n, bn), ceil_div(m, bm)
            sizes = struct.pack(
                "<8i3q3ii", m, n, k, stored_a.shape[1], stored_b.shape[1], n, *tiles, 0, 0, 0, 0, k // bk, 0, 0
            )
            flags = [str(bool(t)).lower() for t in (ta, tb)]
            # Edge simdgroups run another instantiation of the loop, and so meet the others at another barrier.
            known = frozenset({"divergent-barrier"}) if nax else frozenset()
            found.append(
                make.case(
                    file,
                    "gemm",
                    f"half, {bm}, {bn}, {bk}, {wm}, {wn}, {', '.join(flags)}",
                    f"{'nt'[ta]}{'nt'[tb]} on {layout}",
                    {0: stored_a, 1: stored_b, 2: None, 3: msl.Output(out), 4: sizes, **dict.fromkeys(range(5, 12))},
                    out,
                    a.astype(np.float32) @ b.astype(np.float32),
                    6e-2,
                    (32, wn, wm),
                    groups=(*tiles, 1),
                    constants={10: 0, 100: 0, 110: 0, 200: 0, 201: 0, 202: int(k % bk == 0 and not nax)},
                    options={"layout": layout},
                    findings=known,
                    wrong=nax and layout == "pre_m5",
                )
            )
    return found


def steel_attention(make: Maker, q, k, v, nax=False) -> Case:
    """Many queries of float16 [b, h, lq, d]; with nax by matmul2d."""
    (b, h, lq, d), (_, h_kv, lk, _) = q.shape, k.shape
    file, kernel, bq = ("steel_attention_nax", "attention_nax", 64) if nax else ("steel_attention", "attention", 32)
    bk = 32 if nax or d < 128 else 16
    strides = [s for t in (q, k, v, q) for s in (t.shape[1] * t.shape[2] * d, t.shape[2] * d, d)]
    blocks = ceil_div(lq, bq), ceil_div(lk, bk)
    sizes = struct.pack(
        "<6if7i12q", b, h, d, lq, lk, h // h_kv, d**-0.5, *blocks, lq // bq, lk // bk, lq % bq, lk % bk, 0, *strides
    )
    out = np.zeros_like(q)
    return make.case(
        file,
        kernel,
        f"half, {bq}, {bk}, {d}, {d}, 4, 1, half",
        "half",
        {0: q, 1: k, 2: v, 3: msl.Output(out), 4: sizes, **dict.fromkeys(range(5, 8))},
        out,
        attention(q, k, v, d**-0.5),
        4e-3,
        (32, 4, 1),
        groups=(blocks[0], h, b),
        constants={200: int(lq % bq == 0), 201: int(lk % bk == 0), 300: 0, 301: 0, 302: 0},
    )


NO_MASK = dict.fromkeys(range(20, 26), 0)
DECODE_TOLERANCE = {"float16": 4e-3, "float32": 1e-5}


def sdpa_vector(make: Maker, q, k, v) -> Case:
    """One query, in one dispatch."""
    (_, h, _, d), (_, h_kv, n, _) = q.shape, k.shape
    out, name = np.zeros_like(q), TYPES[q.dtype.name]
    sizes = [np.int32(h // h_kv), np.int32(n), *map(np.uint64, (n * d, d, n * d, d)), np.float32(d**-0.5)]
    return make.case(
        "sdpa_vector",
        "sdpa_vector",
        f"{name}, {d}, {d}",
        name,
        {**dict(enumerate([q, k, v, msl.Output(out), *sizes])), **dict.fromkeys(range(11, 20))},
        out,
        attention(q, k, v, d**-0.5),
        DECODE_TOLERANCE[q.dtype.name],
        (1024,),
        groups=(h, 1, 1),
        constants=NO_MASK,
    )


def sdpa_vector_2pass(make: Maker, q, k, v, blocks=64) -> list[Case]:
    """Few queries, the keys split into blocks: two dispatches, and only the second has a result to compare."""
    (b, h, lq, d), (_, h_kv, n, _) = q.shape, k.shape
    rows, name = b * h * lq, TYPES[q.dtype.name]
    partials, out = np.zeros((rows, blocks, d), q.dtype), np.zeros_like(q)
    sums, maxs = (np.zeros((rows, blocks), np.float32) for _ in range(2))
    first = [q, k, v, *map(msl.Output, (partials, sums, maxs)), None, np.int32(n)]
    first += [*map(np.uint64, (n * d, d, n * d, d)), np.float32(d**-0.5)]
    return [
        make.case(
            "sdpa_vector",
            "sdpa_vector_2pass_1",
            f"{name}, {d}, {d}",
            f"2pass_1 {name}",
            {i: value for i, value in {**dict(enumerate(first)), **dict.fromkeys(range(13, 19))}.items() if i != 6},
            partials[:0],
            partials[:0],
            0,
            (32, h // h_kv, lq),
            groups=(h_kv, b, blocks),
            constants={**NO_MASK, 26: blocks},
        ),
        make.case(
            "sdpa_vector",
            "sdpa_vector_2pass_2",
            f"{name}, {d}",
            f"2pass_2 {name}",
            [partials, sums, maxs, msl.Output(out), np.int32(blocks)],
            out,
            attention(q, k, v, d**-0.5),
            DECODE_TOLERANCE[q.dtype.name],
            (1024, 1, 1),
            groups=(b * h, lq, 1),
            constants=NO_MASK,
        ),
    ]


def attentions(make: Maker, rng) -> list[Case]:
    q, k, v = (rng.standard_normal((1, 2, n, 64)).astype(np.float16) for n in (100, 83, 83))
    found = [steel_attention(make, q, k, v, nax) for nax in (False, True)]
    q, k, v = (rng.standard_normal((1, 4, length, 64)).astype(np.float32) for length in (1, 300, 300))
    shared = [np.ascontiguousarray(t[:, :2]) for t in (k, v)]
    return [*found, sdpa_vector(make, q, k, v), *sdpa_vector_2pass(make, q, *shared)]
