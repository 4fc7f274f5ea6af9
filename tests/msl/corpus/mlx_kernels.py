"""Which kernels of MLX's headers to instantiate: the wheel carries the templates, not the lines that instantiate them.

The choice is ours: every operation over the types that it is meant for, and tiles of sizes that MLX's host code uses.
A file is (name, headers, [(kernel, [template arguments, ...])]); a host name is kernel<template arguments>.
"""

from itertools import product

KERNELS = "mlx/backend/metal/kernels/"
REAL = ["float", "half", "bfloat"]
INTEGERS = ["uint8_t", "uint16_t", "uint32_t", "uint64_t", "int8_t", "int16_t", "int32_t", "int64_t"]
NUMBERS = [*REAL, *INTEGERS]
ALL = ["bool", *NUMBERS]
BOTH = ["false", "true"]
FLOATING = [
    "ArcCos",
    "ArcCosh",
    "ArcSin",
    "ArcSinh",
    "ArcTan",
    "ArcTanh",
    "Cos",
    "Cosh",
    "Erf",
    "ErfInv",
    "Exp",
    "Expm1",
]
FLOATING += ["Log", "Log2", "Log10", "Log1p", "Sigmoid", "Sin", "Sinh", "Sqrt", "Rsqrt", "Tan", "Tanh"]
FLOATING += ["Ceil", "Floor", "Round"]
SIGNED = ["Abs", "Negative", "Sign", "Square"]
OF_COMPLEX = ["ArcTan", "Cos", "Exp", "Log", "Sin", "Sqrt", "Rsqrt", "Tanh", "Negative", "Square", "Sign"]
ARITHMETIC = ["Add", "Divide", "Maximum", "Minimum", "Multiply", "Subtract", "Power", "Remainder"]
COMPARISONS = ["Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual"]
BITS = ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "LeftShift", "RightShift"]
SHAPES = ["binary_ss", "binary_sv", "binary_vs", "binary_vv", "binary_sv2", "binary_vs2", "binary_vv2"]
QUANTIZED = list(product(["32", "64", "128"], ["2", "3", "4", "5", "6", "8"]))  # group size, bits
FLOAT_FORMATS = [("32", "4"), ("32", "8"), ("16", "4")]  # mxfp4, mxfp8, nvfp4


def lists(*choices):
    """Every combination, one of each choice, as a list of template arguments."""
    return [", ".join(combination) for combination in product(*choices)]


def unary():
    of = [f"{t}, {t}, {op}" for t in REAL for op in FLOATING] + [f"{t}, {t}, {op}" for t in NUMBERS for op in SIGNED]
    of += [f"complex64_t, complex64_t, {op}" for op in OF_COMPLEX]
    of += [f"{t}, {t}, BitwiseInvert" for t in INTEGERS] + ["bool, bool, LogicalNot"]
    return [("unary_v", of), ("unary_v2", of), ("unary_g", [f"{a}, 4, int" for a in of])]


def binary():
    of = [f"{t}, {t}, {op}" for t in NUMBERS for op in ARITHMETIC]
    of += [f"{t}, bool, {op}" for t in ALL for op in COMPARISONS]
    of += [f"{t}, {t}, {op}" for t in INTEGERS for op in BITS] + [f"{t}, bool, NaNEqual" for t in REAL]
    of += [f"{t}, {t}, {op}" for t in REAL for op in ("LogAddExp", "ArcTan2")]
    of += [f"bool, bool, {op}" for op in ("LogicalAnd", "LogicalOr")]
    of += [f"complex64_t, complex64_t, {op}" for op in ("Add", "Subtract", "Multiply", "Divide")]
    strided = [(f"binary_g_nd{n}", [f"{a}, int" for a in of]) for n in (1, 2, 3)]
    return [(shape, of) for shape in SHAPES] + strided


def copy():
    pairs = [*lists(ALL, ALL), "complex64_t, complex64_t", "float, complex64_t"]
    strided = [f"copy_{kind}_nd{n}" for kind in ("g", "gg", "gg_dynamic") for n in (1, 2, 3)]
    return [(k, pairs) for k in ("copy_s", "copy_v", "copy_s2", "copy_v2")] + [
        (k, [f"{p}, int" for p in pairs]) for k in strided
    ]


