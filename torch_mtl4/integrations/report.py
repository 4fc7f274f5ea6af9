"""torch_mtl4.report: which modules of a model call our kernels, how often, and why the others do not."""

import re
from dataclasses import dataclass

from torch import nn

from torch_mtl4._calls import Calls, calls_of, forget
from torch_mtl4.integrations.kinds import INTERFACE, OWN, attention_kind, fused_is_off
from torch_mtl4.integrations.names import ATTENTION_NAME
from torch_mtl4.integrations.patching import _EnabledForward, configs_in
from torch_mtl4.nn.byte_weights import ByteWeights
from torch_mtl4.nn.convert import kind_of, plan_conversions


@dataclass(frozen=True)
class ModuleReport:
    """One module that computes attention or holds weights.

    Attributes:
        name: its path in the model.
        module: the name of its class.
        what: "attention" or "weights".
        ready: whether a call of it now goes to our kernel.
        calls: the calls so far.
        reason: why it is not ready, or what kept calls of it from the kernel; None if nothing did.
    """

    name: str
    module: str
    what: str
    ready: bool
    calls: Calls
    reason: str | None = None

    @property
    def bypasses(self) -> bool:
        """Whether no call has reached our kernel and none will, as the module stands."""
        return not self.ready and self.calls.fused + self.calls.traced == 0


@dataclass(frozen=True)
class Report:
    """What `torch_mtl4.report` returns; str() is a table.

    Attributes:
        model: the name of the model's class.
        modules: one entry a module that computes attention or holds weights.
    """

    model: str
    modules: tuple[ModuleReport, ...]

    @property
    def attention(self) -> tuple[ModuleReport, ...]:
        return tuple(m for m in self.modules if m.what == "attention")

    @property
    def weights(self) -> tuple[ModuleReport, ...]:
        return tuple(m for m in self.modules if m.what == "weights")

    @property
    def bypassing(self) -> tuple[ModuleReport, ...]:
        """The attention modules that do not call our kernel."""
        return tuple(m for m in self.attention if m.bypasses)

    @property
    def fused_calls(self) -> int:
        """Attention calls that took our kernel, without those inside compiled graphs."""
        return sum(m.calls.fused for m in self.attention)

    @property
    def unfused_calls(self) -> int:
        """Attention calls that took another path for a reason."""
        return sum(m.calls.unfused.total() for m in self.attention)

    def __str__(self) -> str:
        attention, weights = self.attention, self.weights
        lines = [
            f"{self.model}",
            f"attention: {sum(m.ready for m in attention)} of {len(attention)} modules on our kernel, "
            f"{self.fused_calls} calls took it, {self.unfused_calls} did not",
            *_lines(attention),
            f"weights: {sum(m.ready for m in weights)} of {len(weights)} layers in MXFP8",
            *_lines(weights),
        ]
        return "\n".join(lines)


def report(model: nn.Module, *, reset: bool = False) -> Report:
    """Says which modules of a model call our kernels, with counts, and why the others do not.

    Counts are of calls since the process started or the last reset, by whichever way: attn_implementation="mtl4",
    `torch_mtl4.patch`, `torch_mtl4.enabled` or `torch_mtl4.enable`. torch.compile counts a call when it traces it.

    Args:
        model: any module.
        reset: set the counts to zero after reading them.

    Returns:
        A Report.

    Raises:
        TypeError: model is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"report: expected model torch.nn.Module, got {type(model).__name__}")
    modules, configs = [], configs_in(model)
    for name, module in model.named_modules():
        entry = _attention_report(name, module, configs.get(module))
        if entry is not None:
            modules.append(entry)
    kept = {c.name: c.reason for c in plan_conversions(model, []) if c.reason is not None}
    for name, module in model.named_modules():
        if isinstance(module, ByteWeights):
            modules.append(ModuleReport(name, type(module).__name__, "weights", True, calls_of(module)))
        elif kind_of(module) is not None or name in kept:
            reason = kept.get(name, "not quantized")
            modules.append(ModuleReport(name, type(module).__name__, "weights", False, Calls(), reason))
    if reset:
        forget(model.modules())
    return Report(type(model).__name__, tuple(modules))


def _attention_report(name: str, module: nn.Module, config) -> ModuleReport | None:
    if isinstance(module, ByteWeights):
        return None
    kind, calls = attention_kind(module), calls_of(module)
    called = calls.fused + calls.traced + calls.unfused.total()
    if kind is None and not called:
        return None
    reason = None
    if kind == INTERFACE:
        chosen = getattr(config, "_attn_implementation", None)
        if chosen != ATTENTION_NAME:
            reason = f'its config says attn_implementation="{chosen}"'
    elif kind == OWN:
        reason = "computes its attention itself, with no function to replace"
        if fused_is_off(module):
            reason = "computes its attention itself: fused_attn is False (timm.layers.set_fused_attn)"
    elif not _in_enabled_forward(module):
        reason = "calls F.scaled_dot_product_attention, which is torch's outside of patch, enabled and enable"
    ready = reason is None
    if ready and isinstance(module, nn.MultiheadAttention) and not calls.fused:
        reason = "in evaluation without gradients torch may take a fast path of its own (torch.backends.mha)"
    if calls.unfused:
        reason = "; ".join(f"{count} calls: {why}" for why, count in calls.unfused.most_common())
    return ModuleReport(name, type(module).__name__, "attention", ready, calls, reason)


def _in_enabled_forward(module: nn.Module) -> bool:
    return isinstance(module.__dict__.get("forward"), _EnabledForward)


def _lines(modules: tuple[ModuleReport, ...]) -> list[str]:
    """One line for all modules that differ only in the numbers in their names."""
    groups: dict[tuple, list[ModuleReport]] = {}
    for m in modules:
        groups.setdefault((re.sub(r"\d+", "*", m.name), m.module, m.ready, m.reason), []).append(m)
    lines = []
    for (name, module, ready, reason), members in groups.items():
        fused, traced = (sum(getattr(m.calls, kind) for m in members) for kind in ("fused", "traced"))
        counts = f"{fused} calls" + (f", {traced} compiled" if traced else "")
        state = f"kernel ({counts})" if ready or fused + traced else "bypasses"
        lines.append(
            f"  {name or '(the model)'} [{module} x {len(members)}]: {state}" + (f"; {reason}" if reason else "")
        )
    return lines
