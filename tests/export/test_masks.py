"""Masks that are known at export become windows of the kernels; others stay."""

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.export.conversion import Calls, convert
from torch_mtl4 import flash_attention
from torch_mtl4.export.coreai.masks import drop_masks
from torch_mtl4.testing import randn


def positions(query, key):
    q_len, kv_len = query.shape[2], key.shape[2]
    return torch.arange(kv_len)[None, :] - torch.arange(q_len)[:, None] - (kv_len - q_len)


BANDS = {
    "causal": (lambda d: d <= 0, (-1, 0)),
    "sliding": (lambda d: (d <= 0) & (d > -4), (3, 0)),
    "both sides": (lambda d: d.abs() <= 2, (2, 2)),
    "all": (lambda d: d < 1000, (-1, -1)),
    "of every head": (lambda d: (d <= 0).expand(2, 1, *d.shape), (-1, 0)),
}
OTHERS = {
    "holes": lambda d: (d <= 0) & (d % 3 != 1),
    "of one head": lambda d: torch.stack([d <= 0, d <= 1])[None],
    "nothing": lambda d: d > 1000,
    "behind": lambda d: d <= -1,
    "additive": lambda d: torch.where(d <= 0, 0.0, -torch.inf),
}


def exported(mask_of, q_len=12, kv_len=20, dynamic=None):
    """(what was dropped, the window and mask of the call, result before and after)."""
    inputs = [randn(2, 2, n, 8, seed=i) for i, n in enumerate((q_len, kv_len, kv_len))]
    module = Calls(lambda q, k, v: flash_attention(q, k, v, attn_mask=mask_of(positions(q, k))))
    program = torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic and (tuple(dynamic),))
    program = program.run_decompositions()
    before, dropped = program.module()(*inputs), drop_masks(program)
    program.graph.lint()
    torch.testing.assert_close(program.module()(*inputs), before)
    (call,) = [node for node in program.graph.nodes if "flash_attention" in str(node.target)]
    return dropped, call.args


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("q_len", [12, 20])
def test_bands_become_windows(name, q_len):
    mask_of, window = BANDS[name]
    dropped, args = exported(mask_of, q_len)
    assert dropped == 1 and args[3:7] == (None, None, *window)


@pytest.mark.parametrize("name", OTHERS)
def test_other_masks_stay(name):
    dropped, args = exported(OTHERS[name])
    assert dropped == 0 and args[3] is not None


def test_masks_of_lengths_that_vary_stay():
    length = Dim("l", min=4, max=64)
    dropped, _ = exported(BANDS["causal"][0], 20, 20, [{2: length}] * 3)
    assert dropped == 0


def test_masks_that_depend_on_inputs_or_change_stay():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("fixed", torch.ones(12, 12, dtype=torch.bool).tril())

        def forward(self, x, padding):
            y = flash_attention(x, x, x, attn_mask=self.fixed)
            return flash_attention(y, y, y, attn_mask=self.fixed & padding)

    inputs = [randn(1, 2, 12, 8), torch.ones(12, dtype=torch.bool)]
    found = []
    _, emission = convert(Model(), inputs, prepare=lambda program: found.append(drop_masks(program)))
    assert found == [1]
    assert [call.kernel.n_inputs for call in emission.calls] == [3, 4]