def ternary():
    plain = lists(ALL, ["Select"], BOTH, BOTH)
    strided = lists(ALL, ["Select"], ["int"])
    return [("ternary_v", plain), ("ternary_v2", plain), *((f"ternary_g_nd{n}", strided) for n in (1, 2, 3))]


def scan():
    of = [f"{t}, {t}, {op}<{t}>" for t in NUMBERS for op in ("CumSum", "CumProd", "CumMax", "CumMin")]
    of += [f"{t}, {t}, CumLogaddexp<{t}>" for t in REAL]
    return [(k, lists(of, ["4"], BOTH, BOTH)) for k in ("contiguous_scan", "strided_scan")]


def sort():
    of = lists([f"{t}, {t}, false" for t in NUMBERS] + [f"{t}, uint32_t, true" for t in NUMBERS], ["128", "256"], ["4"])
    merged = [f"{t}, uint32_t, {arg}, 256, 4" for t in NUMBERS for arg in BOTH]
    parts = ("mb_block_sort", "mb_block_partition", "mb_block_merge")
    return [("block_sort", of), ("block_sort_nc", of), *((k, merged) for k in parts)]


def reduce():
    of = [f"{t}, {t}, {op}<{t}>" for t in NUMBERS for op in ("Sum", "Prod", "Min", "Max")] + [
        f"{t}, bool, {op}" for t in ("bool", "int32_t") for op in ("And<bool>", "Or<bool>")
    ]
    by_dimensions = lists(of, ["int"], ["1", "2", "5"])
    return [
        ("all_reduce", of),
        ("row_reduce_simple", of),
        *((k, by_dimensions) for k in ("row_reduce_small", "row_reduce_looped")),
        *((k, by_dimensions) for k in ("col_reduce_small", "col_reduce_longcolumn")),
        *((k, lists(by_dimensions, ["32"], ["32"])) for k in ("col_reduce_looped", "col_reduce_2pass")),
    ]


def quantized(prefix, formats):
    def over(*more):
        return lists(REAL, [", ".join(f) for f in formats], *more)

    return [
        (f"{prefix}_qmv_quad", over(["64", "128"], BOTH)),
        (f"{prefix}_qmv_fast", over(BOTH)),
        (f"{prefix}_qmv", over(BOTH)),
        (f"{prefix}_qvm", over(BOTH)),
        (f"{prefix}_qvm_split_k", over(["8", "32"])),
        (f"{prefix}_qmm_t", over(BOTH, BOTH)),
        (f"{prefix}_qmm_t_splitk", over(BOTH)),
        (f"{prefix}_qmm_n", over(BOTH)),
        (f"{prefix}_gather_qmv_fast", over()),
        (f"{prefix}_gather_qmv", over()),
        (f"{prefix}_gather_qvm", over()),
        (f"{prefix}_gather_qmm_t", over(BOTH)),
        (f"{prefix}_gather_qmm_n", over()),
        (f"{prefix}_gather_qmm_rhs", over(["16, 32, 32, 1, 2"], BOTH)),
        (f"{prefix}_quantize", over(["false"])),
        (f"{prefix}_dequantize", over(["false"])),
    ]


def gemm(kernel, tiles):
    return [(kernel, lists(REAL, tiles, BOTH, BOTH))]


