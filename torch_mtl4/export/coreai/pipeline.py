"""The steps of an export, in their order."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from coreai.authoring.asset import OSVersion
from torch import Tensor, nn

from torch_mtl4.custom.lint import ERROR, lint_program
from torch_mtl4.export.coreai import asset, convert, prepare
from torch_mtl4.export.coreai.convert import Function, Names, inputs_as_call
from torch_mtl4.export.coreai.report import ExportReport, KernelRow, rows_of
from torch_mtl4.export.coreai.truth import expected_of, too_slow
from torch_mtl4.export.coreai.verify import ExportVerificationError, Verification, check_texts
from torch_mtl4.export.coreai.verify import verify as verify_function

__all__ = ["ExportVerificationError", "export"]


def export(
    model, inputs, path, *, attention, weights, skip, dynamic_shapes, entrypoint, more_entrypoints, input_names,
    output_names, state_names, minimum_os, overwrite, verify, verify_inputs,
) -> ExportReport:  # fmt: skip
    """See `torch_mtl4.export.coreai.export`."""
    systems = [member.value.removeprefix("v") for member in OSVersion]
    if minimum_os not in systems:
        raise ValueError(f"export: expected minimum_os one of {', '.join(map(repr, systems))}, got {minimum_os!r}")
    prepare.check_model(model)
    path = asset.check_path(path, overwrite)
    calls = {entrypoint: inputs_as_call(inputs)}
    calls |= {name: inputs_as_call(more) for name, more in (more_entrypoints or {}).items()}
    if len(calls) == 1:
        dynamic_shapes = {entrypoint: dynamic_shapes}
    seconds: dict[str, float] = {}

    with _timed(seconds, "prepare"):
        stock, conversions = prepare.replace_weights(prepare.copy_of(model), weights, skip)
        copy = prepare.copy_of(stock) if verify else stock
        if attention:
            prepare.replace_attention(copy)
    functions, dropped = [], []
    names = Names(input_names, output_names, state_names)
    for name, call in calls.items():
        with _timed(seconds, "export"):
            module, program = convert.traced(copy, attention, call, (dynamic_shapes or {}).get(name))
        with _timed(seconds, "decompose"):
            functions.append(convert.decomposed(name, module, call, program, names))
        dropped += [what for what in module.results.dropped if what not in dropped]
    rows = rows_of(copy, attention, conversions)
    with _timed(seconds, "lint"):
        warnings = _linted(functions)
    with _timed(seconds, "convert"):
        program, records = convert.converted(functions)
    kernels = _kernel_rows(asset.kernels_of(program))
    with _timed(seconds, "save"):
        asset.save(program, path, {kernel.name: kernel.sha256 for kernel in kernels}, minimum_os)
    del program

    verification = None
    if verify:
        verification = Verification()
        more = [inputs_as_call(more) for more in verify_inputs]
        with _timed(seconds, "verify"):
            _verify(path, records, functions, stock, more, verification)
        verification.seconds = seconds.pop("verify")
    return ExportReport(
        model=type(model).__name__,
        path=path,
        bytes=asset.size_of(path),
        model_bytes=_bytes_of(model),
        functions={f.name: {"inputs": f.names.inputs, "outputs": f.names.outputs, "states": f.names.states}
                   for f in functions},
        modules=rows,
        kernels=kernels,
        dropped=tuple(dropped),
        warnings=warnings,
        verification=verification,
        seconds=seconds,
    )  # fmt: skip


def _linted(functions: list[Function]) -> tuple[str, ...]:
    """The linter's warnings; its errors are raised."""
    found = list(dict.fromkeys(finding for function in functions for finding in lint_program(function.program)))
    errors = [str(finding) for finding in found if finding.severity == ERROR]
    if errors:
        raise ValueError("export: expected kernels that Core AI can take, got\n" + "\n".join(errors))
    return tuple(map(str, found))


def _verify(path, records, functions: list[Function], stock: nn.Module, more: list, result: Verification) -> None:
    check_texts(path, records)
    for index, function in enumerate(functions):
        slow = too_slow(function)
        cases = [function.call, *(more if index == 0 else [])]
        expected = [expected_of(function, stock, call, run_model=slow is None) for call in cases]
        if slow is not None:
            result.skipped.append(f"the twin of {function.name}: {slow}")
        verify_function(path, records, expected, result, entrypoint=function.name, run_model=slow is None)


def _kernel_rows(kernels: list[asset.AssetKernel]) -> tuple[KernelRow, ...]:
    calls = Counter(kernel.name for kernel in kernels)
    texts = {kernel.name: kernel for kernel in kernels}
    return tuple(KernelRow(name, k.digest, len(k.text), calls[name]) for name, k in sorted(texts.items()))


def _bytes_of(model: nn.Module) -> int:
    tensors: dict[int, Tensor] = {id(t): t for t in [*model.parameters(), *model.buffers()]}
    return sum(t.numel() * t.element_size() for t in tensors.values())


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    with torch.no_grad():
        yield
    seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - start
