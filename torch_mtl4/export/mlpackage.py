"""torch_mtl4.export.mlpackage: a network for Metal 4's machine learning encoder, through coremltools."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torch_mtl4.export.float32_network import LARGEST_INTEGER, Float32Network
from torch_mtl4.export.stock import evaluating, repeat_grouped_heads, stock_attention, unknown_to_coremltools
from torch_mtl4.nn.byte_weights import ByteWeights

PRECISIONS = {"float16": "FLOAT16", "float32": "FLOAT32"}
PITCH_BYTES = 64
SPECIFICATION = 10  # of macOS 26: no older one is meant for this encoder


@dataclass(frozen=True)
class Operand:
    """An input or output of the network: float32, whatever the model's own dtype is.

    Attributes:
        name: as in the package.
        shape: of the tensor, outermost first; None where the size may vary.
        dtype: that the model itself has there. The package casts.
        row_pitch: elements from one row to the next in an MTLTensor for machine learning: rows begin at multiples of 64
            bytes. None where the length of a row may vary.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: torch.dtype

    @property
    def row_pitch(self) -> int | None:
        row = self.shape[-1] if self.shape else 1
        per_pitch = PITCH_BYTES // 4
        return None if row is None else -(-row // per_pitch) * per_pitch

    def __str__(self) -> str:
        shape = ", ".join("?" if size is None else str(size) for size in self.shape)
        pitch = "rows at multiples of 64 bytes" if self.row_pitch is None else f"row pitch {self.row_pitch}"
        cast = "" if self.dtype == torch.float32 else f", cast from {self.dtype} of the model"
        return f"{self.name} float32 [{shape}], {pitch}{cast}"


@dataclass(frozen=True)
class MLPackage:
    """A saved .mlpackage. Its text says what remains to be done on a Mac, and what the tensors must look like.

    Attributes:
        path: the package.
        inputs, outputs: its operands, in the order of the model's.
        precision: "float16" or "float32", what the network computes in.
        command: makes the .mtlpackage that MTL4MachineLearningCommandEncoder runs; needs Xcode 26 or newer.
    """

    path: Path
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    precision: str

    @property
    def command(self) -> str:
        source, target = self.path, self.path.with_suffix(".mtlpackage")
        return (
            f"xcrun metal-package-builder -ml {shlex.quote(str(source))} -o {shlex.quote(str(target))} "
            "--mtargetos macos26.0"
        )

    def __str__(self) -> str:
        rows = [f"  in   {operand}" for operand in self.inputs] + [f"  out  {operand}" for operand in self.outputs]
        return "\n".join(
            [
                f"{self.path}: an ML program for macOS 26, computes in {self.precision}; not run here",
                *rows,
                "On a Mac with Xcode 26 or newer and its Metal toolchain:",
                f"  {self.command}",
            ]
        )


def mlpackage(
    model: nn.Module,
    inputs: Sequence[Tensor] | Mapping[str, Tensor],
    path: str | os.PathLike,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_shapes: Mapping[str, Any] | None = None,
    precision: str = "float16",
) -> MLPackage:
    """Saves a model as an .mlpackage from which Xcode makes a network for MTL4MachineLearningCommandEncoder.

    The network runs on Apple's own graph kernels: no kernel of this package, nor any other custom one, survives in an
    ML program. Attention that a config sends to "mtl4" is exported as transformers' own, for the duration. Inputs and
    outputs are float32, which is what the encoder's graphs are reported to want: integers, booleans and half floats
    are cast inside, exactly up to 2**24. Nothing is run: coremltools predicts on macOS only.

    Args:
        model: exported in evaluation mode. It is left as it was.
        inputs: example tensors, positional, or by the name of the argument.
        path: ends in .mlpackage; an existing package is replaced.
        input_names: of the positional inputs; None takes those of the arguments of forward.
        output_names: None takes the keys of a dict, else "output" or "output_0", "output_1", ...
        dynamic_shapes: by input name, {dimension: torch.export.Dim(name, min=..., max=...)}; both bounds are needed.
        precision: "float16" or "float32", what the network computes in.

    Returns:
        The package with the command for the next step.

    Raises:
        ImportError: coremltools is missing.
        TypeError: an input or output that is not a tensor.
        ValueError: path, names, precision, or a dynamic dimension without bounds.
        NotImplementedError: layers with packed weights, or ops without a counterpart in an ML program.

    Source: Apple, "Machine learning passes" (Metal 4) and the help text of metal-package-builder.
    """
    path = _checked_path(path)
    if precision not in PRECISIONS:
        raise ValueError(f"mlpackage: expected precision 'float16' or 'float32', got {precision!r}")
    _refuse_packed(model)
    coremltools = _coremltools()
    network = Float32Network(model, inputs, input_names)
    names, operands = _dynamic(network, dynamic_shapes)
    with evaluating(model), stock_attention(model), torch.no_grad():
        outputs = network.outputs(output_names)
        program = torch.export.export(network, network.examples, dynamic_shapes=names)
        _refuse_custom_ops(program)
        repeat_grouped_heads(program)
        program = program.run_decompositions(unknown_to_coremltools())
    results = tuple(
        Operand(name, tuple(_size(size) for size in node.meta["val"].shape), dtype)
        for (name, dtype), node in zip(outputs, _results(program), strict=True)
    )
    try:
        converted = coremltools.convert(
            program,
            convert_to="mlprogram",
            minimum_deployment_target=coremltools.target.macOS26,
            compute_precision=getattr(coremltools.precision, PRECISIONS[precision]),
            outputs=[coremltools.TensorType(name=operand.name, dtype=_float32()) for operand in results],
        )
    except (NotImplementedError, ValueError) as error:
        raise NotImplementedError(f"mlpackage: expected ops that coremltools converts, got: {error}") from error
    _check_specification(converted.get_spec(), operands, results)
    converted.save(str(path))
    return MLPackage(path, operands, results, precision)


def _dynamic(network: Float32Network, shapes: Mapping[str, Any] | None) -> tuple[dict | None, tuple[Operand, ...]]:
    """What torch.export is told about sizes, and the inputs as the package will have them."""
    shapes = dict(shapes or {})
    unknown = [name for name in shapes if name not in network.names]
    if unknown:
        raise ValueError(f"mlpackage: expected dynamic_shapes of {network.names}, got {unknown}")
    operands = []
    for name, value, dtype in zip(network.names, network.examples, network.dtypes, strict=True):
        sizes: list[int | None] = list(value.shape)
        for axis, dim in (shapes.get(name) or {}).items():
            if not isinstance(dim, type) and not hasattr(dim, "max"):
                raise ValueError(f"mlpackage: expected dynamic_shapes of torch.export.Dim, got {dim!r} for {name}")
            if getattr(dim, "max", None) is None or dim.max > LARGEST_INTEGER:
                raise ValueError(f"mlpackage: expected dynamic_shapes with a bound max, got {dim} for {name}[{axis}]")
            sizes[axis] = None
        operands.append(Operand(name, tuple(sizes), dtype))
    return ({name: shapes.get(name) for name in network.names} if shapes else None), tuple(operands)


def _size(size: Any) -> int | None:
    return size if isinstance(size, int) else None


def _results(program) -> list[torch.fx.Node]:
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    values = output.args[0]
    mutated = len(values) - len(program.graph_signature.user_outputs)
    if mutated:
        raise NotImplementedError(
            "mlpackage: expected a model without state, got one that writes to "
            f"{', '.join(program.graph_signature.buffers_to_mutate.values()).replace('model.', '')}; "
            "pass it in and out as tensors"
        )
    return list(values)


def _refuse_packed(model: nn.Module) -> None:
    packed = [name for name, module in model.named_modules() if isinstance(module, ByteWeights)]
    if packed:
        raise NotImplementedError(
            f"mlpackage: expected float weights, got {len(packed)} layers of packed bytes ({', '.join(packed[:3])}"
            f"{', ...' if len(packed) > 3 else ''}), whose kernel cannot enter an ML program; "
            "torch_mtl4.nn.dequantize_linears(model) gives them float weights"
        )


def _refuse_custom_ops(program) -> None:
    ops = sorted(
        {
            node.target.namespace + "::" + node.target._opname
            for node in program.graph.nodes
            if node.op == "call_function" and getattr(node.target, "namespace", "aten") not in ("aten", "prim", "prims")
        }
    )
    if ops:
        raise NotImplementedError(
            f"mlpackage: expected ops of PyTorch itself, got {', '.join(ops)}: custom kernels cannot enter an ML "
            "program; undo torch_mtl4.patch or enable, or export with torch_mtl4.export.coreai"
        )


def _check_specification(spec, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> None:
    """What the encoder asks of a package is read from the package itself."""
    from coremltools.proto import FeatureTypes_pb2

    if spec.specificationVersion != SPECIFICATION or not spec.HasField("mlProgram"):
        raise RuntimeError(
            f"mlpackage: expected coremltools to make an ML program of specification {SPECIFICATION}, got version "
            f"{spec.specificationVersion} of kind {spec.WhichOneof('Type')}"
        )
    for operands, features in ((inputs, spec.description.input), (outputs, spec.description.output)):
        found = [(f.name, f.type.multiArrayType.dataType) for f in features]
        wanted = [(operand.name, FeatureTypes_pb2.ArrayFeatureType.FLOAT32) for operand in operands]
        if found != wanted:
            raise RuntimeError(f"mlpackage: expected coremltools to make float32 operands {wanted}, got {found}")


def _checked_path(path) -> Path:
    path = Path(path)
    if path.suffix != ".mlpackage":
        raise ValueError(f"mlpackage: expected path that ends in .mlpackage, got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"mlpackage: expected path in an existing folder, got {path}")
    return path


def _coremltools():
    try:
        import coremltools
    except ImportError as error:
        raise ImportError('mlpackage: coremltools is missing; `pip install "torch_mtl4[coreai]"`') from error
    return coremltools


def _float32():
    import numpy

    return numpy.float32
