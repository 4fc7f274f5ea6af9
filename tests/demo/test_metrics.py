import pytest
import torch

pytest.importorskip("psutil")
from transformers import AutoModelForCausalLM, AutoTokenizer

from torch_mtl4.demo import compare, metrics, text


@pytest.fixture(scope="module")
def model(tiny_decoder):
    return AutoModelForCausalLM.from_pretrained(tiny_decoder).eval()


@pytest.fixture(scope="module")
def ids(tiny_decoder):
    return AutoTokenizer.from_pretrained(tiny_decoder)(text.text(), return_tensors="pt").input_ids


@pytest.mark.parametrize("length", [2, metrics.CHUNK, metrics.CHUNK + 1, 2 * metrics.CHUNK + 7])
def test_score_in_chunks_is_the_loss_of_the_whole(model, ids, length):
    loss, best = metrics.score(model, ids[:, :length])
    with torch.no_grad():
        whole = model(ids[:, :length], labels=ids[:, :length])
    torch.testing.assert_close(loss, whole.loss.item())
    assert best == whole.logits[0, :-1].argmax(-1).tolist()


def test_greedy_is_what_generate_returns(model, ids):
    prompt = ids[:, :9]
    done = metrics.greedy(model, prompt, 12)
    expected = model.generate(prompt, max_new_tokens=12, min_new_tokens=12, do_sample=False)[0, 9:]
    assert done.tokens == expected.tolist()
    assert done.prefill > 0 and done.decode > 0


def test_greedy_stops_when_time_is_up(model, ids):
    assert len(metrics.greedy(model, ids[:, :9], 1000, seconds=0).tokens) == 2


def test_weight_bytes_count_a_tied_weight_once():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False))
    assert metrics.weight_bytes(model) == 2 * 8 * 8 * 4
    model[1].weight = model[0].weight
    assert metrics.weight_bytes(model) == 8 * 8 * 4


def test_peak_memory_sees_what_is_gone_again():
    size = 200_000_000
    with metrics.PeakMemory() as memory:
        start = memory.peak
        torch.ones(size, dtype=torch.uint8)
    assert size // 2 < memory.peak - start < 2 * size


def test_common_prefix():
    assert compare._common_prefix([1, 2, 3], [1, 2, 3]) == 3
    assert compare._common_prefix([1, 2, 3], [1, 9, 3]) == 1
    assert compare._common_prefix([7, 2], [1, 2]) == 0


def test_embedding_agreement_tells_a_changed_row():
    rows = torch.nn.functional.normalize(torch.eye(4) + 0.1 * torch.arange(16.0).view(4, 4), dim=-1).tolist()
    same = compare._embedding_agreement(rows, rows)
    assert same["same_neighbour"] == 1
    torch.testing.assert_close(same["cosine_min"], 1.0)
    turned = compare._embedding_agreement(rows, [[-x for x in rows[0]], *rows[1:]])
    torch.testing.assert_close(turned["cosine_min"], -1.0)
    torch.testing.assert_close(turned["cosine_mean"], 0.5)


def test_the_text_is_long_enough_to_measure_on():
    assert len(text.text().split()) > 700
    assert len(text.sentences()) >= 32 == compare.QUICK.sentences
    assert len(set(text.prompts(4))) == 4
