"""MLX: quantized products, gemm and attention, with and without matmul2d."""

import struct

import numpy as np

from torch_mtl4 import msl

from .cases import Case, attention, ceil_div
from .mlx_maker import Maker


def quantized(make: Maker, rng) -> list[Case]:
    group, out_size, k, m = 64, 64, 512, 40
    codes = rng.integers(0, 16, (out_size, k))
    packed = sum(codes[:, i::8].astype(np.uint32) << np.uint32(4 * i) for i in range(8))
    scales = (rng.random((out_size, k // group)) * 0.1).astype(np.float32)
    biases = rng.standard_normal((out_size, k // group)).astype(np.float32)

    def decoded(dtype):
        wide = [np.repeat(v.astype(dtype).astype(np.float32), group, 1) for v in (scales, biases)]
        return codes * wide[0] + wide[1]

    x = rng.standard_normal((1, k)).astype(np.float32)
    out = np.zeros((1, out_size), np.float32)
    found = [
        make.case(
            "quantized",
            "affine_qmv_fast",
            "float, 64, 4, false",
            "affine_qmv_fast 4-bit",
            {
                0: packed,
                1: scales,
                2: biases,
                3: x,
                4: msl.Output(out),
                5: np.int32(k),
                6: np.int32(out_size),
                **dict.fromkeys(range(7, 20)),
            },
            out,
            x @ decoded(np.float32).T,
            1e-3,
            (32, 2, 1),
            groups=(1, out_size // 8, 1),
        )
    ]
    x = rng.standard_normal((m, k)).astype(np.float16)
    out = np.zeros((m, out_size), np.float16)
    found.append(
        make.case(
            "quantized",
            "affine_qmm_t",
            "half, 64, 4, true, false",
            "affine_qmm_t 4-bit",
            {
                0: packed,
                1: scales.astype(np.float16),
                2: biases.astype(np.float16),
                3: x,
                4: msl.Output(out),
                5: np.int32(k),
                6: np.int32(out_size),
                7: np.int32(m),
                **dict.fromkeys(range(8, 20)),
            },
            out,
            x.astype(np.float32) @ decoded(np.float16).T,
            0.5,
            (32, 2, 2),
            groups=(out_size // 32, ceil_div(m, 32), 1),
        )
    )
    out = np.zeros((out_size, k), np.float32)
    found.append(
        make.case(
            "quantized",
            "affine_dequantize",
            "float, 64, 4, false",
            "affine_dequantize 4-bit",
            [packed.view(np.uint8), scales, biases, msl.Output(out)],
            out,
            decoded(np.float32),
            1e-5,
            (64, 1, 1),
            threads=(out.size // 2, 1, 1),
        )
    )
    return found


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


def attentions(make: Maker, rng) -> list[Case]:
    b, h, d, lq, lk = 1, 2, 64, 100, 83
    q, k, v = (rng.standard_normal((b, h, n, d)).astype(np.float16) for n in (lq, lk, lk))
    strides = [s for n in (lq, lk, lk, lq) for s in (h * n * d, n * d, d)]
    found = []
    for file, kernel, bq, bk in (
        ("steel_attention", "attention", 32, 32),
        ("steel_attention_nax", "attention_nax", 64, 32),
    ):
        out = np.zeros_like(q)
        blocks = ceil_div(lq, bq)
        sizes = struct.pack(
            "<6if7i12q",
            b,
            h,
            d,
            lq,
            lk,
            1,
            d**-0.5,
            blocks,
            ceil_div(lk, bk),
            lq // bq,
            lk // bk,
            lq % bq,
            lk % bk,
            0,
            *strides,
        )
        found.append(
            make.case(
                file,
                kernel,
                f"half, {bq}, {bk}, 64, 64, 4, 1, half",
                "half",
                {0: q, 1: k, 2: v, 3: msl.Output(out), 4: sizes, **dict.fromkeys(range(5, 8))},
                out,
                attention(q, k, v, d**-0.5),
                4e-3,
                (32, 4, 1),
                groups=(blocks, h, b),
                constants={200: 0, 201: 0, 300: 0, 301: 0, 302: 0},
            )
        )
    h, n = 4, 300
    q, k, v = (rng.standard_normal((1, h, length, d)).astype(np.float32) for length in (1, n, n))
    out = np.zeros_like(q)
    found.append(
        make.case(
            "sdpa_vector",
            "sdpa_vector",
            "float, 64, 64",
            "float",
            {
                0: q,
                1: k,
                2: v,
                3: msl.Output(out),
                4: np.int32(1),
                5: np.int32(n),
                6: np.uint64(n * d),
                7: np.uint64(d),
                8: np.uint64(n * d),
                9: np.uint64(d),
                10: np.float32(d**-0.5),
                **dict.fromkeys(range(11, 20)),
            },
            out,
            attention(q, k, v, d**-0.5),
            1e-5,
            (1024,),
            groups=(h, 1, 1),
            constants={20: 0, 21: 0, 22: 0, 23: 0, 24: 0, 25: 0},
        )
    )
    return found
