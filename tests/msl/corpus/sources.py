"""The files of the three corpora, from the unpacked packages."""

from pathlib import Path

from . import mlx_kernels
from .front_end import SourceFile
from .packages import LLAMA, MLX, TORCH

INCLUDE_ONLY = ("fa_common", "fa_vec_common")  # fragments of other files of llama.cpp
# Of PyTorch's headers those that hold device code: (name, headers after utils.h and indexing.h)
ATTENTION = "ATen/native/mps/kernels/"
TORCH_FILES = {
    "mpp_attention": [f"{ATTENTION}PrefillAttention.h", f"{ATTENTION}MppAttention.h"],
    "prefill": [f"{ATTENTION}PrefillAttention.h"],
    "decode": [f"{ATTENTION}DecodeAttention.h"],
    "sort_merge": [f"{ATTENTION}SortMerge.h"],
    "sort_radix": [f"{ATTENTION}SortMerge.h", f"{ATTENTION}SortRadix.h"],
    "sort_topk": [f"{ATTENTION}SortTopK.h"],
    "atomic": ["c10/metal/atomic.h"],
    "error": ["c10/metal/error.h"],
    "expm1f": ["c10/metal/expm1f.h"],
    "igamma": ["c10/metal/igamma.h"],
    "random": ["c10/metal/random.h"],
    "reduction_utils": ["c10/metal/reduction_utils.h"],
    "special_math": ["c10/metal/special_math.h"],
    "utils": [],
}


def _root(folder: Path, name: str) -> Path:
    """The folder of the package that holds `name`."""
    found = sorted(p for p in folder.rglob(name) if p.is_dir())
    if not found:
        raise FileNotFoundError(f"msl corpus: expected a folder {name} in {folder}: has the package changed?")
    return found[0]


def mlx_include(cache: Path) -> Path:
    return _root(MLX.fetch(cache), "kernels").parents[3]


def torch_include(cache: Path) -> Path:
    return _root(TORCH.fetch(cache), "c10").parent


def llama_folder(cache: Path) -> Path:
    return _root(LLAMA.fetch(cache), "ggml-metal")


def torch_text(name: str) -> str:
    headers = ["metal_stdlib", "metal_simdgroup", "metal_simdgroup_matrix"]
    lines = [f"#include <{h}>" for h in headers] + ["using namespace metal;"]
    return "\n".join(
        lines + [f"#include <{h}>" for h in ("c10/metal/utils.h", "c10/metal/indexing.h", *TORCH_FILES[name])] + [""]
    )


def llama_include(folder: Path) -> tuple[Path, ...]:
    return folder, folder.parent, folder / "kernels"


def mlx(cache: Path, limit: int | None) -> list[SourceFile]:
    include = (mlx_include(cache),)
    return [
        SourceFile("mlx", name, mlx_kernels.source(headers, kernels, limit)[0], include)
        for name, headers, kernels in mlx_kernels.FILES
    ]


def torch(cache: Path, limit: int | None) -> list[SourceFile]:
    include = (torch_include(cache),)
    return [SourceFile("torch", name, torch_text(name), include) for name in list(TORCH_FILES)[:limit]]


def llama(cache: Path, limit: int | None) -> list[SourceFile]:
    folder = llama_folder(cache)
    paths = [p for p in sorted((folder / "kernels").glob("*.metal")) if p.stem not in INCLUDE_ONLY][:limit]
    files = []
    for corpus, extra in (("llama", {}), ("llama, tensors", {"GGML_METAL_HAS_TENSOR": 1})):
        defines = {"GGML_METAL_HAS_BF16": 1, **extra}
        files += [SourceFile(corpus, p.stem, p, llama_include(folder), defines) for p in paths]
    return files


CORPORA = {"mlx": (MLX, mlx), "torch": (TORCH, torch), "llama": (LLAMA, llama)}
