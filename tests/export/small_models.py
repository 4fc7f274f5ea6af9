"""A small model with both sorts of attention calls, and an export of it that any process can make: python -m."""

import sys

import torch
from torch import nn
from torch.nn import functional as F


class Small(nn.Module):
    """An attention module of PyTorch, then linear layers and grouped causal attention by F.sdpa."""

    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(32, 4, batch_first=True)
        self.query, self.key = nn.Linear(32, 64), nn.Linear(32, 16, bias=False)
        self.mlp = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 32))

    def forward(self, x, scale=1.0):
        x = x + self.mha(x, x, x, need_weights=False)[0]
        query, key = (linear(x).unflatten(-1, (-1, 8)).transpose(1, 2) for linear in (self.query, self.key))
        y = F.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)
        return {"y": self.mlp(y.transpose(1, 2).flatten(2)) * scale, "rows": x.shape[1]}


def small() -> Small:
    torch.manual_seed(0)
    return Small().eval()


if __name__ == "__main__":
    from torch_mtl4.export.coreai import export

    export(small(), torch.zeros(2, 5, 32), sys.argv[1], weights="mxfp8", verify=False)
