"""The CPU kernels of the mxfp8 ops, for each instruction set, on sums that any order of adding gives exactly.

With small integers for elements and powers of two for scales no sum rounds in float32, so whatever the tiles, the order
and the instruction set are, the result has one right value. The set is chosen once a process; each runs in its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_mtl4
from torch_mtl4 import mxfp8_dequantize, mxfp8_linear, mxfp8_quantize, testing
from torch_mtl4.testing import exact_layer, exact_x, integers

PACKAGE = Path(torch_mtl4.__file__).resolve().parents[1]  # the one under test, which may be a build of its own
pytestmark = pytest.mark.cpu_only

INSTRUCTION_SETS = ["baseline", "neon", "avx2", "avx512", "avx512_bf16", "amx"]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ONE, TWO, TWO_TO_MINUS_9, MOST = 0x38, 0x40, 0x01, 0x7E  # e4m3 codes


def check_exact(m, n, k, dtype, layout="poisoned"):
    weight, scale, values = exact_layer(n, k)
    x, bias = exact_x(m, k, dtype), integers(-9, 9, (n,), 4).to(dtype)
    tensors = [testing.lay_out(t, layout) for t in (x, weight, scale, bias)]
    want = (x.double() @ values.T + bias.double()).to(dtype)
    testing.assert_equal(mxfp8_linear(*tensors), want, f"M, N, K = {m, n, k}, {dtype}, {layout}")


def sizes_around_tile_edges():
    for dtype in DTYPES:
        for m in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 25, 31, 32, 33, 48, 64, 65, 97):
            check_exact(m, 45, 160, dtype)
        for n in (1, 3, 4, 5, 6, 7, 13, 14, 15, 27, 28, 29, 31, 32, 33, 55, 56, 57, 64, 127, 128, 129):
            for m in (1, 3, 6, 40):
                check_exact(m, n, 64, dtype)
        for k in (1, 2, 31, 32, 33, 63, 64, 65, 95, 96, 97, 255, 256, 257, 288, 511, 512, 513, 576, 1025, 2049, 2113):
            check_exact(1, 20, k, dtype)
            check_exact(20, 20, k, dtype)
            check_exact(100, 20, k, dtype)
        for m, k in ((20, 4100), (40, 16450), (100, 4200)):
            check_exact(m, 33, k, dtype)
    check_exact(515, 40, 70, torch.bfloat16)
    check_exact(1025, 15, 300, torch.float32)


def strides():
    for m in (1, 5, 40):
        for layout in testing.LAYOUTS:
            check_exact(m, 37, 100, torch.bfloat16, layout)
        weight, scale, values = exact_layer(1, 100)
        x = exact_x(m, 100, torch.float32)
        got = mxfp8_linear(x, weight.expand(50, 100), scale.expand(50, 4))
        testing.assert_equal(got, (x.double() @ values.T).float().expand(m, 50).contiguous(), "rows of stride 0")


def every_scale_byte_in_one_row():
    """255 rows; the row of byte b has blocks of scale b and 127, and elements at both ends of the format."""
    scale = torch.full((255, 3), 127, dtype=torch.uint8)
    scale[:, 1] = torch.arange(255)
    weight = torch.zeros(255, 96, dtype=torch.uint8)
    weight[:, 40], weight[:, 50] = MOST, TWO_TO_MINUS_9
    for dtype in DTYPES:
        for m in (1, 3, 33):
            for exponent in (-12, 0, 12):
                x = torch.zeros(m, 96, dtype=dtype)
                x[:, 40] = 2.0**exponent
                x[:, 50] = x[:, 40]
                x[0, 50] = 0
                values = torch.exp2(scale[:, 1].double() - 127 + exponent)
                want = torch.stack([448 * values, 448 * values + 2.0**-9 * values]).to(torch.float32).to(dtype)
                got = mxfp8_linear(x, weight, scale)
                # Results below the smallest normal number may be 0 where the hardware's products know no subnormals.
                tiny = want.abs() < torch.finfo(torch.float32).tiny
                rows = [0] if m == 1 else [0, m - 1]
                for row, line, flushed in zip(rows, want, tiny, strict=False):
                    close = torch.where(flushed & (got[row] == 0), 0, line)
                    testing.assert_equal(got[row], close, f"{dtype}, M = {m}, x = 2^{exponent}, row {row}")


def scales_of_blocks_that_hold_only_zeros():
    """Such a block counts for nothing under any scale but NaN, and does not turn its row away from the fast kernel."""
    for dtype in DTYPES:
        for m in (1, 3, 40):
            weight, scale, values = exact_layer(60, 160)
            weight[:, 32:64] = torch.tensor([0, 0x80], dtype=torch.uint8).repeat(16)
            scale[:, 1] = torch.arange(60).mul(5).clamp(max=254)
            values[:, 32:64] = 0
            x = exact_x(m, 160, dtype)
            testing.assert_equal(mxfp8_linear(x, weight, scale), (x.double() @ values.T).to(dtype))


def rows_with_nan_leave_the_others_alone():
    for dtype in DTYPES:
        for m in (1, 3, 40):
            weight, scale, values = exact_layer(60, 200)
            weight[2, 0], weight[33, 199], weight[59, 64] = 0x7F, 0xFF, 0x7F
            scale[7, 0], scale[30, 6] = 255, 255
            x = exact_x(m, 200, dtype)
            want = (x.double() @ values.T).to(dtype)
            want[:, [2, 7, 30, 33, 59]] = torch.nan
            testing.assert_equal(mxfp8_linear(x, weight, scale), want)


def infinity_and_nan_in_x_stay_in_their_row():
    for dtype in DTYPES:
        for m in (2, 40):
            weight, scale, values = exact_layer(20, 100)
            x = exact_x(m, 100, dtype)
            x[0, 3], x[1, 98] = torch.inf, torch.nan
            testing.assert_equal(mxfp8_linear(x, weight, scale), (x.double() @ values.T).to(dtype))


def all_bits_of_x_count():
    """A half has more bits than a bfloat16, and a float more than both: a kernel that rounds x shows."""
    for dtype in (torch.float32, torch.float16):
        for m in (1, 8, 40):
            bits = 23 if dtype == torch.float32 else 10
            x = torch.full((m, 64), 0.0, dtype=dtype)
            x[:, 5] = 1 + 2.0**-bits
            weight = torch.zeros(3, 64, dtype=torch.uint8)
            weight[:, 5] = ONE
            scale = torch.full((3, 2), 127, dtype=torch.uint8)
            testing.assert_equal(mxfp8_linear(x, weight, scale), x[:, 5:6].expand(m, 3).contiguous())


def x_at_both_ends_of_its_range():
    """Products that are subnormal or infinite before their scale makes them 1 and 2."""
    exponents = {-120: (0x04, 0x08, 254), -110: (ONE, TWO, 237), 110: (ONE, TWO, 17), 127: (ONE, TWO, 0)}
    for dtype in (torch.float32, torch.bfloat16):
        for m in (1, 2, 4, 9, 40):
            for exponent, (one, two, byte) in exponents.items():
                x = torch.zeros(m, 64, dtype=dtype)
                x[:, 5], x[:, 20] = 2.0**exponent, -(2.0**exponent)
                weight = torch.zeros(3, 64, dtype=torch.uint8)
                weight[:, 5], weight[:, 20] = one, two
                scale = torch.full((3, 2), byte, dtype=torch.uint8)
                want = torch.full((m, 3), -1.0, dtype=dtype)
                testing.assert_equal(mxfp8_linear(x, weight, scale), want, f"{dtype}, M = {m}, x = 2^{exponent}")


def thread_counts():
    threads = torch.get_num_threads()
    for dtype in DTYPES:
        for m, n, k in ((1, 300, 320), (5, 300, 320), (33, 290, 700), (200, 300, 2100), (600, 40, 300)):
            x = testing.randn(m, k, dtype=dtype)
            weight, scale = mxfp8_quantize(testing.randn(n, k, seed=2))
            try:
                results = []
                for count in (1, 2, 3):
                    torch.set_num_threads(count)
                    results.append((mxfp8_linear(x, weight, scale), *mxfp8_quantize(x)))
            finally:
                torch.set_num_threads(threads)
            for result in results[1:]:
                for got, want in zip(result, results[0], strict=True):
                    testing.assert_equal(got, want, f"M, N, K = {m, n, k}, {dtype}")


def codec():
    """Every bfloat16 (and so every edge of the scale) through quantize, every pair of bytes through dequantize."""
    every = torch.arange(65536).to(torch.int32).sub(32768).to(torch.int16).view(torch.bfloat16)
    every = every[every.isfinite()]
    x = torch.zeros(every.numel(), 33, dtype=torch.bfloat16)
    x[:, 7], x[:, 32] = every, every / 3
    for scaling in ("floor", "rceil", "ceil", "even"):
        data, scale = mxfp8_quantize(x, scaling=scaling)
        amax = every.double().abs()
        mantissa, exponent = torch.frexp(torch.where(amax == 0, 2.0**-200, amax))
        limit = {"floor": 1.0, "rceil": 448 / 512, "ceil": 0.5, "even": 31 / 32}[scaling]
        up = mantissa >= limit if scaling == "even" else mantissa > limit
        want = (exponent - 1 - 8 + 127 + up.int()).clamp(min=0)
        testing.assert_equal(scale[:, 0], want.to(torch.uint8), f"scale of {scaling}")
        scaled = (x.double() * torch.exp2(127 - scale.double()).repeat_interleave(32, 1)[:, :33]).clamp(-448, 448)
        testing.assert_equal(data, scaled.float().to(torch.float8_e4m3fn).view(torch.uint8), f"data of {scaling}")

    codes = torch.arange(256).to(torch.uint8).repeat(256, 1)
    scales = torch.arange(256).to(torch.uint8)[:, None].expand(256, 8)
    values = codes.view(torch.float8_e4m3fn).double() * torch.exp2(scales.double() - 127).repeat_interleave(32, 1)
    values[255] = torch.nan
    for dtype in DTYPES:
        got = mxfp8_dequantize(codes, scales, dtype=dtype)
        testing.assert_equal(got, values.to(torch.float32).to(dtype), f"dequantize to {dtype}")


CASES = (
    codec,
    sizes_around_tile_edges,
    strides,
    every_scale_byte_in_one_row,
    scales_of_blocks_that_hold_only_zeros,
    rows_with_nan_leave_the_others_alone,
    infinity_and_nan_in_x_stay_in_their_row,
    all_bits_of_x_count,
    x_at_both_ends_of_its_range,
    thread_counts,
)


def run_cases():
    torch.set_num_threads(1)  # but in thread_counts: sums do not depend on them, and tests run side by side
    for case in CASES:
        case()
    print("passed", len(CASES))


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_instruction_set(isa):
    # In the folder of the tests: python -c looks for modules where it starts.
    here = Path(__file__).parent
    path = os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", "import test_mxfp8_cpu; test_mxfp8_cpu.run_cases()"],
        env={**os.environ, "TORCH_MTL4_CPU_ISA": isa, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        cwd=here,
    )
    if "this machine has no" in result.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert result.returncode == 0 and f"passed {len(CASES)}" in result.stdout, result.stderr[-3000:]
