"""What each GPU runs for mxfp8_linear: the tier, and where it falls back."""

import pytest
import torch

from torch_mtl4 import _ops

from .golden import DEVICES, summary

M5 = "g17s macos27 tensor_ops scale_planes"
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32


def plan(m, n, k, dtype=HALF, caps=M5, weight=None, scale=None, bias=True):
    x, b = torch.zeros(1, dtype=dtype).expand(m, k), torch.zeros(n, dtype=dtype) if bias else None
    weight = torch.zeros(1, k, dtype=torch.uint8).expand(n, k) if weight is None else weight
    scale = torch.zeros(1, dtype=torch.uint8).expand(n, (k + 31) // 32) if scale is None else scale
    return summary(_ops.mxfp8_linear_plan(x, weight, scale, b, caps))


def dense(n, k):
    return torch.empty(n, k, dtype=torch.uint8), torch.empty(n, (k + 31) // 32, dtype=torch.uint8)


def kernels(*args, **kwargs):
    return [line.split("{")[0] for line in plan(*args, **kwargs) if "{" in line]


SIMDGROUP, TENSOR_OPS, SCALE_PLANES = "simdgroup", "tensor_ops", "scale_planes"
TIERS = {
    "M1 macOS 14": SIMDGROUP,
    "M2 Pro macOS 15": SIMDGROUP,
    "M4 Max macOS 26.0": SIMDGROUP,
    "M4 Max macOS 26.2": SIMDGROUP,
    "M4 Max macOS 27": SIMDGROUP,
    "M5 macOS 26.0": SIMDGROUP,
    "M5 macOS 26.2": TENSOR_OPS,
    "M5 Max macOS 26.2": TENSOR_OPS,
    "M5 Max macOS 27": SCALE_PLANES,
    "M6 macOS 27": SCALE_PLANES,
}
LANGUAGES = {SIMDGROUP: "3.1", TENSOR_OPS: "4.0", SCALE_PLANES: "4.1"}


@pytest.mark.parametrize("device", DEVICES)
def test_the_tier_of_each_device(device):
    caps, tier = DEVICES[device], TIERS[device]
    weight, scale = dense(256, 512)
    for m, rows in ((9, 32), (32, 32), (33, 64), (4096, 64)):
        lines = plan(m, 256, 512, HALF, caps, weight, scale)
        assert lines[0] == f"mxfp8_linear {LANGUAGES[tier]}"
        assert [line.split("{")[0] for line in lines[1:]] == [f"mxfp8_{tier}_{rows}_half"]
        assert kernels(m, 256, 512, FLOAT, caps, weight, scale) == [f"mxfp8_simdgroup_{rows}_float"]
    for m, rows in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)):
        for dtype, name in ((HALF, "half"), (BFLOAT, "bfloat"), (FLOAT, "float")):
            assert kernels(m, 256, 512, dtype, caps, weight, scale) == [f"mxfp8_gemv_{rows}_{name}"]


def test_the_plans_in_full():
    weight, scale = dense(300, 1024)
    assert plan(3, 300, 1024, BFLOAT, "g13g macos14", weight, scale) == [
        "mxfp8_linear 3.1",
        "mxfp8_gemv_4_bfloat{has_bias=true, aligned=true, split=1}(x, weight, weight_scale, bias, out) "
        "38x1x1 groups of 64x1x1, [3, 300, 1024, 1024, 32, 1, 0, 0]",
    ]
    assert plan(100, 300, 1024, FLOAT, M5, weight, scale, bias=False) == [
        "mxfp8_linear 3.1",
        "mxfp8_simdgroup_64_float{has_bias=false, aligned=true}(x, weight, weight_scale, out) "
        "5x2x1 groups of 128x1x1, [100, 300, 1024, 1024, 32, 0, 0, 0]",
    ]
    assert plan(100, 300, 1024, BFLOAT, "g17g macos26.2 tensor_ops", weight, scale) == [
        "mxfp8_linear 4.0",
        "mxfp8_tensor_ops_64_bfloat{has_bias=true, aligned=true}(x, weight, weight_scale, bias, out) "
        "5x2x1 groups of 128x1x1, [100, 300, 1024, 1024, 32, 1, 0, 0]",
    ]
    assert plan(20, 300, 1024, BFLOAT, M5, weight, scale, bias=False) == [
        "mxfp8_linear 4.1",
        "narrowed: 40960 bytes",
        "factor: 80 bytes",
        "wide: 80 bytes",
        "mxfp8_narrow_bfloat{}(x, narrowed, factor, wide) 1x20x1 groups of 256x1x1, [20, 300, 1024, 1024, 32, 0, 0, 0]",
        "mxfp8_scale_planes_32_bfloat{has_bias=false, aligned=true}"
        "(narrowed, weight, weight_scale, out, factor, wide) "
        "5x1x1 groups of 128x1x1, [20, 300, 1024, 1024, 32, 0, 0, 0]",
        "mxfp8_wide_rows_bfloat{has_bias=false, aligned=true, split=2}(x, weight, weight_scale, out, wide) "
        "75x1x1 groups of 64x1x1, [20, 300, 1024, 1024, 32, 0, 0, 0]",
    ]


