"""Timings of the self-test: a few sizes of each op beside PyTorch's own, in the same run, on a device of the user's."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F

import torch_mtl4

ROUNDS = 15


class Pair(NamedTuple):
    """What is timed: ours and PyTorch's, on equal inputs."""

    name: str
    ours: Callable[[], object]
    peer: Callable[[], object]


def pairs(device: str) -> Iterator[Pair]:
    """Yields what is timed."""
    x = torch.randn(512, 2048).bfloat16().to(device)
    weight = (torch.randn(4096, 2048) / 45).bfloat16()
    packed = [t.to(device) for t in torch_mtl4.mxfp8_quantize(weight)]
    weight = weight.to(device)
    for rows in (1, 8, 512):
        yield Pair(
            f"mxfp8_linear {rows} x 2048 x 4096, beside F.linear in bfloat16",
            lambda x=x[:rows]: torch_mtl4.mxfp8_linear(x, *packed),
            lambda x=x[:rows]: F.linear(x, weight),
        )
    for dtype in (torch.bfloat16, torch.float32):
        q, k, v = (torch.randn(1, 8, 1024, 64).to(device, dtype) for _ in range(3))
        yield Pair(
            f"flash_attention 1 x 8 x 1024 x 64, causal, {dtype}, beside F.scaled_dot_product_attention",
            lambda q=q, k=k, v=v: torch_mtl4.flash_attention(q, k, v, causal="upper_left"),
            lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        )
        q = torch.randn(1, 32, 1, 128).to(device, dtype)
        k, v = (torch.randn(1, 8, 4096, 128).to(device, dtype) for _ in range(2))
        yield Pair(
            f"flash_attention decode, 32 heads on 8, 4096 keys, {dtype}, beside F.scaled_dot_product_attention",
            lambda q=q, k=k, v=v: torch_mtl4.flash_attention(q, k, v),
            lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        )


def measure(pair: Pair, device: str) -> dict:
    """Medians in milliseconds and the median ratio, of interleaved runs that wait for the device."""
    wait = torch.mps.synchronize if device == "mps" else lambda: None
    seconds = {"ours": [], "peer": []}
    with torch.inference_mode():
        for _ in range(ROUNDS + 2):
            for name in seconds:
                wait()
                started = time.perf_counter()
                getattr(pair, name)()
                wait()
                seconds[name].append(time.perf_counter() - started)
    ours, peer = (times[2:] for times in seconds.values())  # without the warm-up
    return {
        "name": pair.name,
        "ours_ms": statistics.median(ours) * 1e3,
        "peer_ms": statistics.median(peer) * 1e3,
        "ratio": statistics.median(b / a for a, b in zip(ours, peer, strict=True)),
    }
