"""With any barrier left out of the kernels of flash_attention, or an index wrong, a checked run or a result notices."""

import re

import attention_harness as harness
import pytest
import torch

from torch_mtl4 import _metal_sources, msl, msl_backend, testing
from torch_mtl4.msl.compile import preprocessed

from .gpus import SIMDGROUP, TENSOR_OPS

pytestmark = pytest.mark.emulated_only


def mask():
    """Hides the first tile of keys from all rows, and rows of the second."""
    visible = testing.randn(40, 70, seed=3) > 0
    visible[:, :32] = False
    visible[:, 32:64] &= torch.arange(40)[:, None] > 20
    return visible


# Small calls that reach every line: caps, inputs, options.
CASES = {
    "prefill": (SIMDGROUP[0], lambda: harness.inputs(40, 70, 24, heads=4, kv_heads=2), {"window": (50, 3)}),
    "prefill with a mask": (SIMDGROUP[0], lambda: harness.inputs(40, 70, 24, heads=1), {"attn_mask": mask()}),
    "prefill in parts": (SIMDGROUP[0], lambda: harness.inputs(9, 20, 130, v_head_dim=16, heads=1), {}),
    "decode": (SIMDGROUP[0], lambda: harness.inputs(2, 300, 24, heads=4, kv_heads=2), {"causal": "lower_right"}),
    "decode in parts": (SIMDGROUP[0], lambda: harness.inputs(1, 40, 130, heads=3, kv_heads=1), {}),
    "tensor ops": (TENSOR_OPS[0], lambda: harness.inputs(20, 70, 24, v_head_dim=40, heads=1), {"window": (50, 3)}),
}
# The barriers of the text in their order, with a case that notices each; None: known to order nothing here, and why.
BARRIERS = {
    "3.1": ["decode in parts", "decode", "prefill with a mask", "prefill in parts", "prefill"],
    "4.0": [None, None],  # in each layout that is played a lane loads the weights that it has stored itself
}


class Mutant:
    """What emulated() compiles in place of the real source."""

    def __init__(self, replace=(), without_barrier=None):
        self.replace, self.without_barrier = replace, without_barrier

    def library(self, source, kernel, constants, tier, checked, count):
        text = _metal_sources.flattened(source)
        if self.replace:
            old, new = self.replace
            assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
            text = text.replace(old, new)
        only = f"^{kernel}$"
        options = {"constants": dict(constants), "only": only, "tier": tier, "checked": checked, "count": count}
        return msl.compile(text, name=f"{source}.metal", without_barrier=self.without_barrier, **options)


def noticed(monkeypatch, case, mutant):
    caps, inputs, options = CASES[case]
    monkeypatch.setattr(msl_backend, "_library", mutant.library)
    layouts = ("m5", "scrambled") if "tensor_ops" in caps else (None,)
    for layout in layouts:
        for shuffle in (False, True):
            try:
                with msl_backend.emulated(caps, layout=layout, shuffle=shuffle):
                    harness.check(*inputs(), **options)
            except (AssertionError, msl.KernelFaultError):
                return True
    return False


@pytest.mark.parametrize("case", CASES)
def test_the_kernels_themselves_pass(case, monkeypatch):
    assert not noticed(monkeypatch, case, Mutant())


def test_every_barrier_has_a_case():
    text = _metal_sources.flattened("flash_attention")
    for language, cases in BARRIERS.items():
        expanded, _ = preprocessed(text, "flash_attention.metal", (), None, f"macos27:{language}")
        assert len(re.findall(r"\b(?:threadgroup|simdgroup)_barrier\s*\(", expanded)) == len(cases)


@pytest.mark.parametrize("number", range(len(BARRIERS["3.1"])))
def test_a_missing_barrier_is_noticed(number, monkeypatch):
    assert noticed(monkeypatch, BARRIERS["3.1"][number], Mutant(without_barrier=number))


@pytest.mark.parametrize("number", range(len(BARRIERS["4.0"])))
def test_idle_barriers_are_idle(number, monkeypatch):
    assert not noticed(monkeypatch, "tensor ops", Mutant(without_barrier=number))


@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        ("prefill", "lane / 2 % 4", "lane / 2 % 2"),
        ("prefill", "tile + row * kRow + column;", "tile + row * kRow + column / 4 * 5;"),
        ("prefill", "clamp(diagonal - p.left,", "clamp(diagonal - p.left - 1,"),
        ("prefill", "clamp(p.kv_len - key,", "clamp(p.kv_len - key + 1,"),
        ("prefill", "head / (p.heads / p.kv_heads)", "head % p.kv_heads"),
        ("prefill", "row_sum = row_sum * decay + fragment_row_sum", "row_sum = row_sum + fragment_row_sum"),
        ("prefill with a mask", "turn ^= 1;", ""),
        ("decode", "(row * p.splits + split)", "(row + split)"),
        ("decode", "values[i] : values[i + half];", "values[i + half] : values[i];"),
        ("decode", "const int own = int(lane) % kPairs / kKeys;", "const int own = int(lane) % ROWS;"),
        ("decode", "group.y / params.kv_heads) * ROWS", "group.y / params.kv_heads) * ROWS + 1"),
        ("decode", "of_weighted + mine * SIMDGROUPS * HEAD", "of_weighted"),
        ("decode", "of_simdgroup[(ROWS + own)", "of_simdgroup[(ROWS - own)"),
        ("decode", "int(simdgroup) % kTeam, lane", "0, lane"),
        ("decode in parts", "of_simdgroup + r * SIMDGROUPS", "of_simdgroup + mine * SIMDGROUPS"),
        ("decode in parts", "weighted[(first_row + i) * kColumns + c]", "weighted[i * kColumns + c]"),
        ("tensor ops", "const int row = index[1], column = index[0];", "const int row = index[0], column = index[1];"),
        ("tensor ops", "(p, first_row, key, next)", "(p, first_row, key, key)"),
        ("tensor ops", "out.scale(decay);", ""),
        ("tensor ops", "rest.add(weights, value + kTensorColumns,", "rest.add(weights, value,"),
    ],
)  # fmt: skip
def test_a_wrong_index_is_noticed(case, old, new, monkeypatch):
    assert noticed(monkeypatch, case, Mutant(replace=(old, new)))
