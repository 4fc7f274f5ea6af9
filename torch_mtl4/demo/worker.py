"""One model in one setup, in a process of its own, so that its memory is its own.

Reads a job from the first line of stdin, then one request a line; answers each with one line of JSON on stdout.
"""

import json
import os
import sys
import time

import torch

import torch_mtl4  # noqa: F401  makes transformers know "mtl4" and its checkpoints
from torch_mtl4.demo import metrics, text
from torch_mtl4.demo.setups import SETUPS


class Decoder:
    """Answers the requests that make sense for a causal language model."""

    def __init__(self, job: dict):
        from transformers import AutoModelForCausalLM

        self.job = job
        self.model, self.tokenizer = _load(AutoModelForCausalLM, job)
        self.ids = self._encode(text.text())[:, : job["score_tokens"]]

    def _encode(self, string: str) -> torch.Tensor:
        return self.tokenizer(string, return_tensors="pt").input_ids

    def score(self) -> dict:
        loss, best = metrics.score(self.model, self.ids)
        return {"perplexity": float(torch.tensor(loss, dtype=torch.float64).exp()), "best": best}

    def answers(self) -> dict:
        prompts = text.prompts(self.job["prompts"])
        return {"tokens": [metrics.greedy(self.model, self._encode(p), self.job["new_tokens"]).tokens for p in prompts]}

    def speed(self) -> dict:
        prompt = self.ids[:, : self.job["prefill_tokens"]]
        done = metrics.greedy(self.model, prompt, self.job["decode_tokens"] + 1, seconds=self.job["decode_seconds"])
        return {"prefill": prompt.shape[1] / done.prefill, "decode": (len(done.tokens) - 1) / done.decode}

    def memory(self) -> dict:
        with metrics.PeakMemory() as memory:
            metrics.greedy(self.model, self.ids[:, : self.job["prefill_tokens"]], 2)
        return {"peak": memory.peak}


class Encoder:
    """Answers the requests that make sense for a text encoder."""

    def __init__(self, job: dict):
        from transformers import AutoModel

        self.model, tokenizer = _load(AutoModel, job)
        sentences = text.sentences()[: job["sentences"]]
        self.batches = [
            dict(tokenizer(sentences[i : i + 16], padding=True, truncation=True, return_tensors="pt"))
            for i in range(0, len(sentences), 16)
        ]
        self.tokens = sum(int(batch["attention_mask"].sum()) for batch in self.batches)

    def answers(self) -> dict:
        return {"embeddings": metrics.embed(self.model, self.batches).tolist()}

    def speed(self) -> dict:
        started = time.perf_counter()
        metrics.embed(self.model, self.batches)
        return {"embed": self.tokens / (time.perf_counter() - started)}

    def memory(self) -> dict:
        with metrics.PeakMemory() as memory:
            metrics.embed(self.model, self.batches)
        return {"peak": memory.peak}


def _load(auto_class, job: dict):
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    setup = SETUPS[job["setup"]]
    model = auto_class.from_pretrained(
        job["packed_path"] if setup.packed else job["path"],
        dtype=getattr(torch, job["dtype"]),
        attn_implementation=setup.attention,
    )
    return model.eval(), AutoTokenizer.from_pretrained(job["path"])


def main() -> None:
    """Serves requests until stdin ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is not an answer

    def answer(value: dict) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    job = json.loads(sys.stdin.readline())
    import transformers  # noqa: F401  counts as a library, not as the model

    with metrics.PeakMemory() as memory:
        server = {"decoder": Decoder, "encoder": Encoder}[job["kind"]](job)
    answer({"weight_bytes": metrics.weight_bytes(server.model), "libraries": memory.start, "load_peak": memory.peak})
    for request in map(json.loads, sys.stdin):
        answer(SETUPS[job["setup"]].kernels(server.model) if request == "kernels" else getattr(server, request)())


if __name__ == "__main__":
    main()
