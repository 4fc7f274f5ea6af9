"""flash_attention as kernels of Core AI: converted, and every text run on the MSL runner with the grid of the IR."""

import itertools
import json
import re
from dataclasses import dataclass, field

import pytest
import torch
from torch.export import Dim

from tests.export import edge
from tests.export.conversion import Calls, constant_of, convert, kernels_of, operations
from torch_mtl4 import _ops, flash_attention
from torch_mtl4.export.coreai import attention_kernels
from torch_mtl4.export.coreai.attention_kernels import Attention
from torch_mtl4.export.coreai.context import CAPS
from torch_mtl4.reference.flash_attention import flash_attention as reference
from torch_mtl4.testing import allowed_error, assert_close, error_of, randn

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
ROWS_FIRST, HEADS_FIRST = (True,) * 3, (False,) * 3
CAUSAL = {"causal": "lower_right"}


@dataclass
class Case:
    """A call: sizes B, H, Hkv, Lq, Lk, D, Dv, and what else the op takes."""

    sizes: tuple
    dtype: torch.dtype = torch.float16
    mask: torch.dtype | None = None
    mask_shape: tuple = ()
    sinks: bool = False
    alibi: int = 0  # the rank of the slopes
    options: dict = field(default_factory=dict)

    def operands(self):
        batch, heads, kv_heads, q_len, kv_len, head_dim, v_head_dim = self.sizes
        shapes = [(batch, heads, q_len, head_dim), (batch, kv_heads, kv_len, head_dim),
                  (batch, kv_heads, kv_len, v_head_dim)]  # fmt: skip
        query, key, value = (randn(*shape, dtype=self.dtype, seed=i) for i, shape in enumerate(shapes))
        extras = {}
        if self.mask is not None:
            mask = randn(*(self.mask_shape or (batch, heads, q_len, kv_len)), seed=5)
            extras["attn_mask"] = mask > -0.5 if self.mask == torch.bool else mask.to(self.mask)
        if self.sinks:
            extras["sinks"] = randn(heads, seed=6)
        if self.alibi:
            extras["alibi_slopes"] = randn(*((batch, heads) if self.alibi == 2 else (heads,)), seed=7).abs()
        return query, key, value, extras

    def attention(self, rows_first=HEADS_FIRST, chosen_for=None, short=None):
        sizes = chosen_for or self.sizes
        mask = torch.uint8 if self.mask == torch.bool else self.mask
        window = tuple(-1 if side is None else side for side in self.options.get("window", (None, None)))
        return Attention(self.dtype, *sizes, mask, self.sinks, self.alibi > 0,
                         **{**self.options, "window": window}, rows_first=rows_first,
                         short=sizes[4] < 32 if short is None else short)  # fmt: skip


def at_the_edge(case, rows_first):
    """The operands as kernels take them: query, key, value, mask, sinks, alibi_slopes."""
    *qkv, extras = case.operands()
    qkv = [x.transpose(1, 2).contiguous() if first else x for x, first in zip(qkv, rows_first, strict=True)]
    mask = [m.to(torch.uint8) if m.dtype == torch.bool else m for m in [extras.get("attn_mask")] if m is not None]
    mask = [m[(None,) * (4 - m.dim())] for m in mask]
    sinks = [extras["sinks"]] if case.sinks else []
    alibi = [slopes[None] if slopes.dim() == 1 else slopes for slopes in [extras.get("alibi_slopes")] if case.alibi]
    return qkv, mask, sinks, alibi


def outcome(kernels, qkv, mask, sinks, alibi, execute):
    """out [B, H, Lq, Dv] and lse, by one kernel or two."""
    if len(kernels) == 1:
        out, lse = execute(kernels[0], [*qkv, *mask, *sinks, *alibi])
    else:
        partials = execute(kernels[0], [*qkv, *mask, *alibi])
        partials = partials[0] if isinstance(partials, tuple) else partials
        out, lse = execute(kernels[1], [partials, *sinks])
    return out.transpose(1, 2), lse


