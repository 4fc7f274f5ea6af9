"""Swaps of heads and rows move into the kernels of attention: graphs compute the same, and nothing is transposed."""

import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.export.conversion import convert, operations
from torch_mtl4 import flash_attention
from torch_mtl4.export.coreai.layouts import move_transposes
from torch_mtl4.integrations.names import ATTENTION_NAME
from torch_mtl4.testing import randn

HEADS, COLUMNS = 4, 16
HIDDEN = HEADS * COLUMNS


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def rotated_by_pairs(x, cos, sin):
    pairs = x.unflatten(-1, (-1, 2))
    swapped = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
    return x * cos + swapped * sin


class Attention(nn.Module):
    """Projections, `shaped` that makes [B, H, L, D] of what they give, attention, and an output projection."""

    def __init__(self, shaped, columns=3 * HIDDEN, **options):
        super().__init__()
        self.shaped, self.options = shaped, options
        self.project, self.out = nn.Linear(HIDDEN, columns), nn.Linear(HIDDEN, HIDDEN)
        self.register_buffer("angles", randn(64, COLUMNS))

    def forward(self, x):
        batch, length, _ = x.shape
        cos, sin = self.angles[:length].cos(), self.angles[:length].sin()
        query, key, value = self.shaped(self.project(x), cos, sin)
        y = flash_attention(query, key, value, causal="lower_right")
        return self.out(y.transpose(1, 2).reshape(batch, length, HIDDEN))


def heads_of(x, heads=HEADS):
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def plain(x, cos, sin):
    return [heads_of(t) for t in x.chunk(3, -1)]


def rope(x, cos, sin):
    query, key, value = plain(x, cos, sin)
    return rotated(query, cos, sin), rotated(key, cos[None, None], sin[None, None]), value


def rope_as_in_llama(x, cos, sin):
    query, key, value = plain(x, cos, sin)
    cos, sin = cos[None].unsqueeze(1), sin[None].unsqueeze(1)
    return rotated(query, cos, sin), rotated(key, cos, sin), value.contiguous()


def rope_by_pairs(x, cos, sin):
    query, key, value = plain(x, cos, sin)
    return rotated_by_pairs(query, cos, sin), rotated_by_pairs(key, cos, sin), value


def partial_rope(x, cos, sin):
    def rotate(t):
        return torch.cat((rotated(t[..., :8], cos[:, :8], sin[:, :8]), t[..., 8:]), -1)

    query, key, value = plain(x, cos, sin)
    return rotate(query), rotate(key), value


def normed(x, cos, sin):
    query, key, value = plain(x, cos, sin)
    query = query * torch.rsqrt(query.pow(2).mean(-1, keepdim=True) + 1e-6)
    return query * 0.5, torch.where(key > 3, 3.0, key).float(), value


def through_batches_of_heads(x, cos, sin):
    query, key, value = plain(x, cos, sin)
    merged = query.reshape(-1, *query.shape[2:])
    return merged.reshape(query.shape) * 2, key.reshape(-1, *key.shape[2:]).view(key.shape), value


def one_permutation_of_three(x, cos, sin):
    return x.reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)


def three_selected(x, cos, sin):
    qkv = x.reshape(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    return rotated(qkv[0], cos, sin), rotated(qkv[1], cos, sin), qkv[2]


def heads_split_late(x, cos, sin):
    return x.view(*x.shape[:2], HEADS, 3 * COLUMNS).transpose(1, 2).chunk(3, -1)


SHAPES = [plain, rope, rope_as_in_llama, rope_by_pairs, partial_rope, through_batches_of_heads,
          one_permutation_of_three, three_selected, heads_split_late, normed]  # fmt: skip


def transposed_operands(program):
    """Operands of kernels that a transpose feeds, through whatever moves or changes elements one by one."""
    through = ("reshape", "cast", "slice", "concat", "broadcasting", "copy_with_constraints", "expand", "split", "cos")
    found = []
    for call in operations(program, "coreai.metal4_kernel"):
        for number, value in enumerate(list(call.operands)[:3]):
            waiting = [value]
            while waiting:
                owner = waiting.pop().owner
                name = getattr(owner, "name", "")
                if name == "coreai.transpose":
                    found.append((call.attributes["kernel_name"].value, number))
                if any(word in name for word in through) and "matmul" not in name:
                    waiting += list(owner.operands)
    return found


def check_module(module, inputs, dynamic=None):
    """How many operands were freed; the graph gives the same as before, and no kernel has a transposed operand."""
    moved = []

    def prepare(program):
        before = program.module()(*inputs)
        moved.append(move_transposes(program))
        program.graph.lint()
        torch.testing.assert_close(program.module()(*inputs), before, rtol=0, atol=0)

    program, _ = convert(module, inputs, dynamic, prepare)
    assert not transposed_operands(program)
    return moved[0]


@pytest.mark.parametrize("shaped", SHAPES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
def test_no_transpose_feeds_a_kernel(shaped, dynamic):
    sizes = [{0: Dim("B", min=1, max=8), 1: Dim("L", min=2, max=64)}] if dynamic else None
    check_module(Attention(shaped), [randn(2, 20, HIDDEN)], sizes)


def test_a_cache_of_heads_first_is_read_as_it_is():
    class Cached(nn.Module):
        def forward(self, query, key, value):
            query = query.view(2, 1, HEADS, COLUMNS).transpose(1, 2)
            return flash_attention(query * 2, key, value)

    cache = [randn(2, HEADS, 40, COLUMNS, seed=i) for i in (1, 2)]
    assert check_module(Cached(), [randn(2, 1, HIDDEN), *cache]) == 1


def test_a_graph_without_attention_stays_as_it_is():
    program = torch.export.export(nn.Linear(3, 3), (torch.ones(2, 3),))
    before = str(program.graph)
    assert move_transposes(program) == 0 and str(program.graph) == before


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=2, num_attention_heads=HEADS,
                         num_key_value_heads=2, vocab_size=64, attn_implementation=ATTENTION_NAME)  # fmt: skip
    model = LlamaForCausalLM(config)
    return model, lambda ids: model(ids, use_cache=False).logits, [torch.arange(32).reshape(2, 16)], [{1: 128}]


def vit():
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=2, num_attention_heads=HEADS,
                       image_size=32, patch_size=8, attn_implementation=ATTENTION_NAME)  # fmt: skip
    model = ViTModel(config)
    return model, lambda x: model(x).last_hidden_state, [randn(2, 3, 32, 32)], [{}]


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=2, num_attention_heads=HEADS,
                        vocab_size=64, attn_implementation=ATTENTION_NAME)  # fmt: skip
    model = BertModel(config)
    inputs = [torch.arange(24).reshape(2, 12), torch.ones(2, 12, dtype=torch.int64)]
    return model, lambda ids, mask: model(ids, attention_mask=mask).last_hidden_state, inputs, [{1: 128}, {1: 128}]


@pytest.mark.parametrize("model", [llama, vit, bert])
@pytest.mark.parametrize("dynamic", [False, True])
def test_models_of_transformers(model, dynamic):
    pytest.importorskip("transformers")
    import torch_mtl4.integrations  # noqa: F401

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.function, self.inputs, self.sizes = model()

        def forward(self, *inputs):
            return self.function(*inputs)

    module = Model()
    length = Dim("L", min=2, max=128)
    sizes = [dict.fromkeys(each, length) for each in module.sizes]
    if dynamic and not any(sizes):
        pytest.skip("images of one size")
    moved = check_module(module, module.inputs, sizes if dynamic else None)
    assert moved == (4 if model is llama else 0)
