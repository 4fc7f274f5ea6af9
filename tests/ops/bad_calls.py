"""Calls that must raise: class, start of the text, function, arguments. Shared by eager, fake and compiled tests."""

import math

import torch

from torch_mtl4 import flash_attention, mxfp8_dequantize, mxfp8_linear, mxfp8_quantize, scaled_dot_product_attention

Q, K, V = (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)


def t(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


def attention(error, text, *, query=None, key=None, value=None, **options):
    query, key, value = (t(*s) if x is None else x for x, s in ((query, Q), (key, K), (value, V)))
    return error, f"flash_attention: expected {text}", flash_attention, (query, key, value), options


def sdpa(error, text, *shapes, **options):
    args = [x if not isinstance(x, tuple) else t(*x) for x in shapes]
    return error, f"scaled_dot_product_attention: expected {text}", scaled_dot_product_attention, args, options


def quantize(error, text, *args, **options):
    return error, f"mxfp8_quantize: expected {text}", mxfp8_quantize, args, options


def dequantize(error, text, *args, **options):
    return error, f"mxfp8_dequantize: expected {text}", mxfp8_dequantize, args, options


def linear(error, text, *args):
    return error, f"mxfp8_linear: expected {text}", mxfp8_linear, args, {}


BYTES = {"dtype": torch.uint8}

BAD_CALLS = {
    # rank and shapes
    "query rank": attention(ValueError, "query [B, H, Lq, D], got [4, 5, 8]", query=t(4, 5, 8)),
    "key rank": attention(ValueError, "key [B, Hkv, Lk, D], got [7, 8]", key=t(7, 8)),
    "value rank": attention(ValueError, "value [B, Hkv, Lk, Dv], got [1, 2, 2, 7, 6]", value=t(1, 2, 2, 7, 6)),
    "batch of key": attention(ValueError, "key [B, Hkv, Lk, D] = [2, Hkv, Lk, 8], got [3, 2, 7, 8]", key=t(3, 2, 7, 8)),
    "broadcast batch": attention(ValueError, "key [B, Hkv, Lk, D] = [2, Hkv, Lk, 8], got [1, 2, 7, 8]",
                                 key=t(1, 2, 7, 8)),
    "head dim of key": attention(ValueError, "key [B, Hkv, Lk, D] = [2, Hkv, Lk, 8], got [2, 2, 7, 9]",
                                 key=t(2, 2, 7, 9)),
    "heads of value": attention(ValueError, "value [B, Hkv, Lk, Dv] = [2, 2, 7, Dv], got [2, 1, 7, 6]",
                                value=t(2, 1, 7, 6)),
    "length of value": attention(ValueError, "value [B, Hkv, Lk, Dv] = [2, 2, 7, Dv], got [2, 2, 8, 6]",
                                 value=t(2, 2, 8, 6)),
    "head counts": attention(ValueError, "a number of query heads that the key heads divide, got H = 4, Hkv = 3",
                             key=t(2, 3, 7, 8), value=t(2, 3, 7, 6)),
    "more key heads": attention(ValueError, "a number of query heads that the key heads divide, got H = 4, Hkv = 8",
                                key=t(2, 8, 7, 8), value=t(2, 8, 7, 6)),
    "no key heads": attention(ValueError, "a number of query heads that the key heads divide, got H = 4, Hkv = 0",
                              key=t(2, 0, 7, 8), value=t(2, 0, 7, 6)),
    "large head dim": attention(NotImplementedError, "query with a head dim of at most 576, got 577",
                                query=t(2, 4, 5, 577), key=t(2, 2, 7, 577)),
    "large value dim": attention(NotImplementedError, "value with a head dim of at most 576, got 600",
                                 value=t(2, 2, 7, 600)),
    "head dim 0": attention(ValueError, "query with a head dim of at least 1, got 0",
                            query=t(2, 4, 5, 0), key=t(2, 2, 7, 0)),
    "value dim 0": attention(ValueError, "value with a head dim of at least 1, got 0", value=t(2, 2, 7, 0)),
    # dtypes, devices, types
    "float64": attention(NotImplementedError, "query of dtype float32, bfloat16 or float16, got torch.float64",
                         query=t(*Q, dtype=torch.float64), key=t(*K, dtype=torch.float64),
                         value=t(*V, dtype=torch.float64)),
    "integers": attention(TypeError, "query of dtype float32, bfloat16 or float16, got torch.int32",
                          query=t(*Q, dtype=torch.int32)),
    "mixed key": attention(TypeError, "key of query's dtype torch.float32, got torch.bfloat16",
                           key=t(*K, dtype=torch.bfloat16)),
    "mixed value": attention(TypeError, "value of query's dtype torch.float32, got torch.float16",
                             value=t(*V, dtype=torch.float16)),
    "device of key": attention(ValueError, "key on the device of query, cpu, got meta", key=t(*K, device="meta")),
    "device of query": attention(ValueError, "key on the device of query, meta, got cpu", query=t(*Q, device="meta")),
    "list": attention(TypeError, "query a torch.Tensor, got list", query=[1.0]),
    "none": attention(TypeError, "value a torch.Tensor, got str", value="value"),
    # masks
    "mask shape": attention(ValueError, "attn_mask broadcastable to [2, 4, 5, 7], got [5, 8]", attn_mask=t(5, 8)),
    "mask batch": attention(ValueError, "attn_mask broadcastable to [2, 4, 5, 7], got [3, 1, 5, 7]",
                            attn_mask=t(3, 1, 5, 7)),
    "mask of the kv heads": attention(ValueError, "attn_mask broadcastable to [2, 4, 5, 7], got [2, 5, 7]",
                                      attn_mask=t(2, 5, 7)),
    "mask rank": attention(ValueError, "attn_mask broadcastable to [2, 4, 5, 7], got [1, 2, 4, 5, 7]",
                           attn_mask=t(1, 2, 4, 5, 7)),
    "mask of no keys": attention(ValueError, "attn_mask broadcastable to [2, 4, 5, 7], got [5, 0]", attn_mask=t(5, 0)),
    "mask dtype": attention(TypeError, "attn_mask of dtype bool, float32, bfloat16, float16 or float64, "
                            "got torch.int64",
                            attn_mask=t(5, 7, dtype=torch.int64)),
    "mask bytes": attention(TypeError, "attn_mask of dtype bool, float32, bfloat16, float16 or float64, "
                            "got torch.uint8",
                            attn_mask=t(5, 7, dtype=torch.uint8)),
    "mask device": attention(ValueError, "attn_mask on the device of query, cpu, got meta",
                             attn_mask=t(5, 7, device="meta")),
    "mask type": attention(TypeError, "attn_mask a torch.Tensor, got bool", attn_mask=True),
    # words and numbers
    "causal word": attention(ValueError, "causal 'upper_left', 'lower_right' or None, got 'top_left'",
                             causal="top_left"),
    "causal flag": attention(TypeError, "causal 'upper_left', 'lower_right' or None, got True", causal=True),
    "window sign": attention(ValueError, "window's left side 0 or more, or -1 (or None) for unbounded, got -2",
                             window=(-2, 0)),
    "window right": attention(ValueError, "window's right side 0 or more, or -1 (or None) for unbounded, got -5",
                              window=(0, -5)),
    "window length": attention(ValueError, "window a pair (left, right), got 3 values", window=(1, 2, 3)),
    "window number": attention(TypeError, "window a pair (left, right) or None, got int", window=4),
    "window float": attention(TypeError, "window's right side an int or None, got float", window=(1, 0.5)),
    "window flag": attention(TypeError, "window's left side an int or None, got bool", window=(True, 1)),
    "scale nan": attention(ValueError, "scale finite, got nan", scale=math.nan),
    "scale inf": attention(ValueError, "scale finite, got inf", scale=math.inf),
    "scale type": attention(TypeError, "scale a number or None, got str", scale="auto"),
    "softcap zero": attention(ValueError, "softcap greater than 0, got 0.0", softcap=0.0),
    "softcap negative": attention(ValueError, "softcap greater than 0, got -3.0", softcap=-3.0),
    "softcap nan": attention(ValueError, "softcap finite, got nan", softcap=math.nan),
    "softcap tensor": attention(TypeError, "softcap a number or None, got ", softcap=t()),
    "sinks shape": attention(ValueError, "sinks [H] = [4], got [2]", sinks=t(2)),
    "sinks rank": attention(ValueError, "sinks [H] = [4], got [1, 4]", sinks=t(1, 4)),
    "sinks dtype": attention(TypeError, "sinks of a floating dtype, got torch.int64", sinks=t(4, dtype=torch.int64)),
    "sinks device": attention(ValueError, "sinks on the device of query, cpu, got meta", sinks=t(4, device="meta")),
    "slopes shape": attention(ValueError, "alibi_slopes [H] = [4] or [B, H] = [2, 4], got [2]", alibi_slopes=t(2)),
    "slopes batch": attention(ValueError, "alibi_slopes [H] = [4] or [B, H] = [2, 4], got [3, 4]",
                              alibi_slopes=t(3, 4)),
    "slopes scalar": attention(ValueError, "alibi_slopes [H] = [4] or [B, H] = [2, 4], got []", alibi_slopes=t()),
    "slopes type": attention(TypeError, "alibi_slopes a torch.Tensor, got float", alibi_slopes=0.5),
    # scaled_dot_product_attention
    "sdpa rank": sdpa(ValueError, "query with at least 2 dimensions, got [8]", (8,), (8,), (8,)),
    "sdpa gqa rank": sdpa(ValueError, "query with at least 3 dimensions, got [5, 8]",
                          (5, 8), (7, 8), (7, 8), enable_gqa=True),
    "sdpa head dim": sdpa(ValueError, "key [..., Lk, D] with D = 8, got [7, 9]", (5, 8), (7, 9), (7, 9)),
    "sdpa length": sdpa(ValueError, "value [..., Lk, Dv] with Lk = 7, got [6, 8]", (5, 8), (7, 8), (6, 8)),
    "sdpa heads": sdpa(ValueError, "leading dimensions of query, key and value that broadcast, got [2, 4, 5, 8], "
                       "[2, 2, 7, 8] and [2, 2, 7, 8]", (2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)),
    "sdpa gqa heads": sdpa(ValueError, "head counts of key and value that divide query's with enable_gqa, "
                           "got 4, 3 and 3",
                           (2, 4, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), enable_gqa=True),
    "sdpa mask": sdpa(ValueError, "attn_mask broadcastable to [4, 5, 7], got [2, 4, 5, 7]",
                      (4, 5, 8), (4, 7, 8), (4, 7, 8),
                      (2, 4, 5, 7)),
    "sdpa dropout": sdpa(NotImplementedError, "dropout_p 0, the only one that has a kernel, got 0.25",
                         Q, Q, Q, dropout_p=0.25),
    "sdpa bad dropout": sdpa(ValueError, "dropout_p from 0 to 1, got -0.5", Q, Q, Q, dropout_p=-0.5),
    "sdpa scale": sdpa(ValueError, "scale finite, got nan", Q, Q, Q, scale=math.nan),
    "sdpa float64": sdpa(NotImplementedError, "query of dtype float32, bfloat16 or float16, got torch.float64",
                         *(t(*Q, dtype=torch.float64) for _ in range(3))),
    "sdpa large head dim": sdpa(NotImplementedError, "query with a head dim of at most 576, got 577",
                                *[(2, 3, 577)] * 3),
    # mxfp8_quantize
    "quantize scalar": quantize(ValueError, "x [..., K], got []", t()),
    "quantize word": quantize(ValueError, "scaling 'floor', 'rceil', 'ceil' or 'even', got 'up'", t(64), scaling="up"),
    "quantize number": quantize(TypeError, "scaling 'floor', 'rceil', 'ceil' or 'even', got 3", t(64), scaling=3),
    "quantize integers": quantize(TypeError, "x of dtype float32, bfloat16 or float16, got torch.int8",
                                  t(64, dtype=torch.int8)),
    "quantize float64": quantize(NotImplementedError, "x of dtype float32, bfloat16 or float16, got torch.float64",
                                 t(64, dtype=torch.float64)),
    "quantize list": quantize(TypeError, "x a torch.Tensor, got list", [1.0]),
    "quantize gradient": quantize(NotImplementedError, "x without a gradient, which bytes cannot carry (pass "
                                  "x.detach()), "
                                  "got x.requires_grad = True", t(64).requires_grad_()),
    # mxfp8_dequantize
    "dequantize scale": dequantize(ValueError, "scale [N, ceil(K/32)] = [3, 2], got [3, 3]",
                                   t(3, 64, **BYTES), t(3, 3, **BYTES),
                                   dtype=torch.float32),
    "dequantize rank": dequantize(ValueError, "scale [..., ceil(K/32)] = [1, 3, 2], got [3, 2]", t(1, 3, 64, **BYTES),
                                  t(3, 2, **BYTES), dtype=torch.float32),
    "dequantize scalar": dequantize(ValueError, "data [..., K], got []", t(**BYTES), t(**BYTES), dtype=torch.float32),
    "dequantize dtype": dequantize(TypeError, "a result of dtype float32, bfloat16 or float16, got torch.int32",
                                   t(64, **BYTES), t(2, **BYTES), dtype=torch.int32),
    "dequantize float64": dequantize(NotImplementedError, "a result of dtype float32, bfloat16 or float16, "
                                     "got torch.float64",
                                     t(64, **BYTES), t(2, **BYTES), dtype=torch.float64),
    "dequantize word": dequantize(TypeError, "dtype a torch.dtype, got str",
                                  t(64, **BYTES), t(2, **BYTES), dtype="float32"),
    "dequantize data": dequantize(TypeError, "data of dtype uint8, int8 or float8_e4m3fn, got torch.float8_e5m2",
                                  t(64, dtype=torch.float8_e5m2), t(2, **BYTES), dtype=torch.float32),
    "dequantize swapped": dequantize(TypeError, "scale of dtype uint8, int8 or float8_e8m0fnu, got torch.float8_e4m3fn",
                                     t(64, **BYTES), t(2, dtype=torch.float8_e4m3fn), dtype=torch.float32),
    "dequantize device": dequantize(ValueError, "scale on the device of data, cpu, got meta", t(64, **BYTES),
                                    t(2, device="meta", **BYTES), dtype=torch.float32),
    # mxfp8_linear
    "linear K": linear(ValueError, "weight [N, K] = [N, 64], got [5, 96]",
                       t(3, 64), t(5, 96, **BYTES), t(5, 3, **BYTES)),
    "linear weight rank": linear(ValueError, "weight [N, K] = [N, 64], got [1, 5, 64]", t(3, 64), t(1, 5, 64, **BYTES),
                                 t(1, 5, 2, **BYTES)),
    "linear scale": linear(ValueError, "weight_scale [N, ceil(K/32)] = [5, 2], got [5, 3]", t(3, 64), t(5, 64, **BYTES),
                           t(5, 3, **BYTES)),
    "linear scale rows": linear(ValueError, "weight_scale [N, ceil(K/32)] = [5, 2], got [4, 2]",
                                t(3, 64), t(5, 64, **BYTES),
                                t(4, 2, **BYTES)),
    "linear scalar": linear(ValueError, "x [..., K], got []", t(), t(5, 64, **BYTES), t(5, 2, **BYTES)),
    "linear x": linear(TypeError, "x of dtype float32, bfloat16 or float16, got torch.uint8", t(3, 64, **BYTES),
                       t(5, 64, **BYTES), t(5, 2, **BYTES)),
    "linear float64": linear(NotImplementedError, "x of dtype float32, bfloat16 or float16, got torch.float64",
                             t(3, 64, dtype=torch.float64), t(5, 64, **BYTES), t(5, 2, **BYTES)),
    "linear weight": linear(TypeError, "weight of dtype uint8, int8 or float8_e4m3fn, got torch.float32",
                            t(3, 64), t(5, 64),
                            t(5, 2, **BYTES)),
    "linear bias shape": linear(ValueError, "bias [N] = [5], got [6]",
                                t(3, 64), t(5, 64, **BYTES), t(5, 2, **BYTES), t(6)),
    "linear bias rank": linear(ValueError, "bias [N] = [5], got [1, 5]",
                               t(3, 64), t(5, 64, **BYTES), t(5, 2, **BYTES), t(1, 5)),
    "linear bias dtype": linear(TypeError, "bias of x's dtype torch.float32, got torch.bfloat16",
                                t(3, 64), t(5, 64, **BYTES),
                                t(5, 2, **BYTES), t(5, dtype=torch.bfloat16)),
    "linear device": linear(ValueError, "weight on the device of x, cpu, got meta", t(3, 64), t(5, 64, device="meta",
                            **BYTES),
                            t(5, 2, **BYTES)),
    "linear bias device": linear(ValueError, "bias on the device of x, cpu, got meta", t(3, 64), t(5, 64, **BYTES),
                                 t(5, 2, **BYTES), t(5, device="meta")),
    "linear list": linear(TypeError, "weight a torch.Tensor, got list", t(3, 64), [1], t(5, 2, **BYTES)),
    "linear frozen weight": linear(NotImplementedError, "weight without a gradient, which bytes cannot carry (the "
                                   "quantized "
                                   "weight is frozen), got weight.requires_grad = True", t(3, 64),
                                   t(5, 64, dtype=torch.float8_e4m3fn).requires_grad_(), t(5, 2, **BYTES)),
    "linear frozen scale": linear(NotImplementedError, "weight_scale without a gradient, which bytes cannot carry (the "
                                  "quantized weight is frozen), got weight_scale.requires_grad = True", t(3, 64),
                                  t(5, 64, **BYTES), t(5, 2, dtype=torch.float8_e8m0fnu).requires_grad_()),
}  # fmt: skip