TILES = ["64, 64, 16, 2, 2", "64, 64, 16, 1, 2", "64, 32, 32, 2, 2", "32, 64, 16, 1, 2", "32, 32, 16, 2, 2"]
NAX_BLOCK = "64, 64, 64, 2, 2"
NAX_TILES = ["64, 64, 256, 2, 2", "128, 128, 512, 4, 4", "64, 128, 256, 2, 4"]
ATTENTION = ["32, 32, 64, 64, 4, 1", "32, 32, 80, 80, 4, 1", "32, 16, 128, 128, 4, 1"]
NAX_ATTENTION = ["64, 32, 64, 64, 4, 1", "64, 32, 128, 128, 4, 1"]
STEEL = ["steel/gemm/gemm.h"]
CONV = ["steel/utils.h", *STEEL, "steel/conv/conv.h", "steel/conv/params.h"]
NAX = ["steel/gemm/gemm.h", "steel/gemm/nax.h"]
FILES = [
    ("unary", ["unary_ops.h", "unary.h"], unary()),
    ("binary", ["binary_ops.h", "binary.h"], binary()),
    ("binary_two", ["binary_ops.h", "binary_two.h"], [(k, [f"{t}, {t}, DivMod" for t in NUMBERS]) for k in SHAPES]),
    ("ternary", ["ternary_ops.h", "ternary.h"], ternary()),
    ("copy", ["copy.h"], copy()),
    ("arange", ["arange.h"], [("arange", NUMBERS)]),
    (
        "softmax",
        ["softmax.h"],
        [(k, [*REAL, "half, float", "bfloat, float"]) for k in ("softmax_single_row", "softmax_looped")],
    ),
    ("logsumexp", ["logsumexp.h"], [(k, REAL) for k in ("logsumexp", "logsumexp_looped")]),
    ("cross_entropy", ["cross_entropy.h"], [(k, REAL) for k in ("cross_entropy", "cross_entropy_vjp")]),
    ("scan", ["scan.h"], scan()),
    ("sort", ["sort.h"], sort()),
    ("searchsorted", ["sort.h", "searchsorted.h"], [("searchsorted", lists(NUMBERS, BOTH))]),
    ("reduce", ["atomic.h", "reduction/ops.h", "reduce.h"], reduce()),
    ("hadamard", ["hadamard.h"], [("hadamard_n", lists(REAL, ["64, 4, 2", "512, 8, 4", "2048, 16, 4"]))]),
    (
        "fft",
        ["fft.h"],
        [("fft", lists(["256", "512", "1024", "2048", "4096"], ["float2, float2", "float, float2", "float2, float"]))],
    ),
    (
        "sdpa_vector",
        ["sdpa_vector.h"],
        [
            ("sdpa_vector", lists(REAL, ["64, 64", "96, 96", "128, 128", "256, 256"])),
            ("sdpa_vector_2pass_1", lists(REAL, ["64, 64", "96, 96", "128, 128", "256, 256"])),
            ("sdpa_vector_2pass_2", lists(REAL, ["64", "96", "128", "256"])),
        ],
    ),
    ("quantized", [*STEEL, "quantized_utils.h", "quantized.h"], quantized("affine", QUANTIZED)),
    ("fp_quantized", [*STEEL, "quantized_utils.h", "fp_quantized.h"], quantized("fp", FLOAT_FORMATS)),
    ("steel_gemm_fused", [*STEEL, "steel/gemm/kernels/steel_gemm_fused.h"], gemm("gemm", TILES)),
    ("steel_gemm_gather", [*STEEL, "steel/gemm/kernels/steel_gemm_gather.h"], gemm("gather_mm", TILES)),
    ("steel_gemm_segmented", [*STEEL, "steel/gemm/kernels/steel_gemm_segmented.h"], gemm("segmented_mm", TILES)),
    (
        "steel_gemm_splitk",
        [*STEEL, "steel/gemm/kernels/steel_gemm_splitk.h"],
        [
            (
                "gemm_splitk",
                lists([f"{t}, float" for t in REAL], ["16, 32, 16, 2, 2", "32, 32, 16, 2, 2"], BOTH, BOTH, BOTH, BOTH),
            ),
            ("gemm_splitk_accum", [f"float, {t}" for t in REAL]),
        ],
    ),
    (
        "steel_gemm_fused_nax",
        [*NAX, "steel/gemm/gemm_nax.h", "steel/gemm/kernels/steel_gemm_fused_nax.h"],
        gemm("gemm", NAX_TILES),
    ),
    (
        "steel_gemm_splitk_nax",
        [*NAX, "steel/gemm/gemm_nax.h", "steel/gemm/kernels/steel_gemm_splitk_nax.h"],
        gemm("gemm_splitk_nax", NAX_TILES),
    ),
    (
        "quantized_nax",
        [*NAX, "quantized_nax.h"],
        [
            ("affine_qmm_t_nax", lists(REAL, ["64, 4", "64, 8", "32, 4"], BOTH, BOTH, [NAX_BLOCK])),
            ("affine_gather_qmm_t_nax", lists(REAL, ["64, 4", "64, 8", "32, 4"], BOTH, [NAX_BLOCK])),
        ],
    ),
    (
        "fp_quantized_nax",
        [*NAX, "quantized_utils.h", "fp_quantized_nax.h"],
        [
            ("fp_qmm_t_nax", lists(REAL, [", ".join(f) for f in FLOAT_FORMATS], BOTH, BOTH)),
        ],
    ),
    (
        "gemv",
        ["gemv.h"],
        [
            ("gemv", lists(REAL, ["4, 1, 1, 32, 4, 4", "1, 8, 1, 32, 4, 4", "8, 1, 1, 32, 1, 4"], BOTH, BOTH)),
            ("gemv_gather", lists(REAL, ["4, 1, 1, 32, 4, 4", "8, 1, 1, 32, 1, 4"])),
            ("gemv_wide", lists(REAL, ["4, 8", "8, 8"])),
        ],
    ),
    (
        "gemv_masked",
        ["steel/utils.h", "gemv_masked.h"],
        [
            (
                "gemv_masked",
                lists(REAL, ["bool, bool", "nomask_t, nomask_t"], ["4, 1, 1, 32, 4, 4"], BOTH),
            ),
        ],
    ),
    ("dot", ["dot.h"], [("dot_product", lists(REAL, ["16, 256, 8"]))]),
    (
        "steel_conv",
        [*CONV, "steel/conv/kernels/steel_conv.h"],
        [
            ("implicit_gemm_conv_2d", lists(REAL, ["64, 64, 16, 2, 2", "32, 64, 16, 1, 4"], ["0", "1", "2"], BOTH)),
        ],
    ),
    (
        "steel_conv_3d",
        [*CONV, "steel/conv/kernels/steel_conv_3d.h"],
        [
            ("implicit_gemm_conv_3d", lists(REAL, ["64, 64, 16, 2, 2", "32, 64, 16, 1, 4"], BOTH)),
        ],
    ),
    (
        "steel_conv_general",
        [*CONV, "steel/conv/kernels/steel_conv_general.h"],
        [
            ("implicit_gemm_conv_2d_general", lists(REAL, ["64, 64, 16, 2, 2", "32, 64, 16, 1, 4"])),
        ],
    ),
    (
        "steel_gemm_gather_nax",
        [*NAX, "steel/gemm/gemm_nax.h", "steel/gemm/kernels/steel_gemm_gather_nax.h"],
        [("gather_mm_rhs_nax", lists(REAL, NAX_TILES[:1], ["false"], BOTH))],
    ),
    (
        "steel_gemm_segmented_nax",
        [*NAX, "steel/gemm/gemm_nax.h", "steel/gemm/kernels/steel_gemm_segmented_nax.h"],
        gemm("segmented_mm_nax", NAX_TILES[:1]),
    ),
    (
        "gated_delta_update",
        ["gated_delta_update.h"],
        [
            ("gated_delta_fused_chunk", lists(REAL, ["128, 128, 16, 32, 16"])),
            ("gated_delta_seq", lists(REAL, ["128, 128, 16, 32, 16"])),
        ],
    ),
    (
        "steel_attention",
        ["steel/attn/kernels/steel_attention.h"],
        [("attention", lists(REAL, ATTENTION, [*REAL, "bool"]))],
    ),
    (
        "steel_attention_nax",
        ["steel/attn/kernels/steel_attention_nax.h"],
        [("attention_nax", lists(REAL, NAX_ATTENTION, [*REAL, "bool"]))],
    ),
]


def source(headers, kernels, limit=None):
    """(the .metal text, how many kernels it instantiates)"""
    named = [(f"{kernel}<{arguments}>", kernel, arguments) for kernel, all_of in kernels for arguments in all_of][
        :limit
    ]
    lines = ["#include <metal_stdlib>", f'#include "{KERNELS}utils.h"', *(f'#include "{KERNELS}{h}"' for h in headers)]
    lines += [f'instantiate_kernel("{name}", {kernel}, {arguments})' for name, kernel, arguments in named]
    return "\n".join(lines) + "\n", len(named)
