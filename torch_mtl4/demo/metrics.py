"""What is measured of one loaded model. Every function runs the model as a user would: its public forward."""

import inspect
import math
import threading
import time
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor

CHUNK = 128  # tokens a step while scoring text: keeps the logits of large vocabularies small


def weight_bytes(model: torch.nn.Module) -> int:
    """Bytes of all parameters and buffers, tied ones counted once."""
    tensors = {t.data_ptr(): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.nbytes for t in tensors.values())


class PeakMemory:
    """Context manager: resident bytes of this process, `start` on entering and `peak`, the most seen inside."""

    def __enter__(self):
        self._process = psutil.Process()
        self.start = self.peak = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.002):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, self._process.memory_info().rss)


@torch.inference_mode()
def score(model, ids: Tensor) -> tuple[float, list[int]]:
    """Mean negative log-likelihood of ids [1, L] in nats a token, and the likeliest next token at each position."""
    loss, best, cache = 0.0, [], _cache(model)
    for start in range(0, ids.shape[1], CHUNK):
        logits = model(ids[:, start : start + CHUNK], use_cache=True, **cache).logits[0].float()
        targets = ids[0, start + 1 : start + 1 + CHUNK]
        best += logits.argmax(-1).tolist()
        loss += torch.nn.functional.cross_entropy(logits[: len(targets)], targets, reduction="sum").item()
    return loss / (ids.shape[1] - 1), best[:-1]


@dataclass(frozen=True)
class Continuation:
    """Greedily chosen tokens, and the seconds of the prefill and of the steps after it."""

    tokens: list[int]
    prefill: float
    decode: float


@torch.inference_mode()
def greedy(model, ids: Tensor, count: int, *, seconds: float = math.inf) -> Continuation:
    """Continues ids [1, L] by `count` tokens, or by fewer (but 2) when the steps take longer than `seconds`."""
    cache = _cache(model)
    last = {"logits_to_keep": 1} if _takes(model, "logits_to_keep") else {}
    started = time.perf_counter()
    tokens = [model(ids, use_cache=True, **cache, **last).logits[0, -1].argmax().item()]
    prefilled = now = time.perf_counter()
    while len(tokens) < count and (len(tokens) < 2 or now - prefilled < seconds):
        step = torch.tensor([[tokens[-1]]])
        tokens.append(model(step, use_cache=True, **cache).logits[0, -1].argmax().item())
        now = time.perf_counter()
    return Continuation(tokens, prefilled - started, now - prefilled)


@torch.inference_mode()
def embed(model, batches: list[dict[str, Tensor]]) -> Tensor:
    """Embeddings [rows, features] of tokenized batches: the mean over real tokens, of length 1."""
    rows = []
    for batch in batches:
        hidden = model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(-1)
        rows.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1))
    return torch.cat(rows)


def _takes(model, argument: str) -> bool:
    return argument in inspect.signature(model.forward).parameters


def _cache(model) -> dict:
    """An empty cache, under the name that the model's forward has for it."""
    from transformers import DynamicCache

    return {"cache" if _takes(model, "cache") else "past_key_values": DynamicCache(config=model.config)}
