"""Proves a saved asset without a GPU: its Metal sources on the MSL runner, and its twin against the model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from torch_mtl4 import msl, testing
from torch_mtl4.export.coreai.asset import AssetKernel, digest_of, kernels_of
from torch_mtl4.export.coreai.twin import KernelCall, TwinError, draw_calls, run_twin

# Core AI compiles the embedded source as MSL 4.0 or newer; a source may tell the two apart.
LANGUAGES = ("macos27", "macos27:4.0")
# Beyond it a checked run of one kernel takes minutes.
KERNEL_FLOPS = 2e8


class ExportVerificationError(RuntimeError):
    """A saved asset does not compute what the model computes, or a kernel in it not what it stands for."""


@dataclass
class Verification:
    """What was proven of an asset, and what was left out and why.

    Attributes:
        kernels: names of the kernels whose text ran on the MSL runner, against their references.
        outputs: output or state -> (largest error against the model, largest allowed error).
        skipped: reasons, each with what it is about.
        seconds: how long it took.
    """

    kernels: list[str] = field(default_factory=list)
    outputs: dict[str, tuple[float, float]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class Expected:
    """What the model gives for some inputs, by the names of the asset.

    Attributes:
        inputs, states: what it was given.
        outputs: outputs, and states afterwards.
        allowed: the largest error of each output; a missing one must be equal.
    """

    inputs: dict[str, Tensor]
    states: dict[str, Tensor]
    outputs: dict[str, Tensor]
    allowed: dict[str, float]


def check_texts(path, records: Mapping[str, object]) -> list[AssetKernel]:
    """The kernels of an asset, whose texts are those that were emitted.

    Raises:
        ExportVerificationError: a kernel is unknown or has another text.
    """
    kernels = kernels_of(path)
    for kernel in kernels:
        record = records.get(kernel.name)
        if record is None:
            raise ExportVerificationError(f"{kernel.name}: expected a kernel that this export emitted, got another")
        if kernel.digest != digest_of(record.text):
            raise ExportVerificationError(
                f"{kernel.name}: expected the text that was emitted, got one that differs from line "
                f"{_first_difference(kernel.text, record.text)} on"
            )
    return kernels


def verify(
    path,
    records: Mapping[str, object],
    expected: Iterable[Expected],
    result: Verification,
    *,
    entrypoint: str = "main",
    run_model: bool = True,
    flops: float = KERNEL_FLOPS,
) -> None:
    """Checks one function of a saved asset, and notes in result what was checked.

    Args:
        path: of the .aimodel.
        records: kernel name -> its text and reference.
        expected: what the model gives, for one or more sets of inputs.
        result: gets the findings; kernels that it names are not run again.
        entrypoint: the function.
        run_model: run the twin. Without it, kernels are checked on drawn operands.
        flops: kernels that compute more are skipped.

    Raises:
        ExportVerificationError: names the kernel or output, and the first wrong element.
    """
    references = {name: record.reference for name, record in records.items()}
    for case in expected:
        done = set(result.kernels)
        if run_model:
            try:
                run = run_twin(
                    path,
                    references,
                    case.inputs,
                    case.states,
                    entrypoint=entrypoint,
                    watch=lambda n, d=done: n not in d,
                )
            except TwinError as error:
                raise ExportVerificationError(str(error)) from error
            calls = run.calls
        else:
            calls = draw_calls(
                path, case.inputs, case.states, entrypoint=entrypoint, watch=lambda n, d=done: n not in d
            )
        for call in _distinct(calls):
            _check_call(call, records[call.name], flops, result)
        if run_model:
            _compare(run.outputs | run.states, case, result)


def _distinct(calls: Sequence[KernelCall]) -> list[KernelCall]:
    """The first call of each kernel for each set of sizes."""
    first = {}
    for call in calls:
        first.setdefault((call.name, tuple(tuple(t.shape) for t in call.operands), call.grid), call)
    return list(first.values())


def _check_call(call: KernelCall, record, limit: float, result: Verification) -> None:
    want, flops = _counted(record.reference, call.operands)
    sizes = [list(t.shape) for t in call.operands]
    for i, (value, shape) in enumerate(zip(want, call.result_shapes, strict=True)):
        if tuple(value.shape) != shape:
            raise ExportVerificationError(
                f"{call.name}: expected the sizes {list(value.shape)} of result {i}, the asset announces {list(shape)}"
            )
    if flops > limit:
        note = f"kernel {call.name} on {sizes}: {flops / 1e9:.2g} GFLOP, the MSL runner is bounded by {limit / 1e9:.2g}"
        if note not in result.skipped:
            result.skipped.append(note)
        return
    for language in LANGUAGES:
        got = _run(call, record.text, language, want)
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            _close(g, w, _allowed(record.reference, call.operands, i, w), f"{call.name}: result {i} on {sizes}")
    if call.name not in result.kernels:
        result.kernels.append(call.name)


def _run(call: KernelCall, text: str, language: str, want: Sequence[Tensor]) -> list[Tensor]:
    results = [testing.poison(*value.shape, dtype=value.dtype) for value in want]
    try:
        library = _library(text, call.name, language)
    except msl.MslError as error:
        raise ExportVerificationError(f"{call.name}: its source does not compile as {language}: {error}") from error
    buffers = [*(t.contiguous() for t in call.operands), *(msl.Output(t) for t in results)]
    report = library.kernel(call.name).dispatch(threads=call.grid, threadgroup=call.group, buffers=buffers).report
    if report:
        raise ExportVerificationError(f"{call.name} as {language}, on the MSL runner:\n{report}")
    return results


@cache
def _library(text: str, name: str, language: str):
    return msl.compile(text, name=f"{name}.metal", tier=language)


def _counted(reference: Callable, operands: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], int]:
    """The results of a reference, and how much it computes."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        results = _tuple(reference(*operands))
    return results, counter.get_total_flops() + sum(t.numel() for t in (*operands, *results))


def _allowed(reference: Callable, operands: Sequence[Tensor], index: int, result: Tensor) -> float:
    """The policy of torch_mtl4.testing, the reference in its own dtypes in the place of PyTorch's path."""
    if not result.is_floating_point():
        return 0.0
    wide = [t.double() if t.is_floating_point() else t for t in operands]
    with torch.no_grad():
        truth = _tuple(reference(*wide))[index]
    return testing.allowed_error(testing.error_of(result, truth), truth, result.dtype)


def _tuple(results) -> tuple[Tensor, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def _compare(got: Mapping[str, Tensor], case: Expected, result: Verification) -> None:
    for name, want in case.outputs.items():
        if name not in got:
            raise ExportVerificationError(f"output {name}: the asset does not have it")
        value, allowed = got[name], case.allowed.get(name, 0.0)
        _close(value, want, allowed, f"output {name}")
        error = testing.error_of(value, want)
        before = result.outputs.get(name, (0.0, 0.0))
        result.outputs[name] = max(before, (error, allowed))


def _close(got: Tensor, want: Tensor, allowed: float, what: str) -> None:
    try:
        testing.assert_close(got, want, allowed, what)
    except AssertionError as error:
        raise ExportVerificationError(str(error)) from None


def _first_difference(text: str, other: str) -> int:
    lines = zip(text.splitlines(), other.splitlines(), strict=False)
    return next((i for i, (a, b) in enumerate(lines, 1) if a != b), min(text.count("\n"), other.count("\n")) + 1)
