"""Core AI's interpreter, which runs programs without kernels where there is no GPU, and its arrays."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from coreai.authoring import AIProgram
from coreai.runtime import NDArray
from torch import Tensor

NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}


def execute(program: AIProgram, inputs: Mapping[str, Tensor], states: Mapping[str, Tensor] | None, entrypoint: str):
    async def call(asset):
        async with asset.executable() as model:
            function = model.load_function(entrypoint)
            results = await function(given, held or None)
            return {name: to_tensor(value.numpy()) for name, value in results.items()}

    given = {name: NDArray(to_numpy(value)) for name, value in inputs.items()}
    held = {name: NDArray(to_numpy(value).copy()) for name, value in (states or {}).items()}
    with tempfile.TemporaryDirectory() as folder:
        outputs = asyncio.run(call(program.save_asset(Path(folder) / "twin.aimodel")))
    return outputs, {name: to_tensor(value.numpy()) for name, value in held.items()}


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A tensor as Core AI takes it: dense, 64-bit types as the 32-bit ones that stand for them in an asset."""
    tensor = tensor.detach().cpu()
    tensor = tensor.to(NARROWED.get(tensor.dtype, tensor.dtype)).contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_tensor(array: np.ndarray) -> Tensor:
    """A copy of an array as a tensor."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())