def check(case, rows_first=HEADS_FIRST, chosen_for=None, entry="", **options):
    kernels = attention_kernels.kernels_of(case.attention(rows_first, chosen_for), CAPS)
    (chosen,) = re.findall(r"using Kernel = \w+::(\w+<)", kernels[0].text)
    assert entry in (chosen, ""), chosen
    check_of(case, kernels, rows_first, **options)


def check_of(case, kernels, rows_first, **options):
    query, key, value, extras = case.operands()
    arguments = extras | case.options | {"return_lse": True}
    truth, lse_truth = reference(*(t.double() for t in (query, key, value)), **arguments)
    plain, plain_lse = reference(query, key, value, **arguments)
    edge_operands = at_the_edge(case, rows_first)
    for what, execute in (
        ("kernel", lambda kernel, operands: edge.run(kernel, operands, **options)),
        ("reference", lambda kernel, operands: kernel.reference(*operands)),
    ):
        out, lse = outcome(kernels, *edge_operands, execute)
        assert out.dtype == case.dtype and lse.dtype == torch.float32
        what = f"{what} {[k.name for k in kernels]}, {case}, {options}"
        assert_close(out, truth, allowed_error(error_of(plain, truth), truth, case.dtype), f"out of {what}")
        assert_close(lse, lse_truth, allowed_error(error_of(plain_lse, lse_truth), lse_truth, torch.float32),
                     f"lse of {what}")  # fmt: skip


OPTIONS = [
    Case((1, 2, 2, 20, 40, 32, 32)),
    Case((2, 4, 2, 20, 40, 32, 48), options=CAUSAL),
    Case((1, 2, 1, 40, 20, 32, 32), options={"causal": "upper_left"}),
    Case((1, 2, 1, 40, 20, 32, 32), options={"causal": "lower_right"}),
    Case((1, 2, 2, 20, 40, 32, 32), options={"window": (3, 2)}),
    Case((1, 2, 2, 20, 40, 32, 32), options={"window": (None, 0), "scale": -0.3, "softcap": 2.5}),
    Case((2, 2, 2, 20, 40, 32, 32), mask=torch.bool),
    Case((2, 2, 2, 20, 40, 32, 32), mask=torch.bool, mask_shape=(2, 1, 20, 40), options=CAUSAL),
    Case((2, 2, 2, 20, 40, 32, 32), mask=torch.float16, mask_shape=(1, 2, 1, 40)),
    Case((2, 2, 2, 20, 40, 32, 32), mask=torch.bfloat16, mask_shape=(20, 40)),
    Case((2, 2, 2, 20, 40, 32, 32), mask=torch.float32, mask_shape=(20, 1)),
    Case((1, 4, 2, 20, 40, 32, 32), sinks=True, alibi=1),
    Case((2, 4, 2, 20, 40, 32, 32), sinks=True, alibi=2, mask=torch.bool, options={"softcap": 4.0, **CAUSAL}),
]


@pytest.mark.parametrize("case", OPTIONS, ids=range(len(OPTIONS)))
def test_every_option_on_many_rows(case):
    check(case, ROWS_FIRST if OPTIONS.index(case) % 2 else HEADS_FIRST)


@pytest.mark.parametrize("case", OPTIONS, ids=range(len(OPTIONS)))
def test_every_option_on_few_rows(case):
    batch, heads, kv_heads, _, kv_len, *dims = case.sizes
    shape = tuple(min(n, 3) if n == 20 else n for n in case.mask_shape)
    few = Case((batch, heads, kv_heads, 3, kv_len, *dims), case.dtype, case.mask, shape, case.sinks, case.alibi,
               case.options)  # fmt: skip
    check(few, (True, False, False), entry="CoreAiDecode<")
    # Chosen for many keys, of which few rows see few where the mask is a band.
    band = case.options.get("causal") == "upper_left" or case.options.get("window", (None,))[0]
    many = (batch, heads, kv_heads, 3, 2048, *dims)
    check(few, (True, False, False), many, entry="CoreAiDecode<" if band else "CoreAiDecodeSplit<")


