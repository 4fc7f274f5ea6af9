"""Operations that Core AI lacks, taken apart: they give what PyTorch's own give."""

import pytest
import torch

from torch_mtl4 import testing
from torch_mtl4.export.coreai.decompositions import ours

OURS = ours()
aten = torch.ops.aten


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("out_int32", [False, True])
def test_bucketize(right, out_int32):
    boundaries = torch.tensor([0.1, 0.3, 0.3, 0.9])
    x = torch.tensor([[0, 0.1, 0.2], [0.3, 0.95, 1]])
    options = {"right": right, "out_int32": out_int32}
    ours = OURS[aten.bucketize.Tensor](x, boundaries, **options)
    testing.assert_equal(ours, torch.bucketize(x, boundaries, **options))


@pytest.mark.parametrize("dimension, size, step", [(1, 3, 2), (-1, 4, 4), (2, 2, 3), (0, 2, 1)])
def test_unfold(dimension, size, step):
    x = testing.randn(2, 7, 9)
    testing.assert_equal(OURS[aten.unfold.default](x, dimension, size, step), x.unfold(dimension, size, step))


@pytest.mark.parametrize("values", [[True, True], [True, False], []])
def test_is_all_true(values):
    x = torch.tensor(values, dtype=torch.bool)
    assert OURS[aten._is_all_true.default](x).item() == all(values)


def test_reciprocal_of_integers():
    x = torch.tensor([1, 2, -4])
    testing.assert_equal(OURS[aten.reciprocal.default](x), x.reciprocal())
    assert OURS[aten.reciprocal.default](x.float()) is NotImplemented
