"""What torch_mtl4.export.coreai.export returns: what became of each module, and what was proven."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import nn

from torch_mtl4._calls import calls_of
from torch_mtl4.export.coreai.verify import Verification
from torch_mtl4.integrations.kinds import attention_kind
from torch_mtl4.nn.byte_weights import ByteWeights
from torch_mtl4.nn.convert import Conversion


@dataclass(frozen=True)
class ModuleRow:
    """One module that computes attention or holds the weight of a linear layer.

    Attributes:
        name: its path in the model.
        module: the name of its class.
        what: "attention" or "weights".
        on_kernel: whether its calls in the asset are calls of our kernel.
        reason: why they are not.
    """

    name: str
    module: str
    what: str
    on_kernel: bool
    reason: str | None = None


@dataclass(frozen=True)
class KernelRow:
    """One kernel text of an asset: its name, its SHA-256, how long it is and how many calls it has."""

    name: str
    sha256: str
    characters: int
    calls: int


@dataclass(frozen=True)
class ExportReport:
    """What an export did; str() is a page, `json()` the same for machines.

    Attributes:
        model: the name of the model's class.
        path: of the asset.
        bytes: size of the asset.
        model_bytes: size of the parameters and buffers of the model that was given.
        functions: entry point -> its inputs, outputs and states by name.
        modules: one row a module that computes attention or holds weights.
        kernels: one row a text.
        dropped: results of the model that are no tensors, which the asset lacks.
        warnings: of the linter (`torch_mtl4.custom.lint`).
        verification: None if it was not asked for.
        seconds: of "prepare", "export", "decompose", "convert" and "save".
    """

    model: str
    path: Path
    bytes: int
    model_bytes: int
    functions: dict[str, dict[str, list[str]]]
    modules: tuple[ModuleRow, ...]
    kernels: tuple[KernelRow, ...]
    dropped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    verification: Verification | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def kernel_calls(self) -> int:
        """Calls of kernels in the asset."""
        return sum(kernel.calls for kernel in self.kernels)

    def json(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self) | {"path": self.path.name}, indent=2)

    def __str__(self) -> str:
        lines = [f"{self.model} -> {self.path.name}: {_mb(self.bytes)} (the model holds {_mb(self.model_bytes)})"]
        for name, names in self.functions.items():
            states = f", states {', '.join(names['states'])}" if names["states"] else ""
            lines.append(f"  {name}({', '.join(names['inputs'])}) -> {', '.join(names['outputs'])}{states}")
        lines.append(f"kernels: {self.kernel_calls} calls of {len(self.kernels)} texts")
        lines += [f"  {k.name}: {k.calls} calls, {k.characters} characters" for k in self.kernels]
        for what in ("attention", "weights"):
            rows = [row for row in self.modules if row.what == what]
            lines.append(f"{what}: {sum(row.on_kernel for row in rows)} of {len(rows)} modules on a kernel")
            reasons = Counter((row.module, row.reason) for row in rows if not row.on_kernel)
            lines += [f"  {count} x {module}: {reason}" for (module, reason), count in reasons.items()]
        lines += [f"not in the asset: {name}" for name in self.dropped]
        lines += self.warnings
        lines += _proofs(self.verification)
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return "\n".join([*lines, *([f"time: {times}"] if times else [])])


def _proofs(verification: Verification | None) -> list[str]:
    if verification is None:
        return ["not verified"]
    lines = [f"verified in {verification.seconds:.1f} s; {len(verification.kernels)} kernels ran on the MSL runner"]
    for name, (error, allowed) in verification.outputs.items():
        lines.append(f"  {name}: off the model by {error:.2g}, {allowed:.2g} is allowed (twin on this machine)")
    return [*lines, *(f"  skipped: {reason}" for reason in verification.skipped)]


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def rows_of(model: nn.Module, attention: bool, conversions: list[Conversion]) -> tuple[ModuleRow, ...]:
    """The rows of a copy that was exported, by the calls that were counted while it was traced."""
    rows = []
    for name, module in model.named_modules():
        calls = calls_of(module)
        kernel_calls = calls.fused + calls.traced
        if isinstance(module, ByteWeights):
            rows.append(ModuleRow(name, type(module).__name__, "weights", bool(kernel_calls), _uncalled(calls)))
        elif attention_kind(module) is not None or kernel_calls or calls.unfused:
            reason = _uncalled(calls, "no call of an attention function in the export")
            if not attention and reason is not None:
                reason = "attention=False"
            elif reason is not None and not calls.unfused and attention_kind(module) == "own":
                reason = "computes its attention itself, with no function to replace"
            rows.append(ModuleRow(name, type(module).__name__, "attention", reason is None, reason))
    rows += [ModuleRow(c.name, c.module, "weights", False, c.reason) for c in conversions if not c.converted]
    return tuple(rows)


def _uncalled(calls, never: str = "no call of it in the export") -> str | None:
    if calls.unfused:
        return "; ".join(f"{count} calls: {why}" for why, count in calls.unfused.most_common())
    return None if calls.fused + calls.traced else never