def test_what_scale_planes_do_not_take_is_dequantized():
    weight, scale = dense(20, 256)
    wide, _ = dense(21, 512)
    fitting = {"weight": [weight, wide[:20, 128:384], wide[1:, :256]], "scale": [scale, dense(36, 256)[1][16:]]}
    for weights in fitting["weight"]:
        for scales in fitting["scale"]:
            assert kernels(40, 20, 256, weight=weights, scale=scales) == ["mxfp8_scale_planes_64_half"]
    others = [
        {"weight": wide[:20, 1:257]},  # begins at a byte of its own
        {"weight": wide[:20, 64:320]},
        {"weight": dense(20, 320)[0][:, :256]},  # rows that 128 bytes do not divide
        {"weight": weight[:1].expand(20, 256)},
        {"scale": dense(20, 512)[1][:, :8]},  # gaps between rows of scales
        {"scale": dense(21, 256)[1][1:]},  # 8 bytes from the start
    ]
    for other in others:
        call = {"weight": weight, "scale": scale, **other}
        assert kernels(40, 20, 256, **call) == ["mxfp8_tensor_ops_64_half"], other
    for k in (32, 100, 192):
        assert kernels(40, 20, k, weight=dense(20, k)[0], scale=dense(20, k)[1]) == ["mxfp8_tensor_ops_64_half"]
    long_rows = torch.zeros(256, dtype=torch.uint8).as_strided((1, 256), (2**24, 1))
    assert kernels(40, 1, 256, weight=long_rows, scale=dense(1, 256)[1]) == ["mxfp8_tensor_ops_64_half"]


def test_alignment_is_of_start_and_rows():
    rows, longer = dense(9, 56)[0], dense(9, 64)[0]
    for weight, want in ((dense(9, 48)[0], "true"), (rows[:, :48], "false"), (longer[:, 8:56], "false"),
                         (longer[:, 16:], "true")):  # fmt: skip
        assert f"aligned={want}" in plan(20, 9, 48, FLOAT, weight=weight)[1]


@pytest.mark.parametrize("caps", [M5, "g13g macos14"])
def test_nothing_runs_for_nothing(caps):
    for m, n in ((0, 64), (64, 0), (8, 0), (0, 0)):
        assert len(plan(m, n, 128, BFLOAT, caps, *dense(n, 128))) == 1


@pytest.mark.parametrize(
    ("caps", "n", "k", "split", "groups", "threads"),
    [
        ("g13g macos14", 4096, 4096, 1, 512, 64),
        ("g13g macos14", 120, 4096, 1, 15, 64),  # 60 KiB under way, 6 for each of 10 cores
        ("g13g macos14", 119, 4096, 2, 30, 64),
        ("g13g macos14", 59, 4096, 4, 15, 128),
        ("g13g macos14", 14, 4096, 8, 4, 256),
        ("g13g macos14", 14, 1024, 2, 4, 64),
        ("g13g macos14", 14, 1023, 1, 2, 64),
        ("g16s macos15", 480, 4096, 1, 60, 64),
        ("g16s macos15", 479, 4096, 2, 120, 64),
        ("g15d macos15", 4096, 4096, 1, 512, 64),
        ("g15d macos15", 512, 4096, 2, 128, 64),
    ],
)
def test_few_rows_of_the_weight_divide_k_among_simdgroups(caps, n, k, split, groups, threads):
    line = plan(1, n, k, caps=caps)[1]
    assert f"split={split}}}" in line and f") {groups}x1x1 groups of {threads}x1x1" in line


def test_large_grids_are_divided():
    lines = plan(2**28, 64, 32, FLOAT)[1:]
    assert [line.split(") ")[1] for line in lines] == [
        f"1x2097152x1 groups of 128x1x1, [{2**28}, 64, 32, 0, 0, 1, {first}, 0]" for first in (0, 2**27)
    ]
