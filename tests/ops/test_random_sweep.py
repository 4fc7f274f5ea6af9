"""Random combinations of everything, each made from its number: a few always, thousands with `-m sweep`."""

import math
import random

import attention_harness
import pytest
import torch
import torch.nn.functional as F

from torch_mtl4 import mxfp8_dequantize, mxfp8_linear, mxfp8_quantize, testing
from torch_mtl4.reference import mxfp8 as reference

FEW = range(150)
MANY = [pytest.param(range(start, start + 250), id=f"{start}") for start in range(150, 5150, 250)]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
EDGES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 95, 96, 97, 127, 128, 129, 200, 257)


def size(rng, most):
    return min(rng.choice(EDGES), most) if rng.random() < 0.7 else rng.randint(1, most)


def maybe(rng, chance, value):
    return value() if rng.random() < chance else None


def attention_case(number):
    rng = random.Random(number)
    dtype, batch = rng.choice(DTYPES), rng.choice((1, 1, 2, 3))
    kv_heads, group = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2, 4))
    heads, q_len, kv_len, head_dim = kv_heads * group, size(rng, 150), size(rng, 300), size(rng, 140)
    tensors = [
        testing.lay_out(t, rng.choice(testing.LAYOUTS))
        for t in attention_harness.inputs(
            q_len, kv_len, head_dim, batch=batch, heads=heads, kv_heads=kv_heads, dtype=dtype, seed=number,
            v_head_dim=head_dim if rng.random() < 0.7 else size(rng, 140), layout="dense",
        )
    ]  # fmt: skip

    def mask():
        shape = [n if rng.random() < 0.7 else 1 for n in (batch, heads, q_len, kv_len)][rng.choice((0, 0, 1, 2)) :]
        values = testing.randn(*shape, seed=number + 1)
        kind = rng.choice((torch.bool, torch.float32, torch.bfloat16, torch.float16))
        if kind != torch.bool:
            values = torch.where(values > rng.choice((-0.5, -9, 1.5)), values, -math.inf).to(kind)
        else:
            values = values > rng.choice((-1, 0, 1.5))
        return testing.lay_out(values, rng.choice(testing.LAYOUTS))

    options = {
        "attn_mask": maybe(rng, 0.4, mask),
        "causal": rng.choice((None, None, "upper_left", "lower_right")),
        "window": maybe(rng, 0.3, lambda: tuple(rng.choice((None, -1, 0, 1, size(rng, 90))) for _ in range(2))),
        "scale": maybe(rng, 0.3, lambda: rng.choice((1.0, 0.1, -0.5))),
        "softcap": maybe(rng, 0.2, lambda: rng.choice((1.0, 5.0, 30.0))),
        "sinks": maybe(rng, 0.2, lambda: testing.randn(heads, seed=number + 2)),
        "alibi_slopes": maybe(
            rng,
            0.2,
            lambda: testing.randn(*((batch, heads) if rng.random() < 0.5 else (heads,)), seed=number + 3).abs(),
        ),
    }
    return tensors, options


def check_attention(numbers):
    for number in numbers:
        tensors, options = attention_case(number)
        try:
            attention_harness.check(*tensors, **options)
        except AssertionError as error:
            raise AssertionError(f"case {number}: {error}") from error


def check_mx(numbers):
    for number in numbers:
        rng = random.Random(number)
        dtype, scaling = rng.choice(DTYPES), rng.choice(("floor", "rceil", "ceil", "even"))
        m, n, k = size(rng, 150), size(rng, 200), size(rng, 400)
        spread = torch.ldexp(testing.randn(n, k, seed=number), testing.randn(n, 1, seed=number + 1).mul(6).int())
        source = testing.lay_out(spread.to(dtype), rng.choice(testing.LAYOUTS))
        try:
            data, scale = mxfp8_quantize(source, scaling=scaling)
            for got, want in zip((data, scale), reference.mxfp8_quantize(source, scaling=scaling), strict=True):
                testing.assert_equal(got, want, "bytes")
            weight, weight_scale = (testing.lay_out(t, rng.choice(testing.LAYOUTS)) for t in (data, scale))
            dense = mxfp8_dequantize(weight, weight_scale, dtype=dtype)
            testing.assert_equal(dense, reference.mxfp8_dequantize(data, scale, dtype=dtype), "values")
            x = testing.lay_out(testing.randn(m, k, dtype=dtype, seed=number + 2), rng.choice(testing.LAYOUTS))
            bias = maybe(rng, 0.5, lambda n=n, dtype=dtype: testing.randn(n, dtype=dtype))
            exact = reference.mxfp8_dequantize(data, scale, dtype=torch.float64)
            double_bias = None if bias is None else bias.double()
            want = F.linear(x.double(), exact, double_bias)
            error = testing.error_of(F.linear(x, dense, bias), F.linear(x.double(), dense.double(), double_bias))
            got = mxfp8_linear(x, weight, weight_scale, bias)
            if dtype != torch.float16 or want.abs().max() < 60000:
                testing.assert_close(got, want, testing.allowed_error(error, want, dtype), "linear")
        except AssertionError as error:
            raise AssertionError(f"case {number} ({m}x{n}x{k}, {dtype}, {scaling}): {error}") from error


def test_a_few_random_attentions():
    check_attention(FEW)


def test_a_few_random_linears():
    check_mx(FEW)


@pytest.mark.sweep
@pytest.mark.parametrize("numbers", MANY)
def test_many_random_attentions(numbers):
    check_attention(numbers)


@pytest.mark.sweep
@pytest.mark.parametrize("numbers", MANY)
def test_many_random_linears(numbers):
    check_mx(numbers)
