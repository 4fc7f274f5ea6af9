"""What a GPU runs for flash_attention: the tier, the tile, the splits of few queries, the function constants."""

import json
import re
import struct

import pytest
import torch

from torch_mtl4 import _metal_sources, _ops

from .golden import DEVICES, summary

TENSOR_OPS = {"M5 macOS 26.2", "M5 Max macOS 26.2", "M5 Max macOS 27", "M6 macOS 27"}


def operands(
    q_len=512, kv_len=512, head_dim=128, v_head_dim=None, heads=8, kv_heads=2, batch=1, dtype=torch.float16, **_
):
    shapes = (
        (batch, heads, q_len, head_dim), (batch, kv_heads, kv_len, head_dim),
        (batch, kv_heads, kv_len, head_dim if v_head_dim is None else v_head_dim),
    )  # fmt: skip
    return [torch.empty(shape, dtype=dtype) for shape in shapes]


def plan(caps="g13g macos14", operands_=None, mask=None, causal=None, window=(-1, -1), softcap=None, sinks=None,
         alibi=None, **sizes):  # fmt: skip
    tensors = operands(**sizes) if operands_ is None else operands_
    return _ops.flash_attention_plan(*tensors, mask, causal, *window, None, softcap, sinks, alibi, caps)


def kernels(*args, **options):
    """language, then each pass as "name groups"."""
    first, *rest = summary(plan(*args, **options))
    short = [re.sub(r"\{.*\}\(.*?\) (\S+) groups of (\S+), .*", r" \1 of \2", line) for line in rest]
    return [first.removeprefix("flash_attention "), *(line.removeprefix("flash_attention_") for line in short)]


@pytest.mark.parametrize("device", DEVICES)
def test_many_queries(device):
    caps = DEVICES[device]
    if device in TENSOR_OPS:
        assert kernels(caps) == ["4.0", "tensor_ops_half_128 8x8x1 of 128x1x1"]
        assert kernels(caps, head_dim=192, v_head_dim=256, dtype=torch.float32) == [
            "4.0", "tensor_ops_float_128 8x16x1 of 128x1x1"]  # fmt: skip
    else:
        assert kernels(caps) == ["3.1", "prefill_half_128_128 16x8x1 of 128x1x1"]
        assert kernels(caps, head_dim=192, v_head_dim=256, dtype=torch.float32) == [
            "3.1", "prefill_float_0_256 16x8x1 of 128x1x1"]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
def test_one_query(device):
    """Plain arithmetic on every GPU; the splits are as many as fill it."""
    caps = DEVICES[device]
    splits = 64 if caps[3] == "s" else 20
    assert kernels(caps, q_len=1, kv_len=32768) == [
        "3.1", f"partials: {8 * splits * 130 * 4} bytes",
        f"decode_half_128_4 {splits}x2x1 of 256x1x1", "merge_half 1x8x1 of 32x1x1",
    ]  # fmt: skip


def test_tiles_of_head_dims():
    def tiles(caps, head_dim, v_head_dim):
        return kernels(caps, head_dim=head_dim, v_head_dim=v_head_dim)[1].split()[0]

    dims = [
        (1, 1),
        (64, 64),
        (65, 64),
        (64, 65),
        (96, 96),
        (97, 1),
        (128, 128),
        (129, 1),
        (1, 129),
        (576, 512),
        (1, 576),
    ]
    assert [tiles("g13g macos14", *pair).removeprefix("prefill_half_") for pair in dims] == [
        "64_64", "64_64", "96_96", "96_96", "96_96", "128_128", "128_128", "0_128", "0_256", "0_256", "0_256",
    ]  # fmt: skip
    assert [tiles("g17g macos26.2 tensor_ops", *pair).removeprefix("tensor_ops_half_") for pair in dims] == [
        "64", "64", "64", "96", "96", "64", "128", "64", "128", "128", "128",
    ]  # fmt: skip


def test_wide_values_are_cut_into_chunks():
    assert kernels(v_head_dim=576)[1].split()[1] == "16x24x1"
    assert kernels("g17g macos26.2 tensor_ops", v_head_dim=576)[1].split()[1] == "8x40x1"


def test_tiles_of_few_queries():
    def tile(heads, q_len, head_dim):
        name, groups = kernels(q_len=q_len, kv_len=200, heads=heads, head_dim=head_dim, kv_heads=1)[1].split()[:2]
        return name.removeprefix("decode_half_"), groups

    assert tile(1, 1, 64) == ("64_1", "1x1x1")
    assert tile(1, 2, 64) == ("64_4", "1x1x1")
    assert tile(4, 1, 64) == ("64_4", "1x1x1")
    assert tile(5, 1, 128) == ("128_8", "1x1x1")
    assert tile(5, 8, 128) == ("128_8", "1x5x1")
    assert tile(5, 1, 129) == ("256_4", "1x2x1")
    assert tile(128, 1, 576) == ("576_2", "1x64x1")
    assert kernels(q_len=9, heads=1, kv_heads=1)[1].startswith("prefill")


def test_splits_grow_with_the_gpu_and_end_at_256_keys():
    def splits(caps, kv_len, **options):
        return int(
            kernels(caps, q_len=1, kv_len=kv_len, **options)[-2 if kv_len > 256 else -1].split()[1].split("x")[0]
        )

    assert [splits("g13g macos14", n) for n in (1, 256, 257, 512, 513, 8192, 100000)] == [1, 1, 2, 2, 3, 20, 20]
    assert [splits("g16s macos15", n) for n in (512, 8192, 100000)] == [2, 32, 64]
    assert splits("g16s macos15", 8192, batch=40) == 2
    assert splits("g16s macos15", 100000, window=(1000, 0), causal="lower_right") == 4


