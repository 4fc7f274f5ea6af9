"""What the kernels of mxfp8_linear read, counted on the MSL runner."""

import pytest
import torch

from torch_mtl4 import mxfp8_linear
from torch_mtl4.msl_backend import emulated
from torch_mtl4.testing import exact_layer, exact_x

from .gpus import SCALE_PLANES, SIMDGROUP, TENSOR_OPS


@pytest.fixture
def costs():
    """Runs a call, and gives the costs of its dispatches by kernel."""

    def run(caps, m, n, k, dtype):
        weight, scale, _ = exact_layer(n, k)
        with emulated(caps, count=True) as emulation:
            mxfp8_linear(exact_x(m, k, dtype), weight, scale)
        return {name: result.cost for name, result in emulation.dispatches}

    return run


@pytest.mark.parametrize("m", [1, 2, 3, 8])
def test_vectors_read_each_byte_of_the_weight_once(costs, m):
    n, k = 64, 1056
    (cost,) = costs(SIMDGROUP[0], m, n, k, torch.bfloat16).values()
    assert cost.buffers["weight"].read == cost.buffers["weight"].unique_read == n * k
    assert cost.buffers["out"].written == 2 * m * n


@pytest.mark.parametrize(("m", "columns"), [(1, 4), (2, 4), (4, 4), (8, 2)])
def test_a_simdgroup_owns_its_rows_of_the_weight(costs, m, columns):
    """No threadgroup memory, no barrier, a sum over the simdgroup for each result; x is read for each `columns`."""
    n, k = 120, 1024
    (cost,) = costs(SIMDGROUP[0], m, n, k, torch.float16).values()
    assert cost.threadgroup_barriers == cost.threadgroup_read == cost.threadgroup_written == 0
    assert cost.simdgroup_operations == {"simd_sum": m * n}
    assert cost.buffers["x"].read == n // columns * m * k * 2
    assert cost.buffers["scale"].read == n * k // 16  # a scale for each 16 codes
    assert cost.threads == n // columns * 32


def test_simdgroups_that_divide_k_meet_once(costs):
    """Two for each 4 of 60 rows of the weight: both write their sums, and the first reads those of the second."""
    (cost,) = costs(SIMDGROUP[0], 1, 60, 1024, torch.float16).values()
    assert cost.threadgroup_barriers == cost.threadgroups == 15
    assert cost.threadgroup_written == 15 * 2 * 4 * 4 and cost.threadgroup_read == 15 * 4 * 4
    assert cost.buffers["weight"].read == cost.buffers["weight"].unique_read == 60 * 1024


@pytest.mark.parametrize(
    ("caps", "kernel"),
    [(SIMDGROUP[0], "simdgroup"), (TENSOR_OPS[0], "tensor_ops"), (SCALE_PLANES[0], "scale_planes")],
)
def test_tiles_read_the_weight_once_for_64_rows_of_x(costs, caps, kernel):
    n, k = 128, 256
    for m, rows, times in ((20, 32, 1), (64, 64, 1), (65, 64, 2)):
        cost = costs(caps, m, n, k, torch.bfloat16)[f"mxfp8_{kernel}_{rows}_bfloat"]
        assert cost.buffers["weight"].read == times * n * k
        (products,) = cost.products.values()
        assert products.multiply_accumulates == times * rows * n * k
        steps = k // 32
        barriers = {"simdgroup": 2 * steps, "tensor_ops": steps, "scale_planes": k // 128}[kernel]
        assert cost.threadgroup_barriers == n // 64 * times * barriers


def test_rows_that_became_halves_read_no_weight_again(costs):
    cost = costs(SCALE_PLANES[0], 20, 128, 256, torch.bfloat16)["mxfp8_wide_rows_bfloat"]
    assert cost.buffers["weight"].read == 0 and cost.buffers["wide"].unique_read == 80