@pytest.mark.parametrize("rows_first", [*itertools.product((False, True), repeat=3)])
def test_each_operand_has_a_layout_of_its_own(rows_first):
    check(Case((2, 4, 2, 20, 40, 32, 48), options=CAUSAL), rows_first)


@pytest.mark.parametrize(
    ("sizes", "entry"),
    [
        ((1, 2, 1, 65, 33, 64, 64), "CoreAiTensorOps<"),
        ((1, 2, 1, 9, 70, 40, 90), "CoreAiTensorOps<"),
        ((1, 1, 1, 10, 64, 200, 160), "CoreAiTensorOps<"),
        ((2, 2, 1, 33, 31, 64, 40), "CoreAiPrefill<"),
        ((1, 2, 2, 9, 17, 96, 130), "CoreAiPrefill<"),
        ((1, 2, 2, 9, 5, 1, 1), "CoreAiPrefill<"),
        ((2, 6, 2, 2, 70, 64, 64), "CoreAiDecode<"),
        ((1, 2, 2, 1, 7, 130, 200), "CoreAiDecode<"),
        ((1, 2, 1, 8, 9, 576, 512), "CoreAiDecode<"),
        ((1, 4, 1, 2, 600, 64, 64), "CoreAiDecodeSplit<"),
    ],
)
def test_sizes_around_the_edges_of_tiles(sizes, entry):
    for dtype in (DTYPES[sum(sizes) % 3], DTYPES[(sum(sizes) + 1) % 3]):
        check(Case(sizes, dtype, options=CAUSAL), ROWS_FIRST, entry=entry)


@pytest.mark.parametrize(
    ("chosen_for", "sizes", "entry"),
    [
        # chosen for any number of rows and keys
        ((1, 2, 1, 4096, 4096, 32, 32), [(1, 1), (3, 31), (65, 20), (70, 33), (9, 100)], "CoreAiTensorOps<"),
        ((1, 2, 1, 4096, 20, 32, 32), [(1, 1), (33, 70)], "CoreAiPrefill<"),
        ((1, 2, 1, 8, 300, 32, 32), [(1, 1), (5, 70), (8, 9)], "CoreAiDecode<"),
        ((1, 2, 1, 8, 4096, 32, 32), [(1, 1), (2, 700), (8, 9)], "CoreAiDecodeSplit<"),
    ],
)
def test_one_text_serves_all_lengths(chosen_for, sizes, entry):
    for (q_len, kv_len), batch in zip(sizes, itertools.cycle((1, 2))):
        # A band of few rows sees few keys, which are not split.
        band = [] if "Split" in entry else [{"causal": "upper_left", "window": (5, None)}]
        for options in (CAUSAL, *band):
            case = Case((batch, 2, 1, q_len, kv_len, 32, 32), options=options)
            kernels = attention_kernels.kernels_of(case.attention(ROWS_FIRST, chosen_for, short=True), CAPS)
            assert entry in kernels[0].text
            check_of(case, kernels, ROWS_FIRST)


