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


def test_rows_that_became_halves_read_no_weight_again(costs):
    cost = costs(SCALE_PLANES[0], 20, 128, 256, torch.bfloat16)["mxfp8_wide_rows_bfloat"]
    assert cost.buffers["weight"].read == 0 and cost.buffers["wide"].unique_read == 80
