"""The parts of coreai-core and coreai-torch that are not public, all in this file: another version may lack them."""

from importlib.metadata import PackageNotFoundError, version

TESTED = {"coreai-core": "1.0.0b3", "coreai-torch": "0.4.3"}


def check_versions() -> None:
    """Raises ImportError unless the installed versions are those that this package was tested with."""
    for package, tested in TESTED.items():
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "none"
        if installed != tested:
            raise ImportError(
                f"torch_mtl4.export.coreai: expected {package} {tested}, got {installed}; "
                "install the versions that belong to this package with `pip install 'torch_mtl4[coreai]'`"
            )


check_versions()

# The public package first: modules of the private one import it half-way through themselves.
from coreai.authoring.tensor_type import TensorType  # noqa: E402, I001
from coreai._compiler.dialects import coreai as ir  # noqa: E402
from coreai._compiler.dialects._coreai_ops_gen import metal4_kernel  # noqa: E402
from coreai._compiler.dialects._coreaix_ops_gen import copy_discarding_constraints, copy_with_constraints  # noqa: E402
from coreai._compiler.ir import (  # noqa: E402
    ArrayAttr,
    DictAttr,
    FunctionType,
    InsertionPoint,
    Location,
    Operation,
    OpResult,
    RankedTensorType,
    ShapedType,
    StringAttr,
    TypeAttr,
    Value,
)
from coreai_torch._aten_to_core import _aten_to_core_resolver as ATEN_LOWERINGS  # noqa: E402
from coreai_torch._type_mapping import TORCH_TO_COREAI_DTYPE  # noqa: E402
from coreai_torch._utils import get_target, preprocess_graph  # noqa: E402

__all__ = [
    "ATEN_LOWERINGS",
    "ArrayAttr",
    "DictAttr",
    "FunctionType",
    "InsertionPoint",
    "Location",
    "Operation",
    "RankedTensorType",
    "ShapedType",
    "StringAttr",
    "TypeAttr",
    "Value",
    "call_kernel",
    "get_target",
    "ir",
    "preprocess_graph",
    "tensor_type",
]


def tensor_type(shape, dtype) -> RankedTensorType:
    """The type of a tensor of these sizes, of which those that are not ints are dynamic."""
    sizes = [size if isinstance(size, int) else ShapedType.get_dynamic_size() for size in shape]
    return RankedTensorType.get(sizes, TORCH_TO_COREAI_DTYPE[dtype]())


def call_kernel(
    name: str,
    text: str,
    operands: list[Value],
    grid: Value,
    threadgroup: Value,
    shapes: list[Value],
    types: list[RankedTensorType],
) -> list[Value]:
    """The results of a coreai.metal4_kernel. Operands and results are in Metal's buffers only inside of it."""
    results = metal4_kernel(
        outputs=[_in_metal(t) for t in types],
        kernel_args=[copy_with_constraints(_in_metal(v.type), v) for v in operands],
        threads_per_grid=grid,
        threads_per_thread_group=threadgroup,
        result_shapes=shapes,
        kernel_source=text,
        kernel_name=name,
    )
    results = [results] if isinstance(results, OpResult) else list(results)
    return [copy_discarding_constraints(t, r) for t, r in zip(types, results, strict=True)]


def _in_metal(t: RankedTensorType) -> RankedTensorType:
    return TensorType._from_mlir_tensor(t).with_default_mtl_constraints()._to_mlir_type()
