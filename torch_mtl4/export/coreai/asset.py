"""The .aimodel on disk: written the same from the same model, and read back kernel by kernel."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from coreai.authoring import AIModelAsset, AIProgram
from coreai.authoring.asset import OSVersion

from torch_mtl4.export.coreai._apple import StringAttr
from torch_mtl4.export.coreai.bytecode import number_resources

SUFFIX = ".aimodel"
KERNEL = "coreai.metal4_kernel"
METADATA_KEY = "torch_mtl4"


class AssetKernel(NamedTuple):
    """One call of a kernel in an asset, as the file has it.

    Attributes:
        name: of the kernel; calls of one name have one text.
        text: its whole Metal source.
        operands, results: (element type as IR spells it, sizes; None for a size that depends on the input).
        entrypoint: the function of the asset that makes the call.
    """

    name: str
    text: str
    operands: tuple[tuple[str, tuple[int | None, ...]], ...]
    results: tuple[tuple[str, tuple[int | None, ...]], ...]
    entrypoint: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return digest_of(self.text)


def digest_of(text: str) -> str:
    """SHA-256 of a kernel's text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_path(path: str | os.PathLike, overwrite: bool) -> Path:
    """The path of an asset that may be written.

    Raises:
        ValueError: another suffix than .aimodel.
        FileExistsError: something is there and may not be overwritten, or is no asset.
    """
    path = Path(path)
    if path.suffix != SUFFIX:
        raise ValueError(f"export: expected path with the suffix {SUFFIX}, got {path.name!r}")
    if path.exists() and not overwrite:
        raise FileExistsError(f"export: expected a path that does not exist, got {path}; overwrite=True replaces it")
    if path.exists() and not AIModelAsset.is_valid(path):
        raise FileExistsError(
            f"export: expected {path} to be an asset that overwrite=True can replace, got another file"
        )
    return path


def save(program: AIProgram, path: Path, kernels: Mapping[str, str], minimum_os: str, description: str = "") -> None:
    """Writes a program as an asset, byte for byte the same for the same program, in any process and folder.

    The date in it is that of SOURCE_DATE_EPOCH (seconds since 1970), else 1970-01-01: a date of the build would make
    every build another file. What was at the path is replaced once the new asset is complete.

    Args:
        program: converted, see convert.py.
        path: ends in .aimodel.
        kernels: name -> digest of each kernel's text, for the asset's creatorDefinedMetadata.
        minimum_os: a member of coreai's OSVersion without its v, such as "27".
        description: for the metadata.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{path.stem}-", dir=path.parent))
    try:
        asset = program.save_asset(staging / f"asset{SUFFIX}", minimum_os=OSVersion(f"v{minimum_os}"))
        asset.update_metadata(lambda metadata: _describe(metadata, kernels, description))
        number_resources(asset.path / "main.mlirb")
        digest = hashlib.sha256((asset.path / "main.mlirb").read_bytes()).digest()
        (asset.path / "main.hash").write_bytes(digest)
        # Its writer follows the order of a hash table.
        file = asset.path / "metadata.json"
        file.write_text(json.dumps(json.loads(file.read_text()), indent=2, sort_keys=True) + "\n")
        if path.exists():
            shutil.rmtree(path)
        asset.path.rename(path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _describe(metadata, kernels: Mapping[str, str], description: str) -> None:
    metadata.creation_date = float(os.environ.get("SOURCE_DATE_EPOCH", 0))
    metadata.model_description = description
    rows = [{"name": name, "sha256": digest} for name, digest in sorted(kernels.items())]
    metadata.set_custom(METADATA_KEY, {"kernels": rows})


def size_of(path: Path) -> int:
    """The bytes of all files of an asset."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def load(path: str | os.PathLike) -> AIProgram:
    """The program of an asset on disk."""
    return AIModelAsset.load(Path(path)).program


def kernels_of(asset: str | os.PathLike | AIProgram) -> list[AssetKernel]:
    """The kernels of an asset or program in the order of their calls, one entry a call."""
    program = asset if isinstance(asset, AIProgram) else load(asset)
    return [_described(op, name) for name, op in calls_in(program)]


def rename_kernels(program: AIProgram, keep: Collection[str] = ()) -> dict[str, str]:
    """Gives kernels names that follow from their texts, in place of the random letters that coreai appends.

    Args:
        program: changed in place.
        keep: names that stay.

    Returns:
        Old name -> new name of each that changed.
    """
    renamed = {}
    with program._module:
        for _, op in calls_in(program):
            name, text = op.attributes["kernel_name"].value, op.attributes["kernel_source"].value
            if name in keep:
                continue
            base = name.rpartition("_")[0] or name
            new = f"{base}_{digest_of(text.replace(name, base))[:12]}"
            op.attributes["kernel_name"] = StringAttr.get(new)
            op.attributes["kernel_source"] = StringAttr.get(text.replace(name, new))
            renamed[name] = new
    return renamed


def graphs_of(program: AIProgram) -> Iterator[tuple[str, object]]:
    """The functions of a program, by name."""
    for op in program._module._mlir_module.body.operations:
        if op.operation.name == "coreai.graph":
            yield op.operation.attributes["sym_name"].value, op.operation


def calls_in(program: AIProgram) -> list[tuple[str, object]]:
    """(function, operation) of every kernel call of a program."""
    return [(name, op) for name, graph in graphs_of(program) for op in operations_of(graph, KERNEL)]


def operations_of(operation, name: str) -> Iterator:
    """The operations of a name inside another operation, in order, however deep."""
    for region in operation.regions:
        for block in region.blocks:
            for op in list(block.operations):
                if op.operation.name == name:
                    yield op.operation
                yield from operations_of(op.operation, name)


def _described(op, entrypoint: str) -> AssetKernel:
    return AssetKernel(
        op.attributes["kernel_name"].value,
        op.attributes["kernel_source"].value,
        tuple(_type_of(value) for value in op.operands),
        tuple(_type_of(value) for value in op.results),
        entrypoint,
    )


def _type_of(value) -> tuple[str, tuple[int | None, ...]]:
    return str(value.type.element_type), tuple(sizes_of(value))


def sizes_of(value) -> list[int | None]:
    """The sizes of a tensor in IR; None for one that is not known before it runs."""
    of = value.type
    return [None if of.is_dynamic_dim(i) else of.get_dim_size(i) for i in range(of.rank)]