@pytest.mark.parametrize("which", range(3))
def test_matmul2d_gets_strides_that_it_takes(which):
    caps = "g17g macos26.2 tensor_ops"
    tensors = operands(q_len=9, kv_len=32, heads=2)
    for stride, tier in ((1 << 24, "tensor_ops"), ((1 << 24) + 1, "prefill"), (0, "prefill")):
        shape = tensors[which].shape
        if stride == 0:
            strided = tensors[which][:, :, :1].expand(shape)
        else:
            # Storage that nobody touches: as large as the strides say, and not one page of it in use.
            far = torch.empty(stride * 31 + 128, dtype=torch.float16)
            strided = far.as_strided(shape, (0, 0, stride, 1))
        changed = [strided if i == which else t for i, t in enumerate(tensors)]
        assert kernels(caps, changed)[1].startswith(tier)


def test_short_keys_go_to_the_simdgroup_tier():
    caps = "g17g macos26.2 tensor_ops"
    assert kernels(caps, kv_len=31)[1].startswith("prefill") and kernels(caps, kv_len=32)[1].startswith("tensor_ops")


def test_constants_follow_the_arguments():
    def constants(**options):
        step = json.loads(plan(q_len=16, kv_len=16, **options))["passes"][0]
        return {name: value for _, name, value in step["constants"]}, [name for _, name in step["arguments"]]

    plain = {
        "has_mask": False, "mask_type": 0, "has_sinks": False, "has_alibi": False, "has_softcap": False,
        "splits_keys": False, "gives_result": True, "weights_in_memory": False,
    }  # fmt: skip
    assert constants() == (plain, ["query", "key", "value", "out", "lse"])
    masks = (torch.bool, torch.float32, torch.float16, torch.bfloat16)
    for number, dtype in enumerate(masks, 1):
        found, arguments = constants(mask=torch.zeros(16, 16, dtype=dtype))
        assert found == {**plain, "has_mask": True, "mask_type": number} and "attn_mask" in arguments
    found, arguments = constants(softcap=2.0, sinks=torch.zeros(8), alibi=torch.zeros(8))
    assert found == {**plain, "has_sinks": True, "has_alibi": True, "has_softcap": True}
    assert arguments == ["query", "key", "value", "sinks", "alibi_slopes", "out", "lse"]


def test_sinks_and_results_come_in_the_pass_that_finishes():
    options = {"sinks": torch.zeros(8), "alibi": torch.zeros(8), "mask": torch.zeros(1, 1), "softcap": 2.0}
    steps = json.loads(plan(q_len=1, kv_len=1000, **options))["passes"]
    first, second = ({name: value for _, name, value in step["constants"]} for step in steps)
    assert first["splits_keys"] and not first["gives_result"] and not first["has_sinks"] and first["has_alibi"]
    assert first["has_mask"] and first["mask_type"] == 2 and first["has_softcap"]
    assert [name for name, value in second.items() if value] == ["has_sinks", "gives_result"]
    assert [[name for _, name in step["arguments"]] for step in steps] == [
        ["query", "key", "value", "attn_mask", "alibi_slopes", "partials"],
        ["sinks", "out", "lse", "partials"],
    ]


def test_indices_are_those_of_the_source():
    source = _metal_sources.flattened("flash_attention")
    defines = dict(re.findall(r"#define (FLASH_ATTENTION_\w+) (\d+)", source))
    declared = re.findall(r"constant (\w+) (\w+) \[\[function_constant\((\w+)\)\]\]", source)
    step = json.loads(plan())["passes"][0]
    want = [[int(defines[index]), name, kind == "bool"] for kind, name, index in declared]
    assert [[index, name, isinstance(value, bool)] for index, name, value in step["constants"]] == want and want
    buffers = {re.sub("^attn_mask$", "mask", name): index for index, name in step["arguments"]}
    for name, index in {**buffers, "params": step["params"][0]}.items():
        assert set(re.findall(rf"\b{name} \[\[buffer\((\d+)\)", source)) == {str(index)}


def test_params():
    tensors = operands(q_len=16, kv_len=40, heads=8, kv_heads=2, batch=3, head_dim=24, v_head_dim=20)
    data = bytes.fromhex(
        json.loads(plan(operands_=tensors, causal="lower_right", window=(7, 3)))["passes"][0]["params"][1]
    )
    numbers = struct.unpack("<25q6i2f", data)
    q, k, v, out = (numbers[i : i + 3] for i in range(0, 12, 3))
    assert [q, k, v] == [t.stride()[:3] for t in tensors] and out == (16 * 8 * 20, 20, 8 * 20)
    mask, alibi, sinks, lengths = numbers[12:16], numbers[16:18], numbers[18], numbers[19:21]
    assert (mask, alibi, sinks, lengths) == ((0, 0, 0, 0), (0, 0), 0, (16, 40))
    assert numbers[21:25] == (24, 7, 0, 0)  # diagonal, left, right, keys_per_split
    assert numbers[25:31] == (1, 8, 2, 24, 20, 1)  # splits, heads, kv_heads, head_dim, v_head_dim, v_chunks
    assert numbers[31:] == (pytest.approx(24**-0.5), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operands_": [torch.empty(1, 1, 8, 4).mT] * 3}, "a last stride of 1, got 4, 4 and 4"),
        ({"mask": torch.zeros(1, 1, dtype=torch.float64)}, "attn_mask of a dtype that Metal has, got float64"),
        ({"q_len": 0}, "something to compute, got an empty query"),
        (
            {"operands_": [torch.empty(1).expand((1 << 21) + 1, 2, 9, 1)] * 3},
            "at most 2097152 threadgroups in each dimension, got 2097153",
        ),
    ],
)
def test_what_cannot_be_planned_raises(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        plan(**options)