@pytest.mark.parametrize("layout", edge.LAYOUTS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("language", ["4.0", pytest.param("4.1", marks=pytest.mark.sweep)])  # one text is both's
def test_runs_in_every_layout_and_order(layout, shuffle, language):
    for sizes in ((1, 2, 1, 40, 70, 32, 32), (1, 2, 1, 12, 20, 32, 32), (1, 4, 2, 2, 600, 64, 64)):
        case = Case(sizes, sinks=True, mask=torch.bool, options=CAUSAL)
        check(case, ROWS_FIRST, layout=layout, shuffle=shuffle, language=language)


def call(query, key, value, **extras):
    """The op with key and value in [B, L, H, D], query in [B, H, L, D]."""
    return flash_attention(query, key.transpose(1, 2), value.transpose(1, 2), return_lse=True, **extras)


@pytest.mark.parametrize("case", OPTIONS, ids=range(len(OPTIONS)))
def test_converts(case):
    dtype = DTYPES[OPTIONS.index(case) % 3]
    case = Case(case.sizes, dtype, case.mask, case.mask_shape, case.sinks, case.alibi, case.options)
    query, key, value, extras = case.operands()
    inputs = [query, key.transpose(1, 2).contiguous(), value.transpose(1, 2).contiguous()]
    names = list(extras)
    program, emission = convert(
        Calls(lambda q, k, v, *rest: call(q, k, v, **dict(zip(names, rest, strict=True)), **case.options)),
        [*inputs, *extras.values()],
    )
    (kernel,) = emission.kernels.values()
    assert kernels_of(program) == [(kernel.name, kernel.text)]
    assert [slot.name for slot in kernel.operands[:3]] == ["query", "key", "value"]
    assert emission.calls[0].shapes[:3] == tuple(tuple(t.shape) for t in inputs)
    # The result goes out as [B, H, L, D]; no operand is transposed.
    assert len(operations(program, "coreai.transpose")) == 1


def test_the_grid_of_the_ir_is_that_of_the_plan():
    for sizes in (
        (1, 2, 1, 70, 70, 64, 64),
        (2, 4, 2, 40, 20, 200, 300),
        (2, 6, 2, 3, 70, 64, 64),
        (1, 4, 1, 2, 600, 64, 64),
    ):
        case = Case(sizes, options=CAUSAL)
        *qkv, _ = case.operands()
        inputs = [qkv[0], *(t.transpose(1, 2).contiguous() for t in qkv[1:])]
        program, emission = convert(Calls(lambda q, k, v: call(q, k, v, **CAUSAL)), inputs)
        plan = _ops.flash_attention_plan(*qkv, None, "lower_right", -1, -1, None, None, None, None, CAPS)
        passes, calls = json.loads(plan)["passes"], operations(program, "coreai.metal4_kernel")
        for step, operation, made in zip(passes, calls, emission.calls, strict=True):
            grid, threads = (constant_of(v) for v in list(operation.operands)[made.kernel.n_inputs :][:2])
            assert threads == step["threads"]
            assert grid == [g * t for g, t in zip(step["groups"], step["threads"], strict=True)]


@pytest.mark.parametrize("kv_least", [2, 32])
def test_dynamic_lengths_convert(kv_least):
    batch, length, keys = Dim("b", min=1, max=4), Dim("l", min=1, max=512), Dim("t", min=kv_least, max=4096)
    inputs = [torch.ones(2, 4, 40, 32), torch.ones(2, 50, 2, 32), torch.ones(2, 50, 2, 32)]
    dynamic = [{0: batch, 2: length}, {0: batch, 1: keys}, {0: batch, 1: keys}]
    program, emission = convert(Calls(lambda q, k, v: call(q, k, v, **CAUSAL)), inputs, dynamic)
    (kernel,) = emission.kernels.values()
    assert re.search(r"using Kernel = \w+::CoreAiTensorOps<float, uchar, 64, (\w+)>", kernel.text)[1] == (
        "true" if kv_least < 32 else "false"
    )
    (operation,) = operations(program, "coreai.metal4_kernel")
    assert constant_of(operation.operands[3]) is None and constant_of(operation.operands[4]) == [128, 1, 1]


@pytest.mark.parametrize(("inputs", "message"), [
    ([torch.ones(1, 2, 4, 32), torch.ones(1, 0, 2, 32), torch.ones(1, 0, 2, 32)], r"flash_attention: expected key with "
     r"elements, since Core AI has no empty tensors, got \['1', '0', '2', '32'\]"),
])  # fmt: skip
def test_what_core_ai_has_not_is_refused(inputs, message):
    with pytest.raises(NotImplementedError, match=message):
        convert(Calls(call), inputs)
