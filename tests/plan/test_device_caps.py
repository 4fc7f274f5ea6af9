"""Caps as text: what they mean, and what is refused by name."""

import pytest
import torch

from torch_mtl4 import _ops


def plan(caps):
    return _ops.mxfp8_quantize_plan(torch.zeros(1, 32), "rceil", caps)


@pytest.mark.parametrize(
    "caps", ["", "g13g macos14", "macos26.2 g17d", "g18p macos27.1 scale_planes tensor_ops", "-mxfp8_gemv_half g17d"]
)
def test_words_come_in_any_order(caps):
    assert plan(caps) == plan("g13g macos14")


NONE_OF_THEM = (
    "g g17 17g gg17 g17gs m5 macos macos26. macos26.x macos26.2.1 tensor-ops Tensor_ops macosx26 g99999999999g "
    "macos99999999999 -mxfp8_gemv -mxfp8_gemv_int -tensor_ops - --mxfp8_gemv_half"
)


@pytest.mark.parametrize("word", NONE_OF_THEM.split())
def test_a_word_that_is_none_is_named(word):
    with pytest.raises(ValueError, match=r"device caps: expected words as in 'g17s macos26\.2") as error:
        plan(f"g17s {word} tensor_ops")
    assert f"got '{word}'" in str(error.value)
