from itertools import pairwise

import pytest
import torch

from benchmarks import registry, timing


@pytest.mark.parametrize(
    "case",
    [
        registry.linear(3, 64, 48, goal=1),
        registry.prefill(2, 17, 16, torch.float32, causal=False, goal=1),
        registry.prefill(2, 17, 16, torch.float32, causal=True, goal=1),
        registry.decode(torch.float32, goal=1, heads=4, kv_heads=2, keys=33, dim=16),
    ],
    ids=lambda case: f"{case.op} {case.name}",
)
def test_ours_and_the_peer_compute_the_same(case, monkeypatch):
    monkeypatch.setattr(registry, "COLD", 0)
    functions = case.make()
    ours, peer = functions["ours"](), functions["peer"]()
    assert ours.shape == peer.shape and ours.dtype == peer.dtype
    error = (ours.float() - peer.float()).norm() / peer.float().norm()
    assert error < (0.05 if case.op == "mxfp8_linear" else torch.finfo(torch.float32).eps * 10)


def test_every_case_has_work_and_a_name_of_its_own():
    cases = list(registry.cases())
    assert len({(c.op, c.name, c.dtype) for c in cases}) == len(cases)
    assert all(c.bytes > 0 and (c.flops > 0 or c.op == "mxfp8_quantize") for c in cases)


def test_cold_copies_are_walked_through():
    assert registry.copies(int(registry.COLD) * 2) == 1
    assert registry.copies(int(registry.COLD) // 8) == 8


def test_functions_take_turns():
    order = []
    functions = {name: lambda name=name: order.append(name) for name in "ab"}
    samples = timing.interleaved(functions, rounds=5, seconds=0)
    assert {name: len(times) for name, times in samples.items()} == {"a": 5, "b": 5}
    changes = sum(x != y for x, y in pairwise(order))
    assert changes >= 2 * 5


def test_spread_is_ordered():
    assert timing.spread([0.003, 0.001, 0.002, 0.004, 0.005]) == pytest.approx(
        {"median_ms": 3.0, "low_ms": 1.5, "high_ms": 4.5}
    )
