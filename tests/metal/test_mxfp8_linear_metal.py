"""mxfp8_linear as GPUs would run it, on the MSL runner: vectors, simdgroup_matrix, and tensor operations."""

import pytest
import torch

from torch_mtl4 import testing
from torch_mtl4.testing import exact_layer, exact_x

from .gpus import ALL, SIMDGROUP, TENSOR_OPS
from .mxfp8_harness import (
    MOST,
    ONE,
    check_every_scale_byte,
    check_exact,
    check_nan_and_inf_stay_in_their_rows,
    check_normal_values,
    run,
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MATRIX_TYPES = (torch.float16, torch.bfloat16)  # what the tiers above simdgroup_matrix multiply
TILED = [(SIMDGROUP[0], dtype) for dtype in DTYPES] + [(TENSOR_OPS[0], dtype) for dtype in MATRIX_TYPES]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_few_rows(dtype):
    caps = SIMDGROUP[0]
    for m in range(1, 9):
        check_exact(caps, m, 33, 65, dtype, kernel="gemv", shuffle=True, seed=m)
    for n in (1, 2, 15, 16, 17, 31, 32, 65):
        check_exact(caps, 1, n, 32, dtype, kernel="gemv_1")
        check_exact(caps, 7, n, 32, dtype, kernel="gemv_8")
    for k in (1, 15, 16, 17, 31, 33, 511, 512, 513, 1023):
        check_exact(caps, 1, 5, k, dtype, kernel="gemv_1")
        check_exact(caps, 3, 5, k, dtype, kernel="gemv_4")


@pytest.mark.parametrize("k", [1024, 2050, 4097])
def test_few_rows_of_the_weight_share_simdgroups(k):
    for m in (1, 5):
        check_exact("g16s macos15", m, 37, k, torch.bfloat16, kernel="gemv", shuffle=True)


@pytest.mark.parametrize(("caps", "dtype"), TILED, ids=str)
def test_many_rows(caps, dtype):
    kernel = "tensor_ops" if caps in TENSOR_OPS else "simdgroup"
    for m in (9, 31, 32):
        check_exact(caps, m, 33, 33, dtype, kernel=f"{kernel}_32")
    for m in (33, 63, 64, 65, 129):
        check_exact(caps, m, 33, 33, dtype, kernel=f"{kernel}_64")
    for n in (1, 7, 8, 31, 63, 64, 65, 129):
        check_exact(caps, 10, n, 32, dtype, kernel=kernel)
    for k in (1, 15, 16, 17, 31, 32, 33, 63, 65, 100, 160):
        check_exact(caps, 10, 9, k, dtype, kernel=kernel, shuffle=True, seed=k)
    check_exact(caps, 65, 65, 64, dtype, "dense", bias=False, kernel=kernel)
    check_exact(caps, 10, 9, 0, dtype, "dense", kernel=kernel)


@pytest.mark.parametrize("layout", ["m5", "pre_m5", "scrambled"])
@pytest.mark.parametrize("dtype", MATRIX_TYPES, ids=str)
def test_every_layout_of_cooperative_tensors(dtype, layout):
    for shuffle in (False, True):
        for m in (20, 70):
            check_exact(TENSOR_OPS[0], m, 70, 70, dtype, layout=layout, shuffle=shuffle)


@pytest.mark.parametrize(("caps", "dtype"), TILED, ids=str)
def test_rows_of_the_weight_that_begin_at_multiples_of_16_bytes(caps, dtype):
    for m in (2, 20):
        for k in (48, 64, 80):
            check_exact(caps, m, 9, k, dtype, "dense")


@pytest.mark.parametrize("memory", testing.LAYOUTS)
def test_strides(memory):
    for m in (3, 20):
        check_exact(SIMDGROUP[0], m, 37, 100, torch.bfloat16, memory)
    check_exact(TENSOR_OPS[0], 20, 37, 100, torch.bfloat16, memory)


def test_rows_of_stride_0_and_leading_dimensions():
    weight, scale, values = exact_layer(1, 100)
    x = exact_x(20, 100, torch.float32)
    got, _ = run(SIMDGROUP[0], x.view(2, 5, 2, 100), weight.expand(50, 100), scale.expand(50, 4))
    testing.assert_equal(got, (x.double() @ values.T).float().expand(20, 50).reshape(2, 5, 2, 50).contiguous())


def test_empty_sizes_and_the_contract():
    for m, n, k in ((0, 5, 32), (3, 0, 32), (3, 5, 0)):
        check_exact(SIMDGROUP[0], m, n, k, torch.float32, "dense")
    weight, scale, _ = exact_layer(4, 64)
    with pytest.raises(ValueError, match="mxfp8_linear: expected weight"):
        run(SIMDGROUP[0], exact_x(2, 65, torch.float32), weight, scale)


@pytest.mark.parametrize(("caps", "dtype"), TILED, ids=str)
def test_normal_values(caps, dtype):
    check_normal_values(caps, dtype, 5, 70, 300, "gemv")
    check_normal_values(caps, dtype, 70, 70, 300, "tensor_ops" if caps in TENSOR_OPS else "simdgroup")


@pytest.mark.parametrize(("caps", "dtype"), TILED, ids=str)
def test_every_scale_byte(caps, dtype):
    for m in (2, 33):
        for exponent in (-12, 0, 12):
            check_every_scale_byte(caps, dtype, m, exponent)


@pytest.mark.parametrize(("caps", "dtype"), TILED, ids=str)
def test_nan_stays_in_its_row_of_the_weight_and_nan_and_inf_in_that_of_x(caps, dtype):
    for m in (3, 40):
        check_nan_and_inf_stay_in_their_rows(caps, dtype, m)


@pytest.mark.parametrize(("caps", "dtype"), TILED, ids=str)
def test_all_bits_of_x_count(caps, dtype):
    bits = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}[dtype]
    for m in (1, 40):
        x = torch.zeros(m, 64, dtype=dtype)
        x[:, 5] = 1 + 2.0**-bits
        weight = torch.zeros(3, 64, dtype=torch.uint8)
        weight[:, 5] = ONE
        got, _ = run(caps, x, weight, torch.full((3, 2), 127, dtype=torch.uint8), checked=False)
        testing.assert_equal(got, x[:, 5:6].expand(m, 3).contiguous())


@pytest.mark.parametrize(("caps", "dtype"), [case for case in TILED if case[1] != torch.float16], ids=str)
def test_huge_x_under_a_small_scale_does_not_overflow(caps, dtype):
    for m in (1, 40):
        x = torch.full((m, 64), 2.0**127, dtype=dtype)
        weight = torch.full((3, 64), MOST, dtype=torch.uint8)
        got, _ = run(caps, x, weight, torch.full((3, 2), 20, dtype=torch.uint8), checked=False)
        testing.assert_equal(got, torch.full((m, 3), 64 * 448 * 2.0**20, dtype=dtype))


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("caps", ALL)
def test_sizes_on_every_gpu(caps, dtype):
    for seed, m in enumerate((1, 2, 4, 7, 9, 31, 33, 64, 100, 129)):
        for n in (1, 15, 63, 64, 130):
            for k in (1, 16, 33, 96, 128, 256, 601):
                memory = ("poisoned", "dense")[k % 2]
                check_exact(caps, m, n, k, dtype, memory, n % 2 == 0, shuffle=True, seed=seed, checked=k < 100)
