"""mxfp8_linear on operands with scale planes, on the MSL runner: which calls get them, and what halves cannot hold."""

import pytest
import torch

from torch_mtl4 import testing
from torch_mtl4.testing import exact_layer, exact_x

from .gpus import SCALE_PLANES
from .mxfp8_harness import (
    MOST,
    check_every_scale_byte,
    check_exact,
    check_nan_and_inf_stay_in_their_rows,
    check_normal_values,
    run,
)

CAPS = SCALE_PLANES[0]
DTYPES = (torch.float16, torch.bfloat16)


def rows_128_bytes_apart(t, _):
    """As a slice of a larger weight: further apart than they are long, at an offset. Scales have to be dense."""
    if t.dtype != torch.uint8 or t.shape[1] % 128:
        return t.clone()
    buffer = testing.poison(t.shape[0] + 2, t.shape[1] + 128, dtype=t.dtype)
    return buffer[1:-1, 128:].copy_(t)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sizes(dtype):
    for m in (9, 32):
        check_exact(CAPS, m, 70, 128, dtype, "dense", kernel="scale_planes_32")
    for m in (33, 64, 65):
        check_exact(CAPS, m, 70, 128, dtype, "dense", bias=False, kernel="scale_planes_64", shuffle=True, seed=m)
    for n in (1, 15, 63, 64, 65, 129):
        check_exact(CAPS, 10, n, 128, dtype, "dense", kernel="scale_planes")
    for k in (256, 384, 640):
        check_exact(CAPS, 10, 9, k, dtype, "dense", kernel="scale_planes")
    check_exact(CAPS, 10, 66, 256, dtype, kernel="scale_planes", lay_out=rows_128_bytes_apart)


@pytest.mark.parametrize("layout", ["m5", "pre_m5", "scrambled"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_layout_of_cooperative_tensors(dtype, layout):
    for m in (20, 70):
        check_exact(CAPS, m, 70, 256, dtype, "dense", layout=layout, kernel="scale_planes")


def test_calls_that_the_operands_do_not_fit_are_dequantized():
    for k, memory in ((100, "dense"), (64, "dense"), (129, "dense"), (128, "poisoned")):
        check_exact(CAPS, 10, 9, k, torch.bfloat16, memory, kernel="tensor_ops")
    check_exact(CAPS, 10, 9, 128, torch.float32, "dense", kernel="simdgroup")
    check_exact(CAPS, 8, 9, 128, torch.float16, "dense", kernel="gemv")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_normal_values(dtype):
    check_normal_values(CAPS, dtype, 70, 70, 384, "scale_planes")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_scale_byte(dtype):
    for exponent in (-12, 0, 12):
        check_every_scale_byte(CAPS, dtype, 33, exponent, 128)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_inf_stay_in_their_rows(dtype):
    check_nan_and_inf_stay_in_their_rows(CAPS, dtype, 20, 256)


def test_rows_that_halves_cannot_hold_are_computed_from_their_bfloats():
    weight, scale, values = exact_layer(37, 128)
    x = exact_x(40, 128, torch.bfloat16)
    x[1] *= 2.0**100  # narrow: all of the row is large
    x[2] *= 2.0**-100
    x[3:10] = 0
    x[4, 5], x[4, 6] = 2.0**15, 2.0**-14  # narrow: from one end of half's range to the other
    x[5, 5], x[5, 6] = 2.0**16, 2.0**-14  # wide by one binade
    x[6, 5], x[6, 6] = 2.0**100, 1
    x[7, 9] = 2.0**-130  # a subnormal bfloat
    x[8] = x[10]
    x[8, 100] = torch.finfo(torch.bfloat16).tiny
    x[9] = x[10] * 2.0**110
    got, kernels = run(CAPS, x, weight, scale)
    assert kernels == ["mxfp8_narrow_bfloat", "mxfp8_scale_planes_64_bfloat", "mxfp8_wide_rows_bfloat"]
    testing.assert_equal(got, (x.double() @ values.T).float().bfloat16())


def test_a_column_of_zeros_hides_no_small_values_beside_a_large_one():
    """What a cast to half, or one factor for the row, would lose altogether."""
    weight, scale, values = exact_layer(37, 128)
    weight[:, 0], values[:, 0] = 0, 0
    x = exact_x(12, 128, torch.bfloat16)
    x[3, 0], x[11, 0] = 2.0**100, -(2.0**60)
    got, _ = run(CAPS, x, weight, scale)
    testing.assert_equal(got, (x.double() @ values.T).to(torch.bfloat16))


def test_sums_that_only_the_factor_makes_infinite_are_computed_again():
    weight = torch.zeros(5, 128, dtype=torch.uint8)
    weight[:, 3] = MOST
    scale = torch.full((5, 4), 237, dtype=torch.uint8)
    x = torch.zeros(10, 128, dtype=torch.bfloat16)
    x[:, 3] = 1
    got, _ = run(CAPS, x, weight, scale)
    testing.assert_equal(got, torch.full((10, 5), 448 * 2.0**110, dtype=torch.bfloat16))
