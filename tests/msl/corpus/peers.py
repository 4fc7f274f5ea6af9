"""Other projects' kernels for what this package's ops compute, on given arrays: whom our counts are compared with.

Each function gives the cases by a name; those of several dispatches are lists in their order. `matmul2d` asks for the
kernels that are built on it, else on simdgroup_matrix or on plain arithmetic.
"""

from pathlib import Path

import numpy as np

from . import cases_llama, cases_torch
from . import cases_mlx_products as mlx
from .cases import Case
from .mlx_maker import Maker
from .sources import llama_folder

Peers = dict[str, list[Case]]


def prefill(cache: Path, q, k, v, matmul2d: bool) -> Peers:
    """q [1, H, LQ, D] and k, v [1, H, LK, D] of float16; llama.cpp takes its queries, and writes, as float32."""
    make = Maker(cache)
    if matmul2d:
        return {
            "MLX attention_nax": [mlx.steel_attention(make, q, k, v, nax=True)],
            "torch prefill_attention_mpp": [cases_torch.mpp(cache, q, k, v)],
        }
    return {
        "MLX attention": [mlx.steel_attention(make, q, k, v)],
        "torch prefill_attention": [cases_torch.prefill(cache, q, k, v)],
        "llama.cpp flash_attn_ext": [
            cases_llama.flash_attention(llama_folder(cache), q.astype(np.float32), k, v, absent=1)
        ],
    }


def decode(cache: Path, q, k, v) -> Peers:
    """q [1, H, 1, D] and k, v [1, Hkv, LK, D], as above."""
    return {
        "MLX sdpa_vector": [mlx.sdpa_vector(Maker(cache), q, k, v)],
        "MLX sdpa_vector_2pass": mlx.sdpa_vector_2pass(Maker(cache), q, k, v),
        "torch sdpa_vector_2pass": cases_torch.decode(cache, q, k, v),
    }


def linear(cache: Path, x, data, scale, numbers, matmul2d: bool) -> Peers:
    """x [M, K] of float16 times mxfp8 (data and scale as bytes) or other formats of 8 bits an element.

    MLX's affine format has a scale and a bias of float16 for 64 elements, q8_0 a scale of float16 for 32; llama.cpp
    reads x, and writes, as float32. Each is compared with the values of its own weight.
    """
    make, rng, folder, m = Maker(cache), np.random.default_rng(1), llama_folder(cache), len(x)
    packed, *rest = mlx.affine(rng, *data.shape, 8)
    affine = packed, *(t.astype(np.float16) for t in rest)
    affine_numbers = mlx.decoded(*affine, 8)
    mxfp8, q8_0, wide = (data.view(np.uint32), scale), cases_llama.q8_0(numbers), x.astype(np.float32)

    def allowed(weight):
        return 0.01 * float(np.abs(wide @ weight.T).max())

    if m == 1:
        return {
            "MLX fp_qmv_fast (mxfp8)": [mlx.qmv(make, x, mxfp8, numbers, 8, allowed(numbers))],
            "MLX affine_qmv_fast (8 bits)": [mlx.qmv(make, x, affine, affine_numbers, 8, allowed(affine_numbers))],
            "llama.cpp mul_mv (q8_0)": [cases_llama.mul_mv(folder, *q8_0, wide)],
        }
    nax, layout = ("_nax", "m5") if matmul2d else ("", None)
    qmm = {"MLX fp_qmm_t%s (mxfp8)": (mxfp8, numbers), "MLX affine_qmm_t%s (8 bits)": (affine, affine_numbers)}
    found = {
        name % nax: [mlx.qmm(make, x, weight, values, 8, allowed(values), nax=matmul2d)]
        for name, (weight, values) in qmm.items()
    }
    return found | {"llama.cpp mul_mm (q8_0)": [cases_llama.mul_mm(folder, "q8_0", *q8_0, wide, layout)]}
